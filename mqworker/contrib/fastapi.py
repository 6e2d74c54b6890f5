"""For FastAPI and Starlette: the lifespan of the producer, a health route, and the console under a path.

web = FastAPI(lifespan=producer_lifespan(tasks))
web.add_route("/health", health_route(tasks))
mount_console(web, tasks)
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any

from mqworker.contrib.health import problem_with_redis
from mqworker.errors import ConfigurationError
from mqworker.tasks.app import App

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse

# Any: a Starlette application, or what is built on it; its own lifespan may yield anything.
Lifespan = Callable[[Any], AbstractAsyncContextManager[Any]]


def producer_lifespan(tasks: App, inner: Lifespan | None = None) -> Lifespan:
    """A lifespan for the web application that closes the connections of the producer at its end.

    They open when first needed, in each process of the server. `inner` is a lifespan of your own.
    """

    @asynccontextmanager
    async def lifespan(web: Any) -> AsyncIterator[Any]:  # noqa: ANN401 - see above
        try:
            if inner is None:
                yield
            else:
                async with inner(web) as state:
                    yield state
        finally:
            await tasks.aclose()
            await asyncio.to_thread(tasks.close)

    return lifespan


def health_route(tasks: App) -> Callable[[Request], Awaitable[JSONResponse]]:
    """A route that answers 200 while Redis answers, and 503 with the reason while it does not."""

    async def health(_request: Request) -> JSONResponse:
        from starlette.responses import JSONResponse  # noqa: PLC0415 - an extra

        problem = await asyncio.to_thread(problem_with_redis, tasks)
        status = {"redis": "ok"} if problem is None else {"redis": "away", "problem": problem}
        return JSONResponse(status, status_code=200 if problem is None else 503)

    return health


def mount_console(web: Starlette, tasks: App, path: str = "/mqworker") -> None:
    """Serve the console below `path` of the web application; whoever may see that must be who it lets in.

    Needs the extra `web`.
    """
    try:
        from mqworker_services.web.asgi import console  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ConfigurationError("the console needs more: pip install 'mqworker[web]'") from error
    web.mount(path, console(tasks.settings))
