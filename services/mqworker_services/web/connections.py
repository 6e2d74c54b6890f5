"""Connections of the console: strangers are few for each address, and do not stay.

A server of HTTP waits for a request as long as a client likes. So one machine that says nothing could take
every place there is, and those who have tokens would be told to come again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from uvicorn.protocols.http.h11_impl import H11Protocol

from mqworker.gateway import network_of, peer_host

KNOWN = "mqworker.known"
"""In the state of a request's scope: what the guard calls once it knows who asks."""
MOST_STRANGERS = 50
"""Of one address, or of one network of IPv6; a browser opens six. One more, and the oldest makes room."""
STRANGER_S = 10.0
"""From connecting; a connection on which somebody showed a token stays as long as it likes."""


class Strangers:
    """Connections on which nobody has shown yet who it is, by address, the oldest first."""

    def __init__(self) -> None:
        self._deadlines_by_address: dict[str, dict[asyncio.Transport, asyncio.TimerHandle]] = {}

    def welcome(self, transport: asyncio.Transport) -> Callable[[], None]:
        """One more; what is to be called when it is known, or gone."""
        address = network_of(peer_host(transport))
        deadlines = self._deadlines_by_address.setdefault(address, {})
        deadlines[transport] = asyncio.get_running_loop().call_later(STRANGER_S, transport.abort)
        if len(deadlines) > MOST_STRANGERS:
            oldest = next(iter(deadlines))
            self._forget(address, oldest)
            oldest.abort()
        return partial(self._forget, address, transport)

    def _forget(self, address: str, transport: asyncio.Transport) -> None:
        deadlines = self._deadlines_by_address.get(address, {})
        if (deadline := deadlines.pop(transport, None)) is not None:
            deadline.cancel()
        if not deadlines:
            self._deadlines_by_address.pop(address, None)


def connections_of(strangers: Strangers) -> type[H11Protocol]:
    """The protocol of a server that knows these strangers."""

    class ConsoleConnection(H11Protocol):
        """One connection."""

        _leave: Callable[[], None] = staticmethod(lambda: None)

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as its base
            super().connection_made(transport)
            self._leave = strangers.welcome(transport)
            self.app_state = {**self.app_state, KNOWN: self._leave}

        def connection_lost(self, exc: Exception | None) -> None:
            self._leave()
            super().connection_lost(exc)

    return ConsoleConnection
