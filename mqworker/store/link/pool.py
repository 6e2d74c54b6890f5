"""One server and the pooled links to it, sync: commands in one write, their replies in one list.

Each concurrent caller has a link of its own; idle links wait in a list, whose `pop` and `append` are atomic,
so that threads need no lock. A link is put back only when every reply was read. Nothing is ever sent twice,
and a link that was given up is closed at the server first (given_up_links.py).
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Protocol, cast

import hiredis
from redis import exceptions
from redis.backoff import NoBackoff
from redis.connection import Connection, SSLConnection, UnixDomainSocketConnection
from redis.retry import Retry

from mqworker.model.clock import SystemClock
from mqworker.store.command import Command, pack
from mqworker.store.link.address import HostPort
from mqworker.store.link.given_up_links import GivenUpLinks, introduction, kill_of, may_still_arrive
from mqworker.store.link.options import Access, Limits, Place, link_options
from mqworker.store.link.plain_probe import speaks_plainly
from mqworker.store.link.server_errors import (
    REPLY_ERRORS,
    ServerName,
    connect_trouble,
    has_lost_primary,
    is_hang_up,
    link_trouble,
)

LINK_ERRORS = (exceptions.RedisError, OSError)
_monotonic_s = SystemClock().monotonic_s

# redis-py keeps its socket and its parser under these names since long ago; nothing public leads there. Its
# own way to look whether anything came costs an exception and three system calls, on the way to every task.
socket_of = cast("Callable[[Link], socket.socket]", attrgetter("_sock"))
reader_of = cast("Callable[[Link], hiredis.Reader]", attrgetter("_parser._reader"))

IDLE_AFTER_S = 0.0005
"""A link that was in use a shorter time ago is not looked at: no server restarts as quickly."""


class Link(Protocol):
    """What we use of redis-py's connections, with the types that they lack, and one fact that we add."""

    kill: Command | None
    """What closes the link at the server, where that is permitted."""

    def connect(self) -> None:
        """Open the socket, authenticate, select the database."""

    def disconnect(self) -> None:
        """Close the socket; in a child, only the child's copy of it."""

    def can_read(self, timeout: float) -> bool:
        """Whether anything waits to be read; raises when the server closed the link."""

    def send_packed_command(self, command: Sequence[bytes], *, check_health: bool) -> None:
        """Write it all."""

    def read_response(self, *, disconnect_on_error: bool) -> object:
        """One reply; error replies are raised."""


def open_link(place: Place, access: Access, limits: Limits, name: ServerName) -> Link:
    """A connected and authenticated link; StoreUnavailable or StoreRefused when there is none to be had."""
    options = link_options(place, access, limits) | {"retry": Retry(NoBackoff(), 0)}
    kind: Callable[..., object] = SSLConnection if access.tls else Connection
    if isinstance(place, str):
        kind = UnixDomainSocketConnection
    link = cast("Link", kind(**options))  # redis-py's own types are partial
    try:
        link.connect()
        link.kill = _introduce(link, introduction(limits.client_name))
    except LINK_ERRORS as error:
        link.disconnect()
        is_plain = access.tls is not None and not is_hang_up(error) and speaks_plainly(place)
        may_want_tls = access.tls is None and isinstance(place, HostPort)
        raise connect_trouble(error, name, may_want_tls=may_want_tls, speaks_plainly=is_plain) from error
    except BaseException:
        link.disconnect()
        raise
    return link


def _introduce(link: Link, commands: Sequence[Command]) -> Command | None:
    link.send_packed_command((pack(commands),), check_health=False)
    answer: object = None
    for _ in commands:
        try:
            answer = link.read_response(disconnect_on_error=False)
        except REPLY_ERRORS:
            answer = None  # not permitted: a late copy is known by its number then, or not at all
    return kill_of(answer)


class LinkPool:
    """The links to one server."""

    def __init__(self, name: ServerName, connect: Callable[[], Link]) -> None:
        self.name = name
        self.connect = connect
        self._idle: list[tuple[Link, float]] = []
        """With the instant of the last use."""
        self._given_up = GivenUpLinks()
        self._pid = os.getpid()
        self._is_closed = False

    def exchange(self, commands: Sequence[Command]) -> list[object]:
        """Send all commands at once and read all replies; an error reply is an exception in the list."""
        link = self._take()
        kills = self._given_up.kills()
        packed = pack([*kills, *commands] if kills else commands)
        raw: list[object] = []
        has_errors = False
        try:
            link.send_packed_command((packed,), check_health=False)
            if kills:
                self._read_answers_to(kills, link)
            for _ in commands:
                try:
                    raw.append(link.read_response(disconnect_on_error=False))
                except REPLY_ERRORS as error:
                    raw.append(error)
                    has_errors = True
        except LINK_ERRORS as error:
            self._give_up(link, error)
            # The other links lead to the same server: better to ask anew where it is than to fail on each.
            self.forget_links()
            raise link_trouble(error, self.name) from error
        except BaseException:
            # An interrupt between request and reply: the next caller would read our replies.
            self._give_up(link, None)
            raise
        if has_errors and has_lost_primary(raw):
            link.disconnect()
            self.forget_links()
        else:
            self._give_back(link)
        return raw

    def forget_links(self) -> None:
        """Close what is idle; the next call opens a new link, and looks up the server for it."""
        with contextlib.suppress(IndexError):
            while True:
                self._idle.pop()[0].disconnect()

    def close(self) -> None:
        """Close the idle links; a link in use is closed by its caller."""
        self._is_closed = True
        self._leave_after_fork()
        self.forget_links()

    def _take(self) -> Link:
        self._leave_after_fork()
        while True:
            try:
                link, used_at_s = self._idle.pop()
            except IndexError:
                return self.connect()
            if _monotonic_s() - used_at_s < IDLE_AFTER_S or _is_usable(link):
                return link
            link.disconnect()

    def _give_up(self, link: Link, error: Exception | None) -> None:
        if may_still_arrive(link.kill, was_closed_by_server=is_hang_up(error)):
            self._given_up.note(link.kill)
        link.disconnect()

    def _read_answers_to(self, kills: list[Command], link: Link) -> None:
        for _ in kills:
            with contextlib.suppress(*REPLY_ERRORS):  # not permitted
                link.read_response(disconnect_on_error=False)
        self._given_up.forget(kills)

    def _give_back(self, link: Link) -> None:
        self._idle.append((link, _monotonic_s()))
        if self._is_closed:
            self.forget_links()

    def _leave_after_fork(self) -> None:
        """A child drops its parent's links: redis-py then closes the child's copies and tells no server."""
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._idle = []


def _is_usable(link: Link) -> bool:
    """Whether the server still holds an idle link open: costs some µs, saves a failed call per restart."""
    try:
        return not link.can_read(0)
    except LINK_ERRORS:
        return False
