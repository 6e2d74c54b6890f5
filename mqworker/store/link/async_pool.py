"""One server and the pooled links to it, for asyncio: `pool.py` with awaits, under the same rules.

Links belong to the event loop that opened them; under another loop (a second `asyncio.run`) new ones are
opened. A call that is cancelled drops its link, because replies to it may still come. The time-out is ours
and spans a whole exchange: redis-py's is built on `asyncio.wait_for`, which loses cancellations before 3.12.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, cast

from redis.asyncio.connection import Connection, SSLConnection, UnixDomainSocketConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from mqworker.store.command import Command, pack
from mqworker.store.link.address import HostPort
from mqworker.store.link.given_up_links import GivenUpLinks, introduction, kill_of, may_still_arrive
from mqworker.store.link.options import Access, Limits, Place, link_options
from mqworker.store.link.plain_probe import speaks_plainly_async
from mqworker.store.link.pool import LINK_ERRORS
from mqworker.store.link.server_errors import (
    REPLY_ERRORS,
    ServerName,
    connect_trouble,
    has_lost_primary,
    is_hang_up,
    link_trouble,
)


class AsyncLink(Protocol):
    """What we use of redis-py's asyncio connections, with types that they lack, and one fact that we add."""

    kill: Command | None
    """What closes the link at the server, where that is permitted."""

    async def connect(self) -> None:
        """Open the socket, authenticate, select the database."""

    async def disconnect(self, *, nowait: bool) -> None:
        """Close the socket."""

    async def can_read(self) -> bool:
        """Whether anything waits to be read, the end of the link included."""

    async def send_packed_command(self, command: bytes, *, check_health: bool) -> None:
        """Write it all."""

    async def read_response(self, *, disconnect_on_error: bool) -> object:
        """One reply; error replies are raised."""


async def open_async_link(place: Place, access: Access, limits: Limits, name: ServerName) -> AsyncLink:
    """A connected and authenticated link; StoreUnavailable or StoreRefused when there is none to be had."""
    options = link_options(place, access, limits) | {"retry": Retry(NoBackoff(), 0), "socket_timeout": None}
    kind: Callable[..., object] = SSLConnection if access.tls else Connection
    if isinstance(place, str):
        kind = UnixDomainSocketConnection
    link = cast("AsyncLink", kind(**options))  # redis-py's own types are partial
    try:
        async with asyncio.timeout(limits.connect_timeout_s + limits.read_timeout_s):
            await link.connect()
            commands = introduction(limits.client_name)
            await link.send_packed_command(pack(commands), check_health=False)
            link.kill = kill_of([await _read(link) for _ in commands][-1])
    except LINK_ERRORS as error:
        await link.disconnect(nowait=True)
        is_plain = access.tls is not None and not is_hang_up(error) and await speaks_plainly_async(place)
        may_want_tls = access.tls is None and isinstance(place, HostPort)
        raise connect_trouble(error, name, may_want_tls=may_want_tls, speaks_plainly=is_plain) from error
    except BaseException:
        await link.disconnect(nowait=True)
        raise
    return link


class AsyncLinkPool:
    """The links to one server."""

    def __init__(
        self, name: ServerName, read_timeout_s: float, connect: Callable[[], Awaitable[AsyncLink]]
    ) -> None:
        self.name = name
        self._read_timeout_s = read_timeout_s
        self._connect = connect
        self._idle: list[AsyncLink] = []
        self._abandoned: list[AsyncLink] = []
        self._given_up = GivenUpLinks()
        self._owner: tuple[int, asyncio.AbstractEventLoop] | None = None
        self._is_closed = False

    async def exchange(self, commands: Sequence[Command]) -> list[object]:
        """Send all commands at once and read all replies; an error reply is an exception in the list."""
        link = await self._take()
        kills = self._given_up.kills()
        packed = pack([*kills, *commands] if kills else commands)
        try:
            async with asyncio.timeout(self._read_timeout_s):
                await link.send_packed_command(packed, check_health=False)
                for _ in kills:
                    await _read(link)
                self._given_up.forget(kills)
                raw = [await _read(link) for _ in commands]
        except LINK_ERRORS as error:
            await self._give_up(link, error)
            await self.forget_links()
            raise link_trouble(error, self.name) from error
        except BaseException:
            await self._give_up(link, None)
            raise
        if has_lost_primary(raw):
            await link.disconnect(nowait=True)
            await self.forget_links()
        else:
            await self._give_back(link)
        return raw

    async def forget_links(self) -> None:
        """Close what is idle; the next call opens a new link, and looks up the server for it."""
        while self._idle:
            # RuntimeError: the event loop of the link was closed before it.
            with contextlib.suppress(RuntimeError):
                await self._idle.pop().disconnect(nowait=True)

    async def close(self) -> None:
        """Close the idle links; a link in use is closed by its caller."""
        self._is_closed = True
        await self._leave_foreign_links()
        while self._idle:
            # Waited for: TLS takes a few turns of the loop to close, and the loop may end after this.
            with contextlib.suppress(*LINK_ERRORS):
                await self._idle.pop().disconnect(nowait=False)

    async def _take(self) -> AsyncLink:
        await self._leave_foreign_links()
        while self._idle:
            link = self._idle.pop()
            if await _is_usable(link):
                return link
            await link.disconnect(nowait=True)
        return await self._connect()

    async def _give_up(self, link: AsyncLink, error: Exception | None) -> None:
        if may_still_arrive(link.kill, was_closed_by_server=is_hang_up(error)):
            self._given_up.note(link.kill)
        await link.disconnect(nowait=True)

    async def _give_back(self, link: AsyncLink) -> None:
        self._idle.append(link)
        if self._is_closed:
            await self.forget_links()

    async def _leave_foreign_links(self) -> None:
        previous, self._owner = self._owner, (os.getpid(), asyncio.get_running_loop())
        if previous == self._owner or previous is None:
            return
        if previous[0] != os.getpid():
            # The parent's. Closing them, or letting them be collected, would take their descriptors out of
            # the parent's selector, which a fork shares.
            self._abandoned += self._idle
            self._idle = []
        await self.forget_links()


async def _read(link: AsyncLink) -> object:
    try:
        return await link.read_response(disconnect_on_error=False)
    except REPLY_ERRORS as error:
        return error


async def _is_usable(link: AsyncLink) -> bool:
    try:
        return not await link.can_read()
    except LINK_ERRORS:
        return False
