"""Heartbeats: signs of life that wait for nobody. One beat per server, whatever the number of queues.

A beat is written and not waited for; its reply, which tells who else was heard, is read when it comes. So a
server that is slow, or far away, makes beats late but not rare, and one shard that hangs keeps none from the
others. Links are opened in a thread of their own, for that may take as long as it likes.
"""

from __future__ import annotations

import contextlib
import ssl
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue

from mqworker.errors import MqworkerError
from mqworker.queues.work.keys import beats_keys
from mqworker.store.command import Command, pack
from mqworker.store.link.connection import Connection
from mqworker.store.link.pool import LINK_ERRORS, Link, reader_of, socket_of
from mqworker.store.outage import OUTAGE_PAUSE_MS
from mqworker.store.script import scripts_of

script = scripts_of(__package__)

KEPT_MS = 3_600_000
"""How long a consumer is listed that beats no more; whoever is not listed counts as silent, too."""
HUNG_MS = 10_000
"""A link that gave no answer for so long is replaced."""
MOST_UNANSWERED = 100
"""Beyond this nothing more is written: a server that hangs need not be told so often that we live."""

_READ_BYTES = 65_536
_WOULD_BLOCK = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


@dataclass(frozen=True, slots=True)
class Reading:
    """What one server knew of beats: at some moment between the question and the answer, by our own clock."""

    key: str
    asked_at_ms: int
    read_at_ms: int
    beats: dict[str, bytes]
    """By consumer; equal bytes mean that no beat came in between."""
    timeout_ms: dict[str, int] = field(default_factory=dict)
    """How long each wants to be waited for: nodes may have other settings than ours."""


class Heartbeat:
    """Beats for consumers on all servers of a connection. One thread uses it."""

    def __init__(self, connection: Connection, namespace: str, *, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self._connection = connection
        self._keys = beats_keys(namespace)
        self._source = script("node_beat").source
        self._wanted: frozenset[str] | None = None
        """The keys to beat under; None until a server was asked how many there are of its kind."""
        self._links: list[_BeatLink] = []
        self._opened: SimpleQueue[_Opened] = SimpleQueue()
        self._is_opening = False
        self._open_at_ms = 0
        self.problem = ""
        """The latest refusal of a server, such as a foreign key in the place of ours."""

    def send(self, consumers: Iterable[str], now_ms: int) -> None:
        """Write one beat to each server; what is not connected is opened meanwhile."""
        self._adopt(now_ms)
        living = [f"{consumer} {self._timeout_ms}" for consumer in sorted(consumers)]
        for link in list(self._links):
            if link.is_hung(now_ms):
                self._drop(link)
                continue
            commands: list[Command] = [("EVAL", self._source, 1, key, KEPT_MS, *living) for key in link.keys]
            with self._dropping(link):
                link.send(commands, now_ms)
        covered = frozenset(key for link in self._links for key in link.keys)
        if (
            (self._wanted is None or self._wanted - covered)
            and not self._is_opening
            and now_ms >= self._open_at_ms
        ):
            self._is_opening = True
            threading.Thread(target=self._open, args=(covered,), daemon=True).start()

    def receive(self, now_ms: int) -> list[Reading]:
        """Everything that was answered since the last time."""
        self._adopt(now_ms)
        readings: list[Reading] = []
        for link in list(self._links):
            with self._dropping(link):
                for key, asked_at_ms, reply in link.receive():
                    if isinstance(reply, list):
                        readings.append(_reading(key, asked_at_ms, now_ms, reply))
                    else:  # the slot moved, or the server takes no writes: look for its owner anew
                        self.problem = str(reply)
                        link.keys = [each for each in link.keys if each != key]
                        self._wanted = None
            if not link.keys:
                self._drop(link)
        return readings

    def watched(self) -> Sequence[_BeatLink]:
        """What becomes readable when an answer is there."""
        return tuple(self._links)

    def close(self) -> None:
        """Close all links."""
        for link in list(self._links):
            self._drop(link)

    def _adopt(self, now_ms: int) -> None:
        with contextlib.suppress(Empty):
            while True:
                opened = self._opened.get_nowait()
                if isinstance(opened, _BeatLink):
                    self._links.append(opened)
                else:
                    self._wanted = opened if opened is not None else self._wanted
                    self._is_opening = False
                    self._open_at_ms = now_ms + OUTAGE_PAUSE_MS

    def _open(self, covered: frozenset[str]) -> None:
        """In a thread: link up with every server that owns keys which nobody beats under."""
        wanted: frozenset[str] | None = None
        try:
            groups = self._connection.pools_of(self._keys)
            if len(groups) == 1:  # a single server: all would lie side by side
                groups = [(groups[0][0], [self._keys[0]])]
            wanted = frozenset(key for _, keys in groups for key in keys)
            for pool, keys in groups:
                missing = [key for key in keys if key not in covered]
                with contextlib.suppress(MqworkerError):
                    if missing:
                        self._opened.put(_BeatLink(pool.connect(), missing))
        except MqworkerError:
            pass  # `send` tries again
        finally:
            self._opened.put(wanted)

    @contextlib.contextmanager
    def _dropping(self, link: _BeatLink) -> Iterator[None]:
        try:
            yield
        except LINK_ERRORS:
            self._drop(link)

    def _drop(self, link: _BeatLink) -> None:
        with contextlib.suppress(ValueError):
            self._links.remove(link)
        link.close()


class _BeatLink:
    """One link: questions go out in order, answers come back in order, neither is waited for."""

    def __init__(self, link: Link, keys: list[str]) -> None:
        self.keys = keys
        self._link = link
        self._socket = socket_of(link)
        self._socket.settimeout(0)
        self._reader = reader_of(link)
        self._nothing = self._reader.gets()
        self._asked: deque[tuple[str, int]] = deque()
        self._unsent = b""

    def fileno(self) -> int:
        return self._socket.fileno()

    def is_hung(self, now_ms: int) -> bool:
        return bool(self._asked) and now_ms - self._asked[0][1] > HUNG_MS

    def send(self, commands: Sequence[Command], now_ms: int) -> None:
        if len(self._asked) < MOST_UNANSWERED:
            self._unsent += pack(commands)
            self._asked.extend((str(command[3]), now_ms) for command in commands)
        with contextlib.suppress(*_WOULD_BLOCK):
            while self._unsent:
                self._unsent = self._unsent[self._socket.send(self._unsent) :]

    def receive(self) -> list[tuple[str, int, object]]:
        answers: list[tuple[str, int, object]] = []
        with contextlib.suppress(*_WOULD_BLOCK):
            while True:
                received = self._socket.recv(_READ_BYTES)
                if not received:
                    raise ConnectionResetError("the server closed the link")
                self._reader.feed(received)
                while (reply := self._reader.gets()) is not self._nothing and self._asked:
                    answers.append((*self._asked.popleft(), reply))
        return answers

    def close(self) -> None:
        self._link.disconnect()


_Opened = _BeatLink | frozenset[str] | None


def _reading(key: str, asked_at_ms: int, read_at_ms: int, reply: list[object]) -> Reading:
    reading = Reading(key, asked_at_ms, read_at_ms, {})
    texts = [part if isinstance(part, bytes) else str(part).encode() for part in reply]
    for member, beat in zip(texts[::2], texts[1::2], strict=False):
        consumer, _, timeout_ms = member.decode(errors="replace").partition(" ")
        reading.beats[consumer] = beat
        if timeout_ms.isascii() and timeout_ms.isdecimal():
            reading.timeout_ms[consumer] = int(timeout_ms)
    return reading
