"""Bodies of requests: forms and JSON objects, whose size is bounded before they are read."""

from __future__ import annotations

import json
from typing import Any

from starlette.datastructures import FormData
from starlette.requests import Request

from mqworker.errors import InvalidArgument

_MOST_FIELDS = 10
_FORM = "application/x-www-form-urlencoded"


async def read_form(request: Request, most_bytes: int) -> FormData:
    """The fields of a form; no files."""
    _check_length(request, most_bytes)
    if not request.headers.get("content-type", "").startswith(_FORM):
        raise InvalidArgument(f"the body has another type; accepted is {_FORM}")
    return await request.form(max_files=0, max_fields=_MOST_FIELDS)


async def read_object(request: Request, most_bytes: int) -> dict[str, Any]:  # Any: what JSON can hold
    """A JSON object."""
    _check_length(request, most_bytes)
    if not request.headers.get("content-type", "").startswith("application/json"):
        raise InvalidArgument("the body has another type; accepted is application/json")
    try:
        body = json.loads(await request.body())
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"the body is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise InvalidArgument("the body is not a JSON object")
    return body


def _check_length(request: Request, most_bytes: int) -> None:
    if "transfer-encoding" in request.headers:  # which would count, whatever the length says
        raise InvalidArgument("the body comes in chunks; accepted is a body with its content-length")
    length = request.headers.get("content-length", "")
    if not length.isdecimal() or int(length) > most_bytes:
        raise InvalidArgument(f"the body is {length[:20] or '?'} bytes; accepted are up to {most_bytes:,}")
