"""Claiming: one round trip per queue, in which finished deliveries are settled and new ones claimed.

A queue whose server is in trouble is left alone for a moment; the others go on. Messages of limited tasks
wait in Redis until the rate limiter hears that there is room for them: `PermitRequests` tells it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from mqworker.actors.actor import Post
from mqworker.actors.dispatcher.queue import LARGEST_CLAIM, Claimed, DispatchedQueue, DispatchedQueues
from mqworker.actors.dispatcher.run_times import RunTimes
from mqworker.actors.dispatcher.workers import Idle, Workers
from mqworker.actors.mail import PermitsWanted
from mqworker.errors import MqworkerError, StoreFull, StoreRefused, StoreUnavailable
from mqworker.log import Logger
from mqworker.store.exchange import Exchange
from mqworker.store.store import Store

STORE_TROUBLE = (StoreUnavailable, StoreRefused, StoreFull)
OUTAGE_PAUSE_MS = 200
ASK_EVERY_MS = 50
ASK_IDLE_MS = 1_000
"""While no limited message was heard of for as long. The first one that waits calls; a call may be lost."""
FIRST_LIMITED = b"limited"
"""What a queue calls when a limited message waits and none did before."""
RATE_LIMITER = "rate_limiter"


class Room(NamedTuple):
    """How many deliveries the workers could take now."""

    anywhere: int
    in_order: int
    """Event loops left out."""
    idle: Idle
    """How many could begin this moment."""


class Answered(NamedTuple):
    """What a queue answered."""

    queue: DispatchedQueue
    claimed: list[Claimed]
    is_back: bool
    """Whether its server was away before: it may have forgotten something."""


class Claiming:
    """Settles and claims in all work queues of a dispatcher."""

    def __init__(self, store: Store, queues: DispatchedQueues, log: Logger) -> None:
        self._store = store
        self._queues = queues
        self._log = log

    def exchange(self, room: Room, tickets: Callable[[int], list[str]], now_ms: int) -> Iterator[Answered]:
        """Send what there is to settle, and claim as much as there is room for.

        Queues in trouble are asked last, and one in a turn: a shard of a cluster that hangs must not hold
        back the others for long, and pings are answered in between.
        """
        healthy: list[tuple[DispatchedQueue, Exchange]] = []
        troubled: list[tuple[DispatchedQueue, Exchange]] = []
        anywhere, in_order, idle = room
        for queue in sorted(self._queues, key=lambda each: each.worker_ms):
            if now_ms < queue.resume_at_ms:
                continue
            wanted = queue.wants(anywhere, in_order, now_ms)
            exchange = queue.next_exchange(self._store, wanted, idle, tickets, now_ms)
            if exchange is not None:
                anywhere, in_order = anywhere - queue.asked_for, in_order - queue.asked_for
                (troubled if queue.resume_at_ms else healthy).append((queue, exchange))
        for together in (healthy, troubled[:1]):
            outcomes = self._store.attempt_each([exchange for _, exchange in together])
            for (queue, _), outcome in zip(together, outcomes, strict=True):
                yield from self._complete(queue, outcome, now_ms)

    def suspend(self, queue: DispatchedQueue, error: MqworkerError, now_ms: int) -> None:
        """Leave a queue alone for a moment, because its server did not answer or refused."""
        queue.is_unreachable = not (isinstance(error, StoreRefused) and error.is_about_data)
        if not queue.is_unreachable:
            self._store.quarantine.note("queue", queue.name, error)
        elif not queue.resume_at_ms:
            self._log.warning("store_unavailable", queue=queue.name, reason=str(error))
        queue.resume_at_ms = now_ms + OUTAGE_PAUSE_MS

    def begin_probation(self, queue: DispatchedQueue, fence: int, now_ms: int) -> bytes | None:
        """Note at the server that a delivery runs on probation now: its record, None if that failed."""
        try:
            return self._store.run(queue.begin_probation(fence))
        except STORE_TROUBLE as error:
            self.suspend(queue, error, now_ms)
            return None

    # Any: what the scripts of the exchange answer.
    def _complete(
        self, queue: DispatchedQueue, outcome: list[Any] | MqworkerError, now_ms: int
    ) -> Iterator[Answered]:
        if isinstance(outcome, MqworkerError):  # only this queue is in trouble, whatever the error is
            self.suspend(queue, outcome, now_ms)
            return
        is_back = bool(queue.resume_at_ms)
        if is_back:
            self._log.info("store_resumed", queue=queue.name)
            queue.resume_at_ms = 0
        yield Answered(queue, queue.complete(outcome, now_ms), is_back)


class PermitRequests:
    """Tells the rate limiter now and then how many limited messages could start soon.

    A permit is valid for a moment (decision 16), and lost when nobody uses it in time. So no more are asked
    for than can start soon, and none when there is no room any more.
    """

    def __init__(self, workers: Workers, times: RunTimes) -> None:
        self._workers = workers
        self._times = times
        self._ask_at_ms = self._told_at_ms = self._busy_until_ms = 0
        self._room_by_queue: dict[str, int] = {}
        self._told: dict[str, int] = {}
        """How much room the rate limiter heard of last, by queue."""

    def hurry(self, now_ms: int) -> None:
        """There is room again, or something to let in: tell the rate limiter in this turn, then often."""
        self._ask_at_ms = now_ms
        self._busy_until_ms = now_ms + ASK_IDLE_MS

    def note_room(self, queues: Iterable[DispatchedQueue], room: int) -> None:
        """How much room there is before claiming: other messages must not take all of it."""
        self._room_by_queue = {
            queue.name: room_for_limited
            for queue in queues
            if queue.is_limited and (room_for_limited := self._room_for_limited(queue, room)) > 0
        }

    def mails(self, now_ms: int) -> Iterator[Post]:
        """For each queue with limited messages, how many could start soon; at once when none can any more."""
        full = [name for name in self._told if name not in self._room_by_queue]
        for name in full:
            del self._told[name]
            yield Post(RATE_LIMITER, PermitsWanted(name, 0))
        if self._room_by_queue and self.due_in_ms(now_ms) == 0:
            self._told, self._told_at_ms = dict(self._room_by_queue), now_ms
            self._ask_at_ms = now_ms + (ASK_EVERY_MS if now_ms < self._busy_until_ms else ASK_IDLE_MS)
            yield from [Post(RATE_LIMITER, PermitsWanted(*each)) for each in self._told.items()]

    def due_in_ms(self, now_ms: int) -> int:
        """Until the rate limiter is to be told something."""
        if not self._room_by_queue:
            return ASK_IDLE_MS
        is_news = self._told != self._room_by_queue
        due_at_ms = min(self._ask_at_ms, self._told_at_ms + ASK_EVERY_MS) if is_news else self._ask_at_ms
        return max(0, due_at_ms - now_ms)

    def _room_for_limited(self, queue: DispatchedQueue, room: int) -> int:
        return min(room, self._workers.room(self._times.batch_size(queue.limited_tasks)), LARGEST_CLAIM)
