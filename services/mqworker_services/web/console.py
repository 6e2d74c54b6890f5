"""What pages and API share: the system, the newest picture, and the answer to an error."""

from __future__ import annotations

import threading
from collections import OrderedDict
from secrets import token_urlsafe

from jinja2 import Environment
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from mqworker import __version__
from mqworker.errors import (
    InvalidArgument,
    MqworkerError,
    StoreFull,
    StoreRefused,
    StoreUnavailable,
    UnknownQueue,
)
from mqworker.operate.picture import Painter
from mqworker.operate.system import System, open_system
from mqworker.settings import Settings
from mqworker_services.web.access import Access, Identity, NotAllowed
from mqworker_services.web.hub import Gallery, Hub, Moment, Topic
from mqworker_services.web.rendering import environment

_MOST_NOTES = 100


class Console:
    """One console: its settings, its connection, its viewers."""

    def __init__(self, settings: Settings, access: Access) -> None:
        self.settings = settings
        self.access = access
        self.templates: Environment = environment()
        self.gallery = Gallery(lambda: Painter(self.system))
        self.hub = Hub(self.gallery, self._render_live)
        self._system: System | None = None
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

    def close(self) -> None:
        """Let go of viewers and of the server."""
        self.hub.close()
        if self._system is not None:
            self._system.store.close()

    def note(self, text: str) -> str:
        """Keep a sentence for the next page that somebody sees; its mark."""
        mark = token_urlsafe(9)
        self._notes[mark] = text
        while len(self._notes) > _MOST_NOTES:
            self._notes.popitem(last=False)
        return mark

    def page(self, request: Request, template: str, status: int = 200, **values: object) -> HTMLResponse:
        """A whole page."""
        shared = {
            "root": request.scope.get("root_path", ""),
            "identity": identity_of(request),
            "is_open": self.access.is_open,
            "namespace": self.settings.namespace,
            "version": __version__,
            "note": self._notes.pop(request.query_params.get("note", ""), None),
            "path": request.url.path.removeprefix(request.scope.get("root_path", "")),
            "words": "",
            "live": None,
            "status": status,
        }
        return HTMLResponse(self.templates.get_template(template).render(shared | values), status)

    def refusal(self, request: Request, error: MqworkerError) -> Response:
        """The answer to an error, as the asker can read it."""
        status = _status_of(request.method, error)
        if is_api(request):
            return JSONResponse({"error": str(error)}, status)
        return self.page(request, "error.html", status, error=str(error))

    def _render_live(self, topic: Topic, moment: Moment) -> str:
        values = {"moment": moment, "picture": moment.picture, "root": topic.root, "name": topic.name}
        return self.templates.get_template(f"{topic.page}_live.html").render(values)


def identity_of(request: Request) -> Identity | None:
    """Who asks, as the guard found; None on the page where one logs in."""
    found: Identity | None = request.scope.get("state", {}).get("identity")
    return found


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
        case UnknownQueue():
            return 404
        case StoreUnavailable() | StoreFull():
            return 503
        case StoreRefused():
            return 502
        case _:
            return 409 if method == "POST" else 404
