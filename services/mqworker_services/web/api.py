"""The JSON API: what the pages show and do, for programs."""

from __future__ import annotations

import asyncio
from dataclasses import asdict

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from mqworker.errors import InvalidArgument, MqworkerError, StoreUnavailable, UnknownQueue
from mqworker.operate.actions import Request as Asked
from mqworker.operate.actions import act, preview
from mqworker.operate.audit import read_audit
from mqworker.operate.calls import call_of, with_trace
from mqworker.operate.causes import read_causes
from mqworker.operate.documents import (
    accident_document,
    audit_document,
    causes_document,
    job_document,
    preview_document,
    schedule_document,
    schedules_document,
    search_document,
    series_document,
    system_document,
    tasks_document,
    workflow_document,
    workflows_document,
)
from mqworker.operate.gateway_figures import gateway_views
from mqworker.operate.job_filter import parse_filter
from mqworker.operate.job_view import read_job
from mqworker.operate.lake import search_with_lake
from mqworker.operate.limits import read_limits
from mqworker.operate.metrics.scale import ScaleQuestion, read_scale
from mqworker.operate.metrics.system import outage_families, read_metrics
from mqworker.operate.metrics.text import CONTENT_TYPE, page
from mqworker.operate.models import read_models
from mqworker.operate.picture import Picture
from mqworker.operate.schedules import LARGEST_PAGE, read_history, read_schedule, read_schedules
from mqworker.operate.search import MOST_FOUND, MOST_LOOKED_AT
from mqworker.operate.status_document import queue_document
from mqworker.operate.workflows import read_workflow, read_workflows
from mqworker.queues.work.accidents import read_accidents
from mqworker_services.web.access import LOCAL, Identity, demand_search
from mqworker_services.web.bodies import read_object
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
            Route("/api/v1/schedules", self.schedules),
            Route("/api/v1/schedule", self.schedule),
            Route("/api/v1/workflows", self.workflows),
            Route("/api/v1/workflow", self.workflow),
            Route("/api/v1/limits", self.limits),
            Route("/api/v1/models", self.models),
            Route("/api/v1/gateways", self.gateways),
            Route("/api/v1/accidents", self.accidents),
            Route("/api/v1/tasks", self.tasks),
            Route("/api/v1/tasks/{name}/enqueue", self.enqueue, methods=["POST"]),
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
            return read_metrics(self._console.system.store, self._console.settings.namespace)
        except MqworkerError:  # no server runs here: the system cannot even be opened
            return list(outage_families())

    async def scale(self, request: Request) -> Response:
        """How many workers a queue wants: here too, for where no node is left that could tell."""
        question = ScaleQuestion.of(request.path_params["queue"], request.query_params)
        namespace = self._console.settings.namespace
        document = await asyncio.to_thread(
            lambda: read_scale(self._console.system.store, namespace, question)
        )
        return JSONResponse(document)

    async def openapi(self, request: Request) -> Response:
        """The API in the words of OpenAPI."""
        return JSONResponse(openapi_document(request.scope.get("root_path", "")))

    async def system(self, request: Request) -> Response:
        """Everything at a glance."""
        has_arguments = _identity(request).can_see_arguments
        return JSONResponse(system_document(await self._picture(), has_arguments=has_arguments))

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
        found = await asyncio.to_thread(read_job, self._console.system, message, queue or None)
        has_arguments = _identity(request).can_see_arguments
        return JSONResponse(job_document(found, has_arguments=has_arguments))

    async def search(self, request: Request) -> Response:
        """Jobs that fit some words."""
        wanted = parse_filter(request.query_params.get("q", ""))
        demand_search(_identity(request), wanted)
        most = _number(request, "limit", MOST_FOUND)
        cursor = request.query_params.get("cursor")
        found = await asyncio.to_thread(
            search_with_lake, self._console.system, wanted, cursor, most=most, budget=MOST_LOOKED_AT
        )
        return JSONResponse(search_document(found))

    async def dead(self, request: Request) -> Response:
        """Dead letters by cause."""
        queue = request.query_params.get("queue") or None
        return JSONResponse(
            causes_document(await asyncio.to_thread(read_causes, self._console.system, queue))
        )

    async def audit(self, request: Request) -> Response:
        """What was done from here."""
        count = _number(request, "limit", 200)
        return JSONResponse(audit_document(await asyncio.to_thread(read_audit, self._console.system, count)))

    async def schedules(self, request: Request) -> Response:
        """A page of schedules."""
        asked = request.query_params
        found = await asyncio.to_thread(
            read_schedules,
            self._console.system,
            prefix=asked.get("prefix", ""),
            after=asked.get("after", ""),
            offset=max(0, _number(request, "offset", 0)),
            limit=min(max(1, _number(request, "limit", LARGEST_PAGE)), LARGEST_PAGE),
        )
        return JSONResponse(schedules_document(found))

    async def schedule(self, request: Request) -> Response:
        """One schedule."""
        name = request.query_params.get("name", "")
        at_ms, view = await asyncio.to_thread(read_schedule, self._console.system, name)
        firings = await asyncio.to_thread(read_history, self._console.system, view.name)
        return JSONResponse({"at_ms": at_ms, **schedule_document(view, firings)})

    async def workflows(self, _request: Request) -> Response:
        """The newest workflows."""
        return JSONResponse(workflows_document(await asyncio.to_thread(read_workflows, self._console.system)))

    async def workflow(self, request: Request) -> Response:
        """One workflow with its members."""
        flow = request.query_params.get("id", "")
        return JSONResponse(
            workflow_document(await asyncio.to_thread(read_workflow, self._console.system, flow))
        )

    async def limits(self, _request: Request) -> Response:
        """Limits and fairness."""
        return JSONResponse(asdict(await asyncio.to_thread(read_limits, self._console.system)))

    async def models(self, _request: Request) -> Response:
        """Queues that are not work queues."""
        view = (await self._picture()).view
        return JSONResponse(asdict(await asyncio.to_thread(read_models, self._console.system, view)))

    async def gateways(self, _request: Request) -> Response:
        """The gateways of all nodes."""
        view = (await self._picture()).view
        return JSONResponse({"gateways": [asdict(each) for each in gateway_views(view.nodes)]})

    async def accidents(self, request: Request) -> Response:
        """Workers that died over what they ran."""
        system, count = self._console.system, _number(request, "limit", 100)
        found = await asyncio.to_thread(read_accidents, system.store, system.settings.namespace, count)
        return JSONResponse({"accidents": [accident_document(each) for each in found]})

    async def tasks(self, _request: Request) -> Response:
        """How the tasks are called that workers published."""
        return JSONResponse(tasks_document(await asyncio.to_thread(self._console.caller.tasks)))

    async def enqueue(self, request: Request) -> Response:
        """Call a task by its name; the arguments are checked."""
        identity = _identity(request)
        if not identity.may("enqueue"):
            return JSONResponse({"error": f"the role {identity.role.name.lower()} may not do this"}, 403)
        most = self._console.settings.max_message_bytes * 2 + _LONGEST_BODY
        call = call_of(
            request.path_params["name"], with_trace(await read_object(request, most), request.headers)
        )
        job = await asyncio.to_thread(self._console.caller.enqueue, call)
        answer = {"id": job.id, "queue": job.queue, "is_new": job.is_new}
        return JSONResponse(answer, 201 if job.is_new else 200)

    async def preview(self, request: Request) -> Response:
        """What an action would do."""
        get = request.query_params.get
        asked = Asked(get("action", ""), get("queue", ""), get("what", ""))
        return JSONResponse(preview_document(await asyncio.to_thread(preview, self._console.system, asked)))

    async def act(self, request: Request) -> Response:
        """Do it, and write it down."""
        asked, identity = await _asked(request), _identity(request)
        if not identity.may(asked.action):
            return JSONResponse({"error": f"the role {identity.role.name.lower()} may not do this"}, 403)
        outcome = await asyncio.to_thread(act, self._console.system, asked, identity.name)
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
    fields = await read_object(request, _LONGEST_BODY)
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
