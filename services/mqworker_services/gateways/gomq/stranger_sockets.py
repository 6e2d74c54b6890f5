"""Sockets of strangers: connections to the gRPC server on which nobody has shown yet who it is.

grpcio neither tells nor counts nor ends its connections, and waits for a silent one for minutes. So the
process looks at its own sockets: what was accepted at our port and belongs to nobody known is shut down after
the deadline, and so are the newest of an address that has too many. Where /dev/fd is missing nothing is done.
"""

from __future__ import annotations

import os
import socket
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import unquote

from mqworker.gateway import network_of

_DESCRIPTORS = "/dev/fd"
_MAPPED = "::ffff:"

Peer = tuple[str, int]


@dataclass(slots=True)
class _Socket:
    descriptor: int
    peer: Peer | None
    """None: no connection of a client."""
    seen_at_s: float
    is_known: bool = False


class StrangerSockets:
    """The connections to one port. Call `know` for who has shown itself, and `sweep` now and then."""

    def __init__(self, port: int, most_of_one_address: int, deadline_s: float) -> None:
        self._port = port
        self._most = most_of_one_address
        self._deadline_s = deadline_s
        self._by_inode: dict[int, _Socket] = {}
        self._known: set[Peer] = set()

    def know(self, told: str) -> None:
        """Who calls from there, as grpcio tells it, has shown who it is."""
        peer = _peer_of(told)
        if peer is not None:
            self._known.add(peer)

    def sweep(self, now_s: float) -> int:
        """Look at all sockets; how many were shut down."""
        self._look(now_s)
        strangers = [each for each in self._by_inode.values() if each.peer is not None and not each.is_known]
        count_by_address: Counter[str] = Counter()
        ended = 0
        for each in sorted(strangers, key=lambda each: each.seen_at_s):
            address = network_of(each.peer[0] if each.peer else "")
            count_by_address[address] += 1
            is_late = now_s - each.seen_at_s > self._deadline_s
            if is_late or count_by_address[address] > self._most:
                ended += _shut_down(each)
        return ended

    def _look(self, now_s: float) -> None:
        current: dict[int, _Socket] = {}
        with suppress(OSError):
            for name in os.listdir(_DESCRIPTORS):  # noqa: PTH208 - names alone, thousands of them
                with suppress(OSError, ValueError):
                    inode = os.fstat(int(name)).st_ino
                    current[inode] = self._by_inode.get(inode) or self._new(int(name), now_s)
        for each in current.values():
            each.is_known = each.is_known or each.peer in self._known
        self._by_inode, self._known = current, set()

    def _new(self, descriptor: int, now_s: float) -> _Socket:
        with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as found:
            if found.family in {socket.AF_INET, socket.AF_INET6} and found.getsockname()[1] == self._port:
                return _Socket(descriptor, _plain(*found.getpeername()[:2]), now_s)
        return _Socket(descriptor, None, now_s)


def _shut_down(each: _Socket) -> int:
    """Only if the descriptor still leads to the same peer: grpcio may have closed it meanwhile."""
    with suppress(OSError), socket.socket(fileno=os.dup(each.descriptor)) as found:
        if _plain(*found.getpeername()[:2]) == each.peer:
            found.shutdown(socket.SHUT_RDWR)
            return 1
    return 0


def _peer_of(told: str) -> Peer | None:
    """('127.0.0.1', 46354) for `ipv4:127.0.0.1:46354`, ('::1', 49806) for `ipv6:%5B::1%5D:49806`."""
    scheme, _, address = unquote(told).partition(":")
    host, _, port = address.rpartition(":")
    return _plain(host.strip("[]"), int(port)) if scheme in {"ipv4", "ipv6"} and port.isdecimal() else None


def _plain(host: str, port: int) -> Peer:
    return host.partition("%")[0].removeprefix(_MAPPED), port
