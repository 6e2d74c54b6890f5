"""The console as an ASGI app, to be served alone (`mqworker web`) or mounted into another application.

app.mount("/jobs", console())          # FastAPI or Starlette; who may come in is that application's matter
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles

from mqworker.errors import MqworkerError
from mqworker.settings import Settings, load_settings
from mqworker_services.web.access import Access
from mqworker_services.web.api import Api
from mqworker_services.web.console import Console
from mqworker_services.web.finding import Finding
from mqworker_services.web.guard import Guard
from mqworker_services.web.pages import Pages
from mqworker_services.web.rendering import HERE
from mqworker_services.web.system_pages import SystemPages

HTTP_NOT_FOUND = 404
_SMALLEST_GZIP_BYTES = 1_000


def console(
    settings: Settings | None = None, *, access: Access | None = None, hosts: Iterable[str] = ()
) -> Starlette:
    """The app. Without `access` all who reach it are administrators; without `hosts` any name fits."""
    made = Console(settings or load_settings(), access or Access())
    finding = Finding(made)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        finding.close()
        made.close()

    async def refuse(request: Request, error: Exception) -> Response:
        if not isinstance(error, MqworkerError):
            raise error
        return made.refusal(request, error)

    async def not_found(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        text = "there is no such page" if status == HTTP_NOT_FOUND else "this is not how it is asked for"
        return made.page(request, "error.html", status, error=text)

    app = Starlette(
        routes=[
            *Pages(made).routes,
            *SystemPages(made).routes,
            *Api(made).routes,
            *finding.routes,
            Mount("/static", StaticFiles(directory=HERE / "static"), name="static"),
        ],
        middleware=[
            Middleware(Guard, access=made.access, hosts=frozenset(hosts)),
            # Server-sent events are left alone: Starlette knows their type.
            Middleware(GZipMiddleware, minimum_size=_SMALLEST_GZIP_BYTES, compresslevel=5),
        ],
        exception_handlers={MqworkerError: refuse, HTTPException: not_found},
        lifespan=lifespan,
    )
    app.state.console = made
    return app
