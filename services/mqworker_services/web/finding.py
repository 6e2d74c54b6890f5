"""Find and act: bulk by filter, editing dead letters, strikes, statistics; pages and API of one console."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from starlette.datastructures import FormData, QueryParams
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from mqworker.errors import InvalidArgument, MqworkerError
from mqworker.operate.bulk import Bulk, Progress, preview_bulk, run_bulk
from mqworker.operate.documents import bulk_document, statistics_document, strikes_document
from mqworker.operate.edit import edit_letter, editable, rerun, task_of_ended
from mqworker.operate.figures import read_statistics
from mqworker.operate.job_filter import duration_ms, parse_filter
from mqworker.operate.strikes import add_strike, read_strikes, remove_strike
from mqworker_services.web.access import LOCAL, Identity, demand, demand_search
from mqworker_services.web.bodies import read_form, read_object
from mqworker_services.web.console import Console, identity_of

_LONGEST_BODY = 300_000
_MOST_KEPT = 50
LASTS = ("15m", "1h", "6h", "1d")


@dataclass(slots=True)
class Running:
    """A bulk that somebody began here."""

    id: str
    bulk: Bulk
    who: str
    count: int
    progress: Progress = field(default_factory=Progress)
    outcome: str = ""

    def document(self) -> dict[str, Any]:  # Any: what JSON can hold
        """As plain values."""
        return {
            "id": self.id,
            "action": self.bulk.action,
            "words": self.bulk.words,
            "rate": self.bulk.rate,
            "command": self.bulk.command,
            "who": self.who,
            "count": self.count,
            "done": self.progress.done,
            "outcome": self.outcome or None,
        }


class Finding:
    """The part of a console that finds and acts."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bulks: OrderedDict[str, Running] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def routes(self) -> list[Route]:
        """Where each thing is."""
        return [
            Route("/bulk", self.bulk_page, methods=["GET", "POST"]),
            Route("/bulk/stop", self.stop_page, methods=["POST"]),
            Route("/edit", self.edit_page, methods=["GET", "POST"]),
            Route("/rerun", self.rerun_page, methods=["GET", "POST"]),
            Route("/strikes", self.strikes_page, methods=["GET", "POST"]),
            Route("/stats", self.stats_page),
            Route("/api/v1/bulk", self.bulks, methods=["GET", "POST"]),
            Route("/api/v1/bulk/preview", self.bulk_preview),
            Route("/api/v1/bulk/stop", self.bulk_stop, methods=["POST"]),
            Route("/api/v1/dead/edit", self.edit, methods=["POST"]),
            Route("/api/v1/jobs/rerun", self.rerun, methods=["POST"]),
            Route("/api/v1/strikes", self.strikes, methods=["GET", "POST", "DELETE"]),
            Route("/api/v1/stats", self.stats),
        ]

    def close(self) -> None:
        """Let what runs end before its next step; what is left stands in the audit, with the command."""
        for running in self._bulks.values():
            running.progress.stop()

    # Pages

    async def bulk_page(self, request: Request) -> Response:
        """Count what fits, ask, begin; and what was begun here."""
        identity = _identity(request)
        if request.method == "POST":
            form = await read_form(request, _LONGEST_BODY)
            bulk = _bulk(form)
            demand(identity, f"bulk-{bulk.action}")
            await self._begin(bulk, identity)
            return _back(request, "/bulk")
        found = None
        if action := request.query_params.get("action", ""):
            demand_search(identity, parse_filter(request.query_params.get("q", "")))
            bulk = Bulk(action, request.query_params.get("q", ""), _rate(request.query_params))
            found = await asyncio.to_thread(preview_bulk, self._console.system, bulk)
        running = list(reversed(self._bulks.values()))
        may = found is not None and identity.may(f"bulk-{found.bulk.action}")
        return self._console.page(request, "bulk.html", found=found, running=running, may=may)

    async def stop_page(self, request: Request) -> Response:
        """Stop one."""
        form, identity = await read_form(request, _LONGEST_BODY), _identity(request)
        self._stop(str(form.get("id", "")), identity)
        return _back(request, "/bulk")

    async def edit_page(self, request: Request) -> Response:
        """The arguments of a dead letter in a form; what is sent replaces them."""
        identity = _identity(request)
        demand(identity, "edit")
        if request.method == "GET":
            queue, id_ = request.query_params.get("queue", ""), request.query_params.get("id", "")
            arguments = await asyncio.to_thread(editable, self._console.system, queue, id_)
            texts = {name: json.dumps(arguments[name], indent=2, ensure_ascii=False) for name in arguments}
            return self._console.page(
                request,
                "edit.html",
                queue=queue,
                id=id_,
                problem=None,
                args=texts["args"],
                kwargs=texts["kwargs"],
            )
        form = await read_form(request, _LONGEST_BODY)
        queue, id_ = str(form.get("queue", "")), str(form.get("id", ""))
        args, kwargs = str(form.get("args", "")), str(form.get("kwargs", ""))
        try:
            outcome = await asyncio.to_thread(
                edit_letter, self._console.system, queue, id_, identity.name, args=args, kwargs=kwargs
            )
        except InvalidArgument as error:
            return self._console.page(
                request,
                "edit.html",
                400,
                problem=str(error),
                queue=queue,
                id=id_,
                args=args,
                kwargs=kwargs,
            )
        return _back(request, f"/job?{urlencode({'id': id_, 'queue': queue})}", self._console.note(outcome))

    async def rerun_page(self, request: Request) -> Response:
        """A form for the arguments of a job that ended, for they are not kept; sent, it calls the task."""
        identity = _identity(request)
        demand(identity, "rerun")
        given = await read_form(request, _LONGEST_BODY) if request.method == "POST" else request.query_params
        queue, id_ = str(given.get("queue", "")), str(given.get("id", ""))
        texts = {name: str(given.get(name, none)) for name, none in (("args", "[]"), ("kwargs", "{}"))}
        problem, status = None, 200
        if request.method == "POST":
            try:
                outcome = await asyncio.to_thread(
                    rerun, self._console.system, id_, queue or None, identity.name, **texts
                )
                place = f"/job?{urlencode({'id': id_, 'queue': queue})}"
                return _back(request, place, self._console.note(outcome))
            except InvalidArgument as error:
                problem, status = str(error), 400
        task = await asyncio.to_thread(task_of_ended, self._console.system, id_, queue or None)
        return self._console.page(
            request, "rerun.html", status, problem=problem, queue=queue, id=id_, task=task, **texts
        )

    async def strikes_page(self, request: Request) -> Response:
        """What is skipped now, and a form for more."""
        identity = _identity(request)
        problem, status = None, 200
        if request.method == "POST":
            form = await read_form(request, _LONGEST_BODY)
            demand(identity, "strike")
            try:
                outcome = await asyncio.to_thread(self._strike, form, identity)
                return _back(request, "/strikes", self._console.note(outcome))
            except MqworkerError as error:
                problem, status = str(error), 400
        strikes = await asyncio.to_thread(read_strikes, self._console.system)
        may = identity.may("strike")
        return self._console.page(request, "strikes.html", status, strikes=strikes, problem=problem, may=may)

    async def stats_page(self, request: Request) -> Response:
        """Figures by task."""
        get = request.query_params.get
        last, queue = get("last") or LASTS[0], get("queue") or None
        found = await asyncio.to_thread(
            read_statistics, self._console.system, duration_ms("last", last), queue=queue
        )
        return self._console.page(request, "stats.html", found=found, last=last, lasts=LASTS, queue=queue)

    # API

    async def bulks(self, request: Request) -> Response:
        """What was begun here; or begin one."""
        if request.method == "GET":
            return JSONResponse({"bulks": [each.document() for each in reversed(self._bulks.values())]})
        fields, identity = await read_object(request, _LONGEST_BODY), _identity(request)
        bulk = Bulk(
            _text(fields, "action"),
            _text(fields, "words"),
            _number(fields, "rate"),
            _number(fields, "before_ms"),
        )
        demand(identity, f"bulk-{bulk.action}")
        return JSONResponse((await self._begin(bulk, identity)).document(), 202)

    async def bulk_preview(self, request: Request) -> Response:
        """How many fit."""
        get = request.query_params.get
        demand_search(_identity(request), parse_filter(get("q", "")))
        bulk = Bulk(get("action", ""), get("q", ""), _rate(request.query_params))
        return JSONResponse(bulk_document(await asyncio.to_thread(preview_bulk, self._console.system, bulk)))

    async def bulk_stop(self, request: Request) -> Response:
        """Stop one."""
        running = self._stop(_text(await read_object(request, _LONGEST_BODY), "id"), _identity(request))
        return JSONResponse(running.document())

    async def edit(self, request: Request) -> Response:
        """Replace the arguments of a dead letter."""
        fields, identity = await read_object(request, _LONGEST_BODY), _identity(request)
        demand(identity, "edit")
        texts = {name: json.dumps(fields[name]) for name in ("args", "kwargs") if name in fields}
        outcome = await asyncio.to_thread(
            edit_letter,
            self._console.system,
            _text(fields, "queue"),
            _text(fields, "id"),
            identity.name,
            **texts,
        )
        return JSONResponse({"outcome": outcome})

    async def rerun(self, request: Request) -> Response:
        """Run a job again that has ended; one that is not dead, with arguments."""
        identity = _identity(request)
        demand(identity, "rerun")
        fields = await read_object(request, _LONGEST_BODY)
        texts = {
            name: None if name not in fields else json.dumps(fields[name]) for name in ("args", "kwargs")
        }
        outcome = await asyncio.to_thread(
            rerun,
            self._console.system,
            _text(fields, "id"),
            _text(fields, "queue") or None,
            identity.name,
            args=texts["args"],
            kwargs=texts["kwargs"],
        )
        return JSONResponse({"outcome": outcome})

    async def strikes(self, request: Request) -> Response:
        """What is skipped now; skip more, or less."""
        identity = _identity(request)
        if request.method == "GET":
            return JSONResponse(strikes_document(await asyncio.to_thread(read_strikes, self._console.system)))
        fields = await read_object(request, _LONGEST_BODY)
        demand(identity, "strike")
        if request.method == "DELETE":
            gone = await asyncio.to_thread(
                remove_strike, self._console.system, identity.name, _text(fields, "id")
            )
            return JSONResponse(gone.as_fields())
        where = fields.get("where", [])
        if not isinstance(where, list) or not all(isinstance(each, str) for each in where):
            raise InvalidArgument("where does not fit; accepted is a list of texts: args.tenant=acme")
        made = await asyncio.to_thread(
            add_strike,
            self._console.system,
            identity.name,
            task=_text(fields, "task"),
            where=where,
            until=_text(fields, "until"),
            reason=_text(fields, "reason"),
        )
        return JSONResponse(made.as_fields(), 201)

    async def stats(self, request: Request) -> Response:
        """Figures by task."""
        get = request.query_params.get
        last_ms = duration_ms("last", get("last") or LASTS[0])
        queue, task = get("queue") or None, get("task") or None
        found = await asyncio.to_thread(
            read_statistics, self._console.system, last_ms, queue=queue, task=task
        )
        return JSONResponse(statistics_document(found))

    # What both do

    def _strike(self, form: FormData, identity: Identity) -> str:
        system = self._console.system
        if remove := str(form.get("remove", "")):
            return f"strike {remove_strike(system, identity.name, remove).id} is removed"
        where = str(form.get("where", "")).split()
        task, until, reason = (str(form.get(name, "")).strip() for name in ("task", "until", "reason"))
        made = add_strike(system, identity.name, task=task, where=where, until=until, reason=reason)
        return f"strike {made.id} is in force: {made.told}"

    async def _begin(self, bulk: Bulk, identity: Identity) -> Running:
        found = await asyncio.to_thread(preview_bulk, self._console.system, bulk)
        running = Running(secrets.token_hex(4), found.bulk, identity.name, found.count)
        self._bulks[running.id] = running
        while len(self._bulks) > _MOST_KEPT:
            _, oldest = self._bulks.popitem(last=False)
            oldest.progress.stop()
        task = asyncio.create_task(self._run(running))
        self._tasks.add(task)  # the loop itself holds on to no task
        task.add_done_callback(self._tasks.discard)
        return running

    async def _run(self, running: Running) -> None:
        try:
            running.outcome = await asyncio.to_thread(
                run_bulk, self._console.system, running.bulk, running.who, running.progress
            )
        except MqworkerError as error:
            running.outcome = f"ended early: {error}"
        self._console.gallery.forget()

    def _stop(self, id_: str, identity: Identity) -> Running:
        running = self._bulks.get(id_)
        if running is None:
            raise MqworkerError(f"nothing of the name {id_[:40]!r} runs here")
        demand(identity, f"bulk-{running.bulk.action}")
        running.progress.stop()
        return running


