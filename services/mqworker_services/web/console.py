"""What pages and API share: the system, the newest picture, and the answer to an error."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from secrets import token_urlsafe
from urllib.parse import urlencode

from jinja2 import Environment
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from mqworker import __version__
from mqworker.errors import (
    InvalidArgument,
    MqworkerError,
    QueueFull,
    StoreFull,
    StoreRefused,
    StoreUnavailable,
    UnknownQueue,
    UnknownTask,
)
from mqworker.operate.calls import Caller
from mqworker.operate.picture import Painter
from mqworker.operate.system import System, open_system
from mqworker.settings import Settings
from mqworker_services.web.access import Access, Identity, NotAllowed, Role
from mqworker_services.web.hub import Gallery, Hub, Topic
from mqworker_services.web.rendering import environment

HTTP_OK = 200
_MOST_NOTES = 100

LivePage = Callable[[Request], Awaitable[Response]]


class Console:
    """One console: its settings, its connection, its viewers."""

    def __init__(self, settings: Settings, access: Access) -> None:
        self.settings = settings
        self.access = access
        self.templates: Environment = environment()
        self.gallery = Gallery(lambda: Painter(self.system))
        self.hub = Hub(self._render_live, self._tell_outage)
        self.live_pages: dict[str, LivePage] = {}
        """Those that are live, by their path; filled by who has the pages."""
        self._system: System | None = None
        self._caller: Caller | None = None
        self._opening = threading.Lock()
        self._notes: OrderedDict[str, str] = OrderedDict()

    @property
    def system(self) -> System:
        """Opened when it is needed first: the console starts while Redis is away, too."""
        with self._opening:
            if self._system is None:
                # No patience: an outage is something to see at once.
                self._system = open_system(self.settings, client_name="mqworker-console", retry_for_ms=0)
            return self._system

    @property
    def caller(self) -> Caller:
        """Who calls tasks by name; opened when it is needed first."""
        with self._opening:
            if self._caller is None:
                self._caller = Caller(self.settings)
            return self._caller

    def close(self) -> None:
        """Let go of viewers and of the server."""
        self.hub.close()
        if self._system is not None:
            self._system.store.close()
        if self._caller is not None:
            self._caller.close()

    def note(self, text: str) -> str:
        """Keep a sentence for the next page that somebody sees; its mark."""
        mark = token_urlsafe(9)
        self._notes[mark] = text
        while len(self._notes) > _MOST_NOTES:
            self._notes.popitem(last=False)
        return mark

    def page(self, request: Request, template: str, status: int = 200, **values: object) -> HTMLResponse:
        """A whole page."""
        path = request.url.path.removeprefix(request.scope.get("root_path", ""))
        is_part = request.scope.get("state", {}).get("is_part", False)
        shared = {
            "layout": "part.html" if is_part else "base.html",
            "root": request.scope.get("root_path", ""),
            "identity": identity_of(request),
            "is_open": self.access.is_open,
            "namespace": self.settings.namespace,
            "version": __version__,
            "note": self._notes.pop(request.query_params.get("note", ""), None),
            "path": path,
            "words": "",
            "live": _live_place(path, request) if path in self.live_pages and status == HTTP_OK else None,
            "status": status,
        }
        return HTMLResponse(self.templates.get_template(template).render(shared | values), status)

    def refusal(self, request: Request, error: MqworkerError) -> Response:
        """The answer to an error, as the asker can read it."""
        status = _status_of(request.method, error)
        if is_api(request):
            return JSONResponse({"error": str(error)}, status)
        return self.page(request, "error.html", status, error=str(error))

    async def _render_live(self, topic: Topic) -> str:
        """The page as its own handler makes it, without what stands around it."""
        request = Request(
            {
                "type": "http",
                "method": "GET",
                "path": f"{topic.root}{topic.path}",
                "root_path": topic.root,
                "query_string": topic.query.encode(),
                "headers": [],
                "state": {"identity": Identity("", Role(topic.role)), "is_part": True},
            }
        )
        try:
            answer = await self.live_pages[topic.path](request)
        except StoreUnavailable:
            raise  # the hub has the last picture
        except MqworkerError as error:  # what it was about is gone
            answer = self.refusal(request, error)
        return bytes(answer.body).decode()

    def _tell_outage(self, trouble: str, age_s: float | None) -> str:
        age_ms = None if age_s is None else age_s * 1000
        return self.templates.get_template("outage.html").render(trouble=trouble, age_ms=age_ms)


def identity_of(request: Request) -> Identity | None:
    """Who asks, as the guard found; None on the page where one logs in."""
    found: Identity | None = request.scope.get("state", {}).get("identity")
    return found


def _live_place(path: str, request: Request) -> str:
    """Where the events of this very page come from."""
    query = urlencode([(name, value) for name, value in request.query_params.multi_items() if name != "note"])
    return f"/live?{urlencode({'path': path, 'query': query})}"


def is_api(request: Request) -> bool:
    """Whether a program asks."""
    path: str = request.url.path
    return path.removeprefix(request.scope.get("root_path", "")).startswith("/api/")


def _status_of(method: str, error: MqworkerError) -> int:
    match error:
        case InvalidArgument():
            return 400
        case NotAllowed():
            return 403
        case UnknownQueue() | UnknownTask():
            return 404
        case QueueFull():
            return 503
        case StoreUnavailable() | StoreFull():
            return 503
        case StoreRefused():
            return 502
        case _:
            return 409 if method == "POST" else 404
