"""Links that were given up are closed at the server before anything else is sent to it.

A call that timed out is sent again on another link, while its first copy may still be on its way: in the
network, in a proxy, in the socket buffer of a server that was stopped. Scripts that know their calls by
number turn a late copy away; closing the old link keeps every late copy out, also of calls without a number.
A server that does not permit CLIENT INFO or CLIENT KILL is used without that. Pure; for sync and async pools.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable

from mqworker.store.command import Command

_MOST_NOTED = 256
_IDENTITY = re.compile(rb"(?:^| )id=(\d+) addr=(\S+) ")
_END_OF_UNIX_SOCKET = ":0"


class GivenUpLinks:
    """What is to be closed at one server. Threads may share it: each step is one operation of a dict."""

    def __init__(self) -> None:
        self._kills: dict[Command, None] = {}

    def note(self, kill: Command | None) -> None:
        """A link was given up while a request was under way."""
        if kill is None:
            return
        self._kills[kill] = None
        while len(self._kills) > _MOST_NOTED:
            with contextlib.suppress(StopIteration, RuntimeError):
                self._kills.pop(next(iter(self._kills)), None)

    def kills(self) -> list[Command]:
        """What has to run before anything else. Every caller sends it, until one of them was answered."""
        return list(self._kills)

    def forget(self, answered: Iterable[Command]) -> None:
        """These were carried out, or are not permitted."""
        for kill in answered:
            self._kills.pop(kill, None)


def introduction(client_name: str | None) -> list[Command]:
    """What is said on each new link, in one round trip; the last answer is for `kill_of`."""
    who_am_i: Command = ("CLIENT", "INFO")
    return [who_am_i] if client_name is None else [("CLIENT", "SETNAME", client_name), who_am_i]


def kill_of(who_i_am: object) -> Command | None:
    """The command that closes the link which was answered so; None when the server does not say.

    By number and address: a server that restarts counts from 1 again, and gives this number to another.
    """
    found = _IDENTITY.search(who_i_am) if isinstance(who_i_am, bytes) else None
    if found is None:
        return None
    return ("CLIENT", "KILL", "ID", found[1].decode(), "ADDR", found[2].decode(), "SKIPME", "yes")


def may_still_arrive(kill: Command | None, *, was_closed_by_server: bool) -> bool:
    """Whether a request can reach the server after its link broke.

    On a unix socket nothing lies between, so it was the server that hung up: it holds nothing of this link
    any more. It may have restarted, and all links there have one address: the number could be another's.
    """
    return not (was_closed_by_server and kill is not None and str(kill[5]).endswith(_END_OF_UNIX_SOCKET))