def _identity(request: Request) -> Identity:
    return identity_of(request) or LOCAL  # the guard lets nobody in without one


def _bulk(values: FormData) -> Bulk:
    before = str(values.get("before_ms", ""))
    return Bulk(
        str(values.get("action", "")),
        str(values.get("q", "")),
        _rate(values),
        int(before) if before.isascii() and before.isdecimal() else None,
    )


def _rate(values: FormData | QueryParams) -> int | None:
    text = str(values.get("rate") or "").strip()
    if not text:
        return None
    if not (text.isascii() and text.isdecimal()):
        raise InvalidArgument(f"rate is {text[:60]!r}; accepted is a whole number of jobs in a second")
    return int(text[:9])


def _text(fields: dict[str, Any], name: str) -> str:
    value = fields.get(name, "")
    if not isinstance(value, str):
        raise InvalidArgument(f"{name} does not fit; accepted is a text")
    return value


def _number(fields: dict[str, Any], name: str) -> int | None:
    value = fields.get(name)
    if value is not None and type(value) is not int:
        raise InvalidArgument(f"{name} does not fit; accepted is a whole number")
    return value


def _back(request: Request, path: str, mark: str | None = None) -> Response:
    joint = "&" if "?" in path else "?"
    note = f"{joint}{urlencode({'note': mark})}" if mark else ""
    return RedirectResponse(f"{request.scope.get('root_path', '')}{path}{note}", 303)
