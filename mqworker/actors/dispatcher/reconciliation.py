"""Taking stock: what the server thinks a dispatcher holds, compared with what it knows of.

A server that goes back in time (a failover, a kill before its last writes were on disk) forgets settlements.
What it then counts among our leases nobody would ever touch again, for our heartbeat goes on: it strayed, and
is released. So is what a dispatcher before this one had claimed and given to nobody (adoption.py). Between
two exchanges the two sides are equal, but for messages that the server handed over and that are still on
their way to us: so what is unknown is looked at twice. At the first look of a dispatcher that follows
another, once is enough: no worker could have begun by itself what is unknown then.

The other way round, a delivery that a worker has and the server does not count among ours was given to
somebody else: its worker is told.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from mqworker.actors.actor import Post
from mqworker.actors.dispatcher.early_starts import Shortcuts
from mqworker.actors.dispatcher.queue import DispatchedQueue
from mqworker.actors.dispatcher.workers import Hand
from mqworker.actors.mail import AbandonDelivery
from mqworker.errors import MqworkerError
from mqworker.log import Logger
from mqworker.model.record import task_of
from mqworker.model.settlement import Settlement
from mqworker.queues.work.foreign import readable_fences
from mqworker.store.store import Store

STOCK_EVERY_MS = 5_000
SECOND_LOOK_MS = 200

VerdictOnStray = Callable[[DispatchedQueue, int, bytes], Settlement]
"""By queue, fence and record."""


class Queues(Protocol):
    """Queues by name."""

    def __getitem__(self, name: str) -> DispatchedQueue:
        """One of them."""


class StockTaking:
    """Looks every few seconds, and at once after an outage."""

    def __init__(
        self,
        store: Store,
        shortcuts: Shortcuts,
        verdict: VerdictOnStray,
        log: Logger,
        *,
        is_successor: bool = False,
    ) -> None:
        self._store = store
        self._is_successor = is_successor
        self._verdict = verdict
        self._shortcuts = shortcuts
        self._log = log
        self._due_at_ms: dict[str, int] = {}
        self._unknown: dict[str, set[int]] = {}
        self._looked_at: set[str] = set()

    def hurry(self, queue: DispatchedQueue, now_ms: int) -> None:
        """The server was away: it may not be the same one. Or a wake-up was, with what it carried."""
        self._due_at_ms[queue.name] = now_ms

    def is_due(self, queue: DispatchedQueue, now_ms: int) -> bool:
        """Whether it is time, and nothing is under way that one side knows of and the other does not."""
        first_at_ms = now_ms if self._is_successor else now_ms + STOCK_EVERY_MS
        due_at_ms = self._due_at_ms.setdefault(queue.name, first_at_ms)
        if now_ms < due_at_ms or queue.has_unsettled or queue.resume_at_ms:
            return False
        # Before something is released no worker may have begun it by itself, nor do so later.
        may_release = bool(self._unknown.get(queue.name)) or self._is_first_look(queue)
        return not may_release or self._shortcuts.close_all()

    def _is_first_look(self, queue: DispatchedQueue) -> bool:
        return self._is_successor and queue.name not in self._looked_at

    def held(
        self, queues: Sequence[DispatchedQueue], now_ms: int
    ) -> list[tuple[DispatchedQueue, set[int] | MqworkerError]]:
        """What the server counts among our leases in each of these queues, in one round trip for all."""
        for queue in queues:
            self._due_at_ms[queue.name] = now_ms + STOCK_EVERY_MS
        # Any: HKEYS answers texts.
        found: list[Any] = self._store.read_each(
            [("HKEYS", queue.held_key) for queue in queues], [queue.keys.meta for queue in queues]
        )
        return [
            (queue, fences if isinstance(fences, MqworkerError) else self._fences(queue, fences))
            for queue, fences in zip(queues, found, strict=True)
        ]

    def _fences(self, queue: DispatchedQueue, fields: Sequence[bytes]) -> set[int]:
        return set(readable_fences(queue.held_key, fields, self._store.quarantine))

    def compare(
        self, queue: DispatchedQueue, held: set[int], known: set[int], hands: Sequence[Hand], now_ms: int
    ) -> list[Post]:
        """Release what the server counts among our leases, and is neither known nor in anybody's hands.

        What to tell the workers that have something which the server does not count.
        """
        unknown = held - known
        if unknown:
            for hand in hands:
                unknown -= {fence for name, fence in hand.flights if name == queue.name}
        self._release_strays(queue, unknown, now_ms)
        return [
            Post(hand.name, AbandonDelivery(queue.name, fence))
            for hand in hands
            for fence in _lost_fences(hand, queue, held)
            if hand.lose(queue.name, fence)
        ]

    def _release_strays(self, queue: DispatchedQueue, unknown: set[int], now_ms: int) -> None:
        seen_before = self._unknown.pop(queue.name, set())
        strays = sorted(unknown if self._is_first_look(queue) else unknown & seen_before)
        self._looked_at.add(queue.name)
        if unknown.difference(strays):
            self._unknown[queue.name] = unknown.difference(strays)
            self._due_at_ms[queue.name] = now_ms + SECOND_LOOK_MS
        if not strays:
            return
        # Any: HMGET answers records.
        records: Any = self._store.read([("HMGET", queue.held_key, *strays)], queue.keys.meta)[0]
        for fence in strays:
            self._shortcuts.note_over(queue.name, fence)
        self._log.warning("deliveries_strayed", queue=queue.name, count=len(strays))
        queue.settle(
            [
                self._verdict(queue, fence, record)
                for fence, record in zip(strays, records, strict=True)
                if record is not None
            ]
        )

    def learn_records(self, hand: Hand, queues: Queues) -> None:
        """Look up what a lost worker began by itself and whose wake-up has not come: it is judged, too."""
        for name, fence in [key for key, flight in hand.flights.items() if not flight.record]:
            queue = queues[name]
            # Any: the reply of HMGET.
            records: Any = self._store.read([("HMGET", queue.held_key, fence)], queue.keys.meta)[0]
            self._shortcuts.note_over(name, fence)
            if records[0] is None:
                hand.drop(name, fence)
            else:
                hand.flights[name, fence].record = records[0]


def _lost_fences(hand: Hand, queue: DispatchedQueue, ours: set[int]) -> list[int]:
    """Of what a worker has; what runs at most once was acknowledged before, and is nobody's any more."""
    return [
        fence
        for (name, fence), flight in hand.flights.items()
        if name == queue.name
        and fence not in ours
        and flight.record
        and not queue.runs_once(task_of(flight.record))
    ]
