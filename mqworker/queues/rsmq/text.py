"""A task as a JSON text, as it travels through an RSMQ queue: any language can send one.

    {"task": "shop.send_mail", "args": ["ann@example.org"], "kwargs": {"retries": 3}}

`args` and `kwargs` may be left out; an `id` and `headers` (texts by name) may be added. Where a body has no
words in JSON (bytes, dates, another codec) it stands as base64 in `body` instead of its arguments. Anything
else in the object is refused: a misspelt key would otherwise run the task with too few arguments.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Any

import msgpack

from mqworker.errors import InvalidArgument, InvalidMessage
from mqworker.model.message import LARGEST_BODY_BYTES, NO_TASK
from mqworker.model.names import MessageId, TaskName, message_id, shown, task_name
from mqworker.model.strict_json import JsonLimits, read_json, write_json

# A body of the largest size, four characters for three bytes, with the id and the name around it.
LIMITS = JsonLimits(most_bytes=LARGEST_BODY_BYTES * 4 // 3 + 1_024)

_KEYS = {"id", "task", "args", "kwargs", "headers", "body"}


@dataclass(frozen=True, slots=True)
class TaskText:
    """What a text says: which task, with which body, and under which id, if the sender chose one."""

    task: TaskName
    body: bytes
    id: MessageId | None = None


def encode_text(content: TaskText) -> bytes:
    """The JSON text of a task; readable where its arguments are values that JSON has."""
    head: dict[str, Any] = {"task": content.task}
    if content.id is not None:
        head = {"id": content.id, **head}
    call = _call_of(content.body)
    text = None if call is None else write_json({**head, **call})
    if text is None or not _is_readable_as(text, content.body):
        text = write_json({**head, "body": base64.b64encode(content.body).decode()})
    if text is None:
        raise InvalidArgument(f"task {shown(content.task)} or its id cannot be written as text")
    return text


def decode_text(text: bytes) -> TaskText:
    """What a text says. Raises `InvalidMessage` for anything but a task."""
    value = read_json(text, LIMITS)
    if not isinstance(value, dict) or "task" not in value:
        raise InvalidMessage('the JSON text is not a task: {"task": ..., "args": [...], "kwargs": {...}}')
    unknown = value.keys() - _KEYS
    if unknown:
        raise InvalidMessage(
            f"the JSON text has unknown keys: {shown(sorted(unknown))}; known: {sorted(_KEYS)}"
        )
    try:
        task = NO_TASK if value["task"] == NO_TASK else task_name(value["task"])
        chosen = message_id(value["id"]) if "id" in value else None
    except InvalidArgument as error:
        raise InvalidMessage(str(error)) from error
    return TaskText(task, _body_of(value), chosen)


def _body_of(value: dict[str, Any]) -> bytes:
    if "body" in value:
        if value.keys() & {"args", "kwargs", "headers"}:
            raise InvalidMessage(
                "the JSON text has a body and arguments or headers; accepted is one of the two"
            )
        return _from_base64(value["body"])
    args, kwargs, headers = value.get("args", []), value.get("kwargs", {}), value.get("headers", {})
    if not isinstance(args, list) or not isinstance(kwargs, dict):
        raise InvalidMessage(f"args is {shown(args)}, kwargs is {shown(kwargs)}; accepted: a list, an object")
    if not isinstance(headers, dict) or not all(isinstance(text, str) for text in headers.values()):
        raise InvalidMessage(f"headers is {shown(headers)}; accepted is an object of texts")
    return _packed([args, kwargs, {"headers": headers}] if headers else [args, kwargs])


def _from_base64(text: object) -> bytes:
    if not isinstance(text, str):
        raise InvalidMessage(f"body is {shown(text)}; accepted is base64")
    try:
        body = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidMessage(f"body is not base64: {error}") from error
    if len(body) > LARGEST_BODY_BYTES:
        raise InvalidMessage(f"body is {len(body):,} bytes; accepted are up to {LARGEST_BODY_BYTES:,}")
    return body


def _call_of(body: bytes) -> dict[str, Any] | None:
    """The call in words, None where it may have none: `_is_readable_as` looks again at what is found."""
    try:
        match msgpack.unpackb(body, use_list=True, strict_map_key=False):
            case [list(args), dict(kwargs)] if all(isinstance(name, str) for name in kwargs):
                return {"args": args, "kwargs": kwargs}
            case [list(args), dict(kwargs), {"headers": dict(headers), **more}] if not more:
                return {"args": args, "kwargs": kwargs, "headers": headers}
    except (ValueError, TypeError, msgpack.UnpackException, RecursionError):
        pass
    return None


def _is_readable_as(text: bytes, body: bytes) -> bool:
    """Whether reading the text gives the very same body: keys that are numbers, say, would come as texts."""
    try:
        return decode_text(text).body == body
    except InvalidMessage:
        return False


def _packed(call: list[Any]) -> bytes:
    body: bytes = msgpack.packb(call)
    return body
