"""The JSON API: what the pages show and do, for programs."""

from __future__ import annotations

import asyncio
import json

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from mqworker.errors import InvalidArgument, MqworkerError, StoreUnavailable, UnknownQueue
from mqworker.operate.actions import Request as Asked
from mqworker.operate.actions import act, preview
from mqworker.operate.audit import read_audit
from mqworker.operate.causes import read_causes
from mqworker.operate.documents import (
    audit_document,
    causes_document,
    job_document,
    preview_document,
    search_document,
    series_document,
    system_document,
)
from mqworker.operate.job_filter import parse_filter
from mqworker.operate.job_view import read_job
from mqworker.operate.metrics.scale import ScaleQuestion, read_scale
from mqworker.operate.metrics.system import outage_families, read_metrics
from mqworker.operate.metrics.text import CONTENT_TYPE, page
from mqworker.operate.picture import Picture
from mqworker.operate.search import MOST_FOUND, search
from mqworker.operate.status_document import queue_document
from mqworker_services.web.access import LOCAL, Identity
from mqworker_services.web.console import Console, identity_of
from mqworker_services.web.openapi import openapi_document

_LONGEST_BODY = 20_000
_MOST_LISTED = 1_000


class Api:
    """The API of one console."""

    def __init__(self, console: Console) -> None:
        self._console = console

    @property
    def routes(self) -> list[Route]:
        """Where each thing is, below /api/v1."""
        return [
            Route("/api/v1/openapi.json", self.openapi),
            Route("/api/v1/system", self.system),
            Route("/api/v1/queue", self.queue),
            Route("/api/v1/job", self.job),
            Route("/api/v1/search", self.search),
            Route("/api/v1/dead", self.dead),
            Route("/api/v1/audit", self.audit),
            Route("/api/v1/actions/preview", self.preview),
            Route("/api/v1/actions", self.act, methods=["POST"]),
            Route("/metrics", self.metrics),
            Route("/scale/{queue}", self.scale),
        ]

    async def metrics(self, _request: Request) -> Response:
        """The system for Prometheus; nodes tell of themselves at their own port."""
        lines = await asyncio.to_thread(self._read_metrics)
        return Response(page(lines), headers={"content-type": CONTENT_TYPE})

    def _read_metrics(self) -> list[str]:
        try:
            return read_metrics(self._console.site.store, self._console.settings.namespace)
        except MqworkerError:  # no server runs here: the site cannot even be opened
            return list(outage_families())

    async def scale(self, request: Request) -> Response:
        """How many workers a queue wants: here too, for where no node is left that could tell."""
        question = ScaleQuestion.of(request.path_params["queue"], request.query_params)
        namespace = self._console.settings.namespace
        document = await asyncio.to_thread(lambda: read_scale(self._console.site.store, namespace, question))
        return JSONResponse(document)

    async def openapi(self, request: Request) -> Response:
        """The API in the words of OpenAPI."""
        return JSONResponse(openapi_document(request.scope.get("root_path", "")))

    async def system(self, _request: Request) -> Response:
        """Everything at a glance."""
        return JSONResponse(system_document(await self._picture()))

    async def queue(self, request: Request) -> Response:
        """One queue, with its last minute."""
        name, picture = request.query_params.get("name", ""), await self._picture()
        for queue in picture.view.queues:
            if queue.name == name:
                series = picture.series_by_queue.get(name)
                return JSONResponse(
                    queue_document(queue) | {"series": series_document(series) if series else None}
                )
        raise UnknownQueue(f"there is no queue {name[:200]!r}")

    async def job(self, request: Request) -> Response:
        """One job."""
        message, queue = request.query_params.get("id", ""), request.query_params.get("queue")
        found = await asyncio.to_thread(read_job, self._console.site, message, queue or None)
        has_arguments = _identity(request).can_see_arguments
        return JSONResponse(job_document(found, has_arguments=has_arguments))

    async def search(self, request: Request) -> Response:
        """Jobs that fit some words."""
        wanted = parse_filter(request.query_params.get("q", ""))
        most = _number(request, "limit", MOST_FOUND)
        cursor = request.query_params.get("cursor")
        found = await asyncio.to_thread(search, self._console.site, wanted, cursor, most=most)
        return JSONResponse(search_document(found))

    async def dead(self, request: Request) -> Response:
        """Dead letters by cause."""
        queue = request.query_params.get("queue") or None
        return JSONResponse(causes_document(await asyncio.to_thread(read_causes, self._console.site, queue)))

    async def audit(self, request: Request) -> Response:
        """What was done from here."""
        count = _number(request, "limit", 200)
        return JSONResponse(audit_document(await asyncio.to_thread(read_audit, self._console.site, count)))

    async def preview(self, request: Request) -> Response:
        """What an action would do."""
        get = request.query_params.get
        asked = Asked(get("action", ""), get("queue", ""), get("what", ""))
        return JSONResponse(preview_document(await asyncio.to_thread(preview, self._console.site, asked)))

    async def act(self, request: Request) -> Response:
        """Do it, and write it down."""
        asked, identity = await _asked(request), _identity(request)
        if not identity.may(asked.action):
            return JSONResponse({"error": f"the role {identity.role.name.lower()} may not do this"}, 403)
        outcome = await asyncio.to_thread(act, self._console.site, asked, identity.name)
        self._console.gallery.forget()
        return JSONResponse({"outcome": outcome})

    async def _picture(self) -> Picture:
        moment = await self._console.gallery.current()
        if moment.trouble is not None or moment.picture is None:
            raise StoreUnavailable(moment.trouble or "nothing was read yet")
        return moment.picture


def _identity(request: Request) -> Identity:
    return identity_of(request) or LOCAL  # the guard lets nobody in without one


async def _asked(request: Request) -> Asked:
    length = request.headers.get("content-length", "")
    if not length.isdecimal() or int(length) > _LONGEST_BODY:
        raise InvalidArgument(f"the body is {length[:20] or '?'} bytes; accepted are up to {_LONGEST_BODY:,}")
    if not request.headers.get("content-type", "").startswith("application/json"):
        raise InvalidArgument("the body has another type; accepted is application/json")
    try:
        body = json.loads(await request.body())
    except ValueError as error:
        raise InvalidArgument(f"the body is no JSON: {error}") from error
    fields = body if isinstance(body, dict) else {}
    action, queue, what = (fields.get(name, "") for name in ("action", "queue", "what"))
    if not all(isinstance(each, str) for each in (action, queue, what)):
        raise InvalidArgument("the body does not fit; accepted are texts: action, queue, what")
    return Asked(action, queue, what)


def _number(request: Request, name: str, usual: int) -> int:
    text = request.query_params.get(name)
    if text is None:
        return usual
    if text.isascii() and text.isdecimal() and 0 < int(text) <= _MOST_LISTED:
        return int(text)
    raise InvalidArgument(f"{name} is {text[:60]!r}; accepted is a whole number from 1 to {_MOST_LISTED:,}")
