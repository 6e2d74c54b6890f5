"""A quick look at a plain server: a bare socket and hiredis, for a command that must answer at once.

redis-py takes 130 ms to import, more than everything else in `mqworker status` together. This speaks only to
one server without TLS, repeats nothing and explains nothing: on any trouble it raises `NoQuickLook`, and the
caller takes the full store, which knows what to do and how to say it.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Any, TypeAlias, cast

import hiredis

from mqworker.store.command import Command, Reply, ReplyError, pack
from mqworker.store.exchange import Exchange, LanePool
from mqworker.store.link.address import ServerAddress, Standalone, UnixSocket
from mqworker.store.script import Call

_CHUNK_BYTES = 65_536

PlainAddress: TypeAlias = Standalone | UnixSocket


class NoQuickLook(Exception):
    """Take the full store."""


class QuickLook:
    """Reads from one server over one link of its own."""

    def __init__(self, address: ServerAddress, *, connect_timeout_s: float, read_timeout_s: float) -> None:
        self._reader = hiredis.Reader()
        try:
            self._socket = _open(address, connect_timeout_s)
            self._socket.settimeout(read_timeout_s)
        except OSError as error:
            raise NoQuickLook from error
        self._exchange(_greeting(cast("PlainAddress", address)))  # _open took no other

    def send(self, commands: Sequence[Command], key: str | None) -> list[Reply]:
        """Send plain commands that only read, in one round trip."""
        del key  # one server owns them all
        return self._exchange(commands)

    # Any: each result has the type of its call.
    def run_together(self, calls: Sequence[Call[Any]]) -> list[Any]:
        """Run scripts that only read in one round trip."""
        exchange = Exchange(calls, LanePool())
        while not exchange.take_replies(self._exchange(exchange.commands())):
            pass
        return exchange.results()

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def _exchange(self, commands: Sequence[Command]) -> list[Reply]:
        try:
            if commands:
                self._socket.sendall(pack(commands))
            return [_answer(self._next()) for _ in commands]
        except (OSError, hiredis.HiredisError) as error:
            self._socket.close()
            raise NoQuickLook from error

    def _next(self) -> object:
        while True:
            reply: object = self._reader.gets()
            if reply is not False:  # hiredis says so when more bytes are needed
                return reply
            received = self._socket.recv(_CHUNK_BYTES)
            if not received:
                raise ConnectionResetError
            self._reader.feed(received)


def _open(address: ServerAddress, timeout_s: float) -> socket.socket:
    match address:
        case Standalone(place, tls=None):
            return socket.create_connection((place.host, place.port), timeout_s)
        case UnixSocket(path):
            link = socket.socket(socket.AF_UNIX)
            link.settimeout(timeout_s)
            try:
                link.connect(path)
            except OSError:
                link.close()
                raise
            return link
        case _:
            raise NoQuickLook


def _greeting(address: PlainAddress) -> list[Command]:
    user, password = address.credentials.user, address.credentials.password
    commands: list[Command] = []
    if password is not None:
        commands.append(("AUTH", password) if user is None else ("AUTH", user, password))
    if address.db:
        commands.append(("SELECT", address.db))
    return commands


def _answer(reply: object) -> Reply:
    if not isinstance(reply, hiredis.ReplyError):
        return cast("Reply", reply)  # hiredis hands out nothing else for RESP2
    code, _, text = str(reply).partition(" ")
    if code == "NOSCRIPT":
        return ReplyError(code, text)
    raise reply
