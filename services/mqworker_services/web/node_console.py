"""The console as a child of a node (`mqworker run --web`): served on the loop of its process."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mqworker.errors import ConfigurationError
from mqworker.gateway import GatewayOptions, NodeClient
from mqworker.settings import Settings
from mqworker_services.web.server import console_app, parse_listen, uvicorn_config

_REFUSED = {401, 403, 421, 429}


class NodeConsole:
    """What a gateway is to its process, around the console."""

    name = "web"

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._listen = settings.web or "127.0.0.1:8780"
        self._app = console_app(settings, self._listen, ())
        self._tally = Tally(self._app)
        self._server = _QuietServer(uvicorn_config(self._tally))
        self._serving: asyncio.Task[None] | None = None

    async def open(self, node: NodeClient, options: GatewayOptions) -> None:
        """Listen; a place that is taken is a ConfigurationError which names it."""
        del node, options
        host, port = parse_listen(self._listen)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            listener = socket.create_server((host, port), family=family)
        except OSError as error:
            raise ConfigurationError(f"web: cannot listen at {self._listen}: {error.strerror}") from error
        self._serving = asyncio.create_task(self._server.serve(sockets=[listener]))

    async def close(self, grace_ms: int) -> None:
        """Let go of viewers, answer what was asked, end."""
        self._app.state.console.hub.close()
        self._server.should_exit = True
        if self._serving is not None:
            await asyncio.wait([self._serving], timeout=max(0.1, grace_ms / 1000))

    def facts(self) -> dict[str, Any]:
        """For the status screen; open tabs are its clients."""
        return {
            "listens": self._listen,
            "connections": self._app.state.console.hub.viewers,
            "in": self._tally.asked,
            "out": self._tally.answered,
            "refused": self._tally.refused,
        }


class Tally:
    """Counts what comes in and goes out."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.asked = self.answered = self.refused = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass it on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def count(message: Message) -> None:
            if message["type"] == "http.response.start":
                self.answered += 1
                self.refused += message["status"] in _REFUSED
            await send(message)

        self.asked += 1
        await self._app(scope, receive, count)


class _QuietServer(uvicorn.Server):
    """A server that leaves signals alone: the supervisor says when to stop."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Not here."""
        yield
