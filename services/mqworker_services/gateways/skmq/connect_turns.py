"""Turns to connect: pushes to one recipient go as fast as it accepts connections, however many wait for it.

A recipient that serves one connection after another has room for a few that wait (its backlog). More than
that at once, and the system drops some of the attempts and tries again ever more slowly, until they time out:
the recipient would seem to be gone, although it is only busy.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

AT_ONCE = 4
"""Attempts to connect to one recipient."""
SLOW_S = 0.5
"""An attempt that takes so long was dropped and repeated: the system waits a second before it does that."""


@dataclass(slots=True)
class _Recipient:
    """One address, as long as somebody wants to connect or is connected."""

    turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))
    users: int = 0
    connecting: int = 0
    connected: int = 0
    room: float = math.inf
    """How many it took at once lately; unknown until it was too many."""
    freed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def is_full(self) -> bool:
        """Whether one more would find no place; one is always tried."""
        return self.connected + self.connecting >= self.room and self.connected > 0

    def learn(self, took_s: float) -> None:
        """One was accepted: soon, or only when there was room again."""
        if took_s >= SLOW_S:
            self.room = max(1.0, self.connected)
        else:
            self.room += 1 / self.room


class ConnectTurns:
    """For all recipients of a gateway."""

    def __init__(self) -> None:
        self._recipients: dict[str, _Recipient] = {}

    @asynccontextmanager
    async def turn(self, address: str) -> AsyncIterator[None]:
        """Wait until this one may try to connect."""
        recipient = self._enter(address)
        try:
            async with recipient.turns:
                while recipient.is_full:
                    await _next(recipient.freed)
                recipient.connecting += 1
                try:
                    yield
                finally:
                    recipient.connecting -= 1
        finally:
            self._leave(address, recipient)

    def connected(self, address: str, took_s: float) -> None:
        """A push was accepted."""
        recipient = self._enter(address)
        recipient.learn(took_s)
        recipient.connected += 1

    def freed(self, address: str) -> None:
        """A push that was accepted is over."""
        recipient = self._recipients.get(address)
        if recipient is not None and recipient.connected:
            recipient.connected -= 1
            recipient.freed.set()
            self._leave(address, recipient)

    async def wait_while_busy(self, address: str) -> bool:
        """Whether others are connected there, so that it lives; over when one of them is done."""
        recipient = self._recipients.get(address)
        if recipient is None or not recipient.connected:
            return False
        await _next(recipient.freed)
        return True

    def _enter(self, address: str) -> _Recipient:
        recipient = self._recipients.setdefault(address, _Recipient())
        recipient.users += 1
        return recipient

    def _leave(self, address: str, recipient: _Recipient) -> None:
        recipient.users -= 1
        if not recipient.users:
            self._recipients.pop(address, None)


async def _next(event: asyncio.Event) -> None:
    event.clear()
    await event.wait()
