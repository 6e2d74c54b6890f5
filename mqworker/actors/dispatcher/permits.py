"""Permits: a limited message waits in Redis until the rate limiter hears that there is room for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mqworker.actors.actor import Post
from mqworker.actors.dispatcher.queue import LARGEST_CLAIM, DispatchedQueue
from mqworker.actors.dispatcher.run_times import RunTimes
from mqworker.actors.dispatcher.workers import Workers
from mqworker.actors.mail import PermitsWanted

ASK_EVERY_MS = 50
ASK_IDLE_MS = 1_000
"""While no limited message was heard of for as long. The first one that waits calls; a call may be lost."""
FIRST_LIMITED = b"limited"
"""What a queue publishes when its first limited message begins to wait."""
RATE_LIMITER = "rate_limiter"


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
        usual = min(room, self._workers.room(self._times.batch_size(queue.limited_tasks)))
        return min(max(usual, queue.batches.room), LARGEST_CLAIM)
