"""Reconciliation: what the server counts among a dispatcher's leases, compared with what it knows of.

A server that goes back in time (a failover, a kill before its last writes were on disk) forgets settlements.
It then counts deliveries among our leases that nobody would ever touch again, for our heartbeat goes on.
Such a delivery is a stray, and is released. So is what a dispatcher before this one had claimed and given to
nobody (adoption.py). Between two exchanges both sides are equal, except for messages that the server handed
over and that are still on their way to us: so an unknown delivery is released only when it is unknown twice.
At the first look of a dispatcher that follows another, once is enough: no worker could have made an early
start on what is unknown then.

The other way round, a delivery that a worker has and the server does not count among ours was given to
somebody else: its worker is told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from mqworker.actors.actor import Post
from mqworker.actors.dispatcher.hand_out import HandOut
from mqworker.actors.dispatcher.lost_workers import LostWorkers
from mqworker.actors.dispatcher.queue import DispatchedQueue
from mqworker.actors.dispatcher.workers import Workers, WorkerState
from mqworker.actors.early_start.offer import EarlyStarts
from mqworker.actors.mail import AbandonDelivery
from mqworker.errors import MqworkerError
from mqworker.log import Logger
from mqworker.model.record import task_of
from mqworker.model.settlement import Settlement
from mqworker.queues.work.keys import readable_fences
from mqworker.store.store import Store

RECONCILE_EVERY_MS = 5_000
SECOND_LOOK_MS = 200
MOST_AT_ONCE = 100
"""Queues in one turn."""

SettlementOfStray = Callable[[DispatchedQueue, int, bytes], Settlement]
"""By queue, fence and record."""
Suspend = Callable[[DispatchedQueue, MqworkerError, int], None]
"""Told of a queue whose server is in trouble."""


class Queues(Protocol):
    """Queues by name."""

    def __getitem__(self, name: str) -> DispatchedQueue:
        """One of them."""


class Reconciliation:
    """Looks every few seconds, and at once after an outage."""

    def __init__(
        self,
        store: Store,
        *,
        workers: Workers,
        lost: LostWorkers,
        hand_out: HandOut,
        early_starts: EarlyStarts,
        settlement_of: SettlementOfStray,
        suspend: Suspend,
        log: Logger,
        is_successor: bool = False,
    ) -> None:
        self._store = store
        self._workers = workers
        self._lost = lost
        self._hand_out = hand_out
        self._early_starts = early_starts
        self._settlement_of = settlement_of
        self._suspend = suspend
        self._log = log
        self._is_successor = is_successor
        self._due_at_ms: dict[str, int] = {}
        self._unknown: dict[str, set[int]] = {}
        self._looked_at: set[str] = set()

    def hurry(self, queue: DispatchedQueue, now_ms: int) -> None:
        """The server was away, and may have forgotten something; or a wake-up was lost, with its message."""
        self._due_at_ms[queue.name] = now_ms

    def look_soon(self, queue: DispatchedQueue, now_ms: int) -> None:
        """What was handed over was not believed. However often that is said, no look is made more often."""
        soon_ms = now_ms + SECOND_LOOK_MS
        self._due_at_ms[queue.name] = min(self._due_at_ms.get(queue.name, soon_ms), soon_ms)

    def turn(self, queues: Iterable[DispatchedQueue], now_ms: int) -> list[Post]:
        """Compare where it is time to. What to tell the workers whose deliveries somebody else has."""
        due = [queue for queue in queues if self._is_due(queue, now_ms)][:MOST_AT_ONCE]
        posts: list[Post] = []
        for queue, held in self._held(due, now_ms) if due else ():
            try:
                if isinstance(held, MqworkerError):
                    raise held
                posts += self._compare(queue, held, now_ms)
            except MqworkerError as error:
                self._suspend(queue, error, now_ms)
        return posts

    def _is_due(self, queue: DispatchedQueue, now_ms: int) -> bool:
        """Whether it is time, and no exchange is under way that only one side knows of."""
        first_at_ms = now_ms if self._is_successor else now_ms + RECONCILE_EVERY_MS
        due_at_ms = self._due_at_ms.setdefault(queue.name, first_at_ms)
        if now_ms < due_at_ms or queue.has_unsettled or queue.resume_at_ms:
            return False
        # Before something is released, no worker may have made an early start on it, nor do so later.
        may_release = bool(self._unknown.get(queue.name)) or self._is_first_look(queue)
        return not may_release or self._early_starts.close_all()

    def _is_first_look(self, queue: DispatchedQueue) -> bool:
        return self._is_successor and queue.name not in self._looked_at

    def _held(
        self, queues: Sequence[DispatchedQueue], now_ms: int
    ) -> list[tuple[DispatchedQueue, set[int] | MqworkerError]]:
        """What the server counts among our leases in each of these queues, in one round trip for all."""
        for queue in queues:
            self._due_at_ms[queue.name] = now_ms + RECONCILE_EVERY_MS
        # Any: HKEYS answers texts.
        found: list[Any] = self._store.send_each(
            [("HKEYS", queue.held_key) for queue in queues], [queue.keys.meta for queue in queues]
        )
        return [
            (queue, fences if isinstance(fences, MqworkerError) else self._fences(queue, fences))
            for queue, fences in zip(queues, found, strict=True)
        ]

    def _fences(self, queue: DispatchedQueue, fields: Sequence[bytes]) -> set[int]:
        return set(readable_fences(queue.held_key, fields, self._store.quarantine))

    def _compare(self, queue: DispatchedQueue, held: set[int], now_ms: int) -> list[Post]:
        workers = [*self._workers, *self._lost.workers()]
        unknown = held - self._hand_out.fences_of(queue)
        if unknown:
            for worker in workers:
                unknown -= {fence for name, fence in worker.flights if name == queue.name}
        self._release_strays(queue, unknown, now_ms)
        return [
            Post(worker.name, AbandonDelivery(queue.name, fence))
            for worker in workers
            for fence in _lost_fences(worker, queue, held)
            if worker.lose(queue.name, fence)
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
        records: Any = self._store.send([("HMGET", queue.held_key, *strays)], queue.keys.meta)[0]
        for fence in strays:
            self._early_starts.note_over(queue.name, fence)
        self._log.warning("deliveries_strayed", queue=queue.name, count=len(strays))
        queue.settle(
            [
                self._settlement_of(queue, fence, record)
                for fence, record in zip(strays, records, strict=True)
                if record is not None
            ]
        )

    def learn_records(self, worker: WorkerState, queues: Queues) -> None:
        """Look up the early starts of a lost worker whose wake-up has not come: they are judged, too."""
        for name, fence in [key for key, flight in worker.flights.items() if not flight.record]:
            queue = queues[name]
            # Any: the reply of HMGET.
            records: Any = self._store.send([("HMGET", queue.held_key, fence)], queue.keys.meta)[0]
            self._early_starts.note_over(name, fence)
            if records[0] is None:
                worker.drop(name, fence)
            else:
                worker.flights[name, fence].record = records[0]


def _lost_fences(worker: WorkerState, queue: DispatchedQueue, ours: set[int]) -> list[int]:
    """What a worker has and the server does not count as ours, apart from tasks that run at most once."""
    return [
        fence
        for (name, fence), flight in worker.flights.items()
        if name == queue.name
        and fence not in ours
        and flight.record
        and not queue.runs_once(task_of(flight.record))
    ]
