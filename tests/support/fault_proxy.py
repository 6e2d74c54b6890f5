"""A TCP proxy with the faults of real networks: resets, black holes, slices, delays and lost replies."""

from __future__ import annotations

import contextlib
import itertools
import selectors
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from types import TracebackType
from typing import Self

_CHUNK_BYTES = 65_536
_REPLY_DEADLINE_S = 10.0
_LINGER_NOT = struct.pack("ii", 1, 0)


class Mode(Enum):
    """What happens to bytes."""

    PASS = auto()
    BLACKHOLE = auto()
    """They vanish, and nobody is told."""
    SLICES = auto()
    """Replies arrive one byte at a time."""
    HALF_CLOSED = auto()
    """Requests pass, replies do not: the server's side is shut."""


@dataclass
class HeldRequest:
    """A request that is on its way for a long time, and the link to the server on which it is."""

    data: bytes
    link: socket.socket
    since_s: float


class FaultProxy:
    """Stands between clients and a server on loopback; one thread per link. Harmless until told otherwise."""

    def __init__(self, server_port: int, *, delay_s: float = 0.0, lose_every: int = 0) -> None:
        """With `lose_every=n` each n-th reply is lost: the link is closed instead."""
        self.mode = Mode.PASS
        self.delay_s = delay_s
        """How long bytes are under way, in each direction; they keep their order."""
        self.resets = 0
        self.lost = 0
        """How many replies were lost: their requests were carried out."""
        self._server_port = server_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._links: set[socket.socket] = set()
        self._is_held: Callable[[bytes], bool] = lambda _request: False
        self.held: deque[HeldRequest] = deque()
        self._lose_every = lose_every
        self._replies = itertools.count(1)
        self._scripts_to_lose = 0

    @property
    def url(self) -> str:
        """Where clients connect to."""
        return f"redis://127.0.0.1:{self._listener.getsockname()[1]}"

    def reset_all(self) -> None:
        """RST on every link."""
        for link in list(self._links):
            with contextlib.suppress(OSError):
                link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NOT)
                link.shutdown(socket.SHUT_RD)
                self.resets += 1

    def lose_scripts(self, count: int = 1) -> None:
        """Lose the replies of the next scripts that really run, so many; all else passes."""
        self._scripts_to_lose = count

    def hold(self, is_held: Callable[[bytes], bool]) -> None:
        """Keep back the requests that it chooses; their senders hear nothing more on that link."""
        self._is_held = is_held

    def hold_scripts(self, count: int) -> None:
        """Keep back the next scripts, so many."""
        left = deque(range(count))

        def is_held(request: bytes) -> bool:
            return b"EVAL" in request and bool(left) and left.pop() >= 0

        self.hold(is_held)

    def deliver(self, held: HeldRequest) -> bytes:
        """Let a held request arrive on its own link, now; the answer, b'' when the server has closed it."""
        return _ask(held.link, held.data)

    def deliver_elsewhere(self, held: HeldRequest) -> bytes:
        """Let it arrive on a link of its own, as no TCP does: nobody can have closed that one."""
        with socket.create_connection(("127.0.0.1", self._server_port)) as link:
            return _ask(link, held.data)

    def stop_listening(self) -> None:
        """New links are refused from now on."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop_listening()
        self.reset_all()
        while self.held:
            self.held.popleft().link.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        self._links.add(client)
        with (
            contextlib.suppress(OSError),
            client,
            socket.create_connection(("127.0.0.1", self._server_port)) as server,
            selectors.DefaultSelector() as selector,
        ):
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            selector.register(client, selectors.EVENT_READ, server)
            selector.register(server, selectors.EVENT_READ, client)
            under_way: deque[tuple[float, bytes, socket.socket]] = deque()
            is_script = False
            while True:
                wait_s = 1.0 if not under_way else max(0.0, under_way[0][0] - time.monotonic())
                for key, _ in selector.select(wait_s):
                    source: socket.socket = key.fileobj  # type: ignore[assignment]
                    data = source.recv(_CHUNK_BYTES)
                    if not data:
                        return
                    if source is client:
                        is_script = is_script or b"EVAL" in data
                        if self._is_held(data):
                            self._hold_back(data, server, client)
                            return
                    elif self._is_lost(data, is_script=is_script):
                        return
                    else:
                        is_script = False
                    under_way.append((time.monotonic() + self.delay_s, data, key.data))
                while under_way and under_way[0][0] <= time.monotonic():
                    _, data, sink = under_way.popleft()
                    self._pass_on(data, sink, is_reply=sink is client)
        self._links.discard(client)

    def _is_lost(self, reply: bytes, *, is_script: bool) -> bool:
        is_due = is_script and self._scripts_to_lose > 0 and not reply.startswith(b"-NOSCRIPT")
        self._scripts_to_lose -= is_due
        is_due = is_due or bool(self._lose_every and next(self._replies) % self._lose_every == 0)
        self.lost += is_due
        return is_due

    def _hold_back(self, data: bytes, server: socket.socket, client: socket.socket) -> None:
        self.held.append(HeldRequest(data, server.dup(), time.monotonic()))
        while client.recv(_CHUNK_BYTES):  # until it gives up
            pass

    def _pass_on(self, data: bytes, sink: socket.socket, *, is_reply: bool) -> None:
        match self.mode:
            case Mode.BLACKHOLE:
                return
            case Mode.HALF_CLOSED if is_reply:
                with contextlib.suppress(OSError):
                    sink.shutdown(socket.SHUT_WR)
            case Mode.SLICES if is_reply:
                for position in range(len(data)):
                    sink.sendall(data[position : position + 1])
            case _:
                sink.sendall(data)


def _ask(link: socket.socket, request: bytes) -> bytes:
    link.settimeout(_REPLY_DEADLINE_S)
    try:
        link.sendall(request)
        return link.recv(_CHUNK_BYTES)
    except ConnectionError:
        return b""
    finally:
        link.close()
