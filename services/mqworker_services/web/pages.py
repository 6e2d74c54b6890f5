"""The pages, as HTML. GET never changes anything; what changes something is a POST after a page that asks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from urllib.parse import urlencode

from starlette.datastructures import FormData, QueryParams
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from mqworker.errors import InvalidArgument, MqworkerError, UnknownQueue
from mqworker.gateway import network_of
from mqworker.operate.actions import Request as Asked
from mqworker.operate.actions import act, preview
from mqworker.operate.audit import read_audit
from mqworker.operate.body import masked_arguments
from mqworker.operate.causes import read_causes
from mqworker.operate.job_filter import parse_filter
from mqworker.operate.job_view import ROUTE, read_job
from mqworker.operate.lake import search_with_lake
from mqworker.operate.search import MOST_LOOKED_AT, SearchSlice
from mqworker.operate.system import close_names
from mqworker.operate.workflows import find_workflow
from mqworker_services.web.access import COOKIE, Identity, demand_search
from mqworker_services.web.bodies import read_form
from mqworker_services.web.console import Console, identity_of
from mqworker_services.web.hub import Topic
from mqworker_services.web.timeline import timeline_of

_LONGEST_QUERY = 2_000
_LONGEST_FORM = 20_000


class Pages:
    """The pages of one console."""

    def __init__(self, console: Console) -> None:
        self._console = console
        live = {"/": self.overview, "/queue": self.queue, "/job": self.job, "/dead": self.dead}
        console.live_pages |= live

    @property
    def routes(self) -> list[Route]:
        """Where each page is."""
        return [
            Route("/", self.overview),
            Route("/queue", self.queue),
            Route("/job", self.job),
            Route("/search", self.search),
            Route("/dead", self.dead),
            Route("/audit", self.audit),
            Route("/confirm", self.confirm),
            Route("/act", self.act, methods=["POST"]),
            Route("/live", self.live),
            Route("/login", self.login, methods=["GET", "POST"]),
            Route("/logout", self.logout, methods=["POST"]),
        ]

    async def overview(self, request: Request) -> Response:
        """Everything at a glance."""
        moment = await self._console.gallery.current()
        return self._console.page(request, "overview.html", moment=moment, picture=moment.picture)

    async def queue(self, request: Request) -> Response:
        """One queue."""
        name = request.query_params.get("name", "")
        moment = await self._console.gallery.current()
        if moment.picture is not None:
            known = [queue.name for queue in moment.picture.view.queues]
            if name not in known:
                raise UnknownQueue(f"there is no queue {name[:200]!r}; {close_names(name[:200], known)}")
        return self._console.page(request, "queue.html", moment=moment, picture=moment.picture, name=name)

    async def job(self, request: Request) -> Response:
        """One job: why it does not run, its route and its attempts."""
        message, queue = request.query_params.get("id", ""), request.query_params.get("queue")
        try:
            job = await asyncio.to_thread(read_job, self._console.system, message, queue or None)
        except MqworkerError:
            if await asyncio.to_thread(find_workflow, self._console.system, message) is None:
                raise
            root = request.scope.get("root_path", "")
            return RedirectResponse(f"{root}/workflow?{urlencode({'id': message})}", 303)
        identity = _somebody(request)
        delivery = job.trace.delivery
        arguments = (
            masked_arguments(delivery, job.secrets) if delivery and identity.can_see_arguments else None
        )
        return self._console.page(
            request, "job.html", job=job, route=ROUTE, arguments=arguments, timeline=timeline_of(job)
        )

    async def search(self, request: Request) -> Response:
        """Jobs that fit some words."""
        words, cursor = request.query_params.get("q", ""), request.query_params.get("cursor")
        found: SearchSlice | None = None
        problem: str | None = None
        try:
            wanted = parse_filter(words)
            demand_search(_somebody(request), wanted)
            found = await asyncio.to_thread(
                search_with_lake, self._console.system, wanted, cursor, budget=MOST_LOOKED_AT
            )
        except (InvalidArgument, UnknownQueue) as error:
            problem = str(error)
        return self._console.page(
            request, "search.html", 400 if problem else 200, words=words, found=found, problem=problem
        )

    async def dead(self, request: Request) -> Response:
        """Dead letters by cause."""
        queue = request.query_params.get("queue") or None
        causes = await asyncio.to_thread(read_causes, self._console.system, queue)
        return self._console.page(request, "dead.html", causes=causes, queue=queue)

    async def audit(self, request: Request) -> Response:
        """What was done from here."""
        deeds = await asyncio.to_thread(read_audit, self._console.system)
        return self._console.page(request, "audit.html", deeds=deeds)

    async def confirm(self, request: Request) -> Response:
        """What an action would do, and the button that does it; in a dialog where a script asks for it."""
        asked = _asked(request.query_params)
        found = await asyncio.to_thread(preview, self._console.system, asked)
        is_part = request.headers.get("hx-request") == "true"
        return self._console.page(
            request,
            "confirm_part.html" if is_part else "confirm.html",
            preview=found,
            may=_somebody(request).may(asked.action),
            back=_local(request.query_params.get("back", "")),
        )

    async def act(self, request: Request) -> Response:
        """Do it, write it down, and go back."""
        form = await read_form(request, _LONGEST_FORM)
        asked, identity = _asked(form), _somebody(request)
        root, back = request.scope.get("root_path", ""), _local(str(form.get("back", "")))
        if not identity.may(asked.action):
            text = f"{identity.name} has the role {identity.role.name.lower()}, which may not do this"
            return self._console.page(request, "error.html", 403, error=text)
        outcome = await asyncio.to_thread(act, self._console.system, asked, identity.name)
        self._console.gallery.forget()
        mark = self._console.note(outcome)
        joint = "&" if "?" in back else "?"
        return RedirectResponse(f"{root}{back}{joint}{urlencode({'note': mark})}", 303)

    async def live(self, request: Request) -> Response:
        """What is to be seen on a page, again and again, as server-sent events."""
        path, query = request.query_params.get("path", ""), request.query_params.get("query", "")
        if path not in self._console.live_pages or len(query) > _LONGEST_QUERY:
            accepted = ", ".join(self._console.live_pages)
            raise InvalidArgument(f"path is {path[:60]!r}; accepted are {accepted}")
        topic = Topic(path, query, request.scope.get("root_path", ""), _somebody(request).role)

        async def events() -> AsyncIterator[str]:
            async for told in self._console.hub.watch(topic):
                yield f"event: picture\ndata: {json.dumps(told._asdict())}\n\n"

        return StreamingResponse(
            events(), media_type="text/event-stream", headers={"x-accel-buffering": "no"}
        )

    async def login(self, request: Request) -> Response:
        """Say who you are, with a token."""
        access, back = self._console.access, _local(request.query_params.get("back", ""))
        if request.method == "GET":
            return self._console.page(request, "login.html", problem=None, back=back)
        now_s = asyncio.get_running_loop().time()
        address = network_of(request.client.host if request.client else "")
        if access.is_throttled(address, now_s):
            problem = "too many wrong tokens from your address; try again in a minute"
            return self._console.page(request, "login.html", 429, problem=problem, back=back)
        form = await read_form(request, _LONGEST_FORM)
        session = access.log_in(str(form.get("token", "")).strip(), address, now_s)
        if session is None:
            return self._console.page(
                request, "login.html", 403, problem="this token is not known", back=back
            )
        root = request.scope.get("root_path", "")
        answer = RedirectResponse(f"{root}{_local(str(form.get('back', '')))}", 303)
        is_secure = request.url.scheme == "https"
        answer.set_cookie(
            COOKIE, session, httponly=True, samesite="strict", path=f"{root}/", secure=is_secure
        )
        return answer

    async def logout(self, request: Request) -> Response:
        """Forget who I am."""
        self._console.access.log_out(request.cookies.get(COOKIE))
        root = request.scope.get("root_path", "")
        answer = RedirectResponse(f"{root}/login", 303)
        answer.delete_cookie(COOKIE, path=f"{root}/")
        return answer


def _somebody(request: Request) -> Identity:
    identity = identity_of(request)
    if identity is None:
        raise InvalidArgument("a token is needed")  # the guard lets nobody in without one
    return identity


def _asked(values: FormData | QueryParams) -> Asked:
    get = values.get
    return Asked(str(get("action", "")), str(get("queue", "")), str(get("what", "")))


def _local(back: str) -> str:
    """A path on this console; what could lead elsewhere becomes its first page."""
    is_local = back.startswith("/") and not back.startswith("//") and back.isprintable()
    return back if is_local and "\\" not in back else "/"
