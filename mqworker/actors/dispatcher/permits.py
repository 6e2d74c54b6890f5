"""Asking for permits: limited messages wait in Redis until the rate limiter hears of room for them. Pure.

A permit is valid for a moment (decision 16), and one that nobody uses in time is lost. So no more are asked
for than can start soon, and none when there is no room any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mqworker.actors.actor import Post
from mqworker.actors.dispatcher.queue import LARGEST_CLAIM, DispatchedQueue
from mqworker.actors.dispatcher.run_times import RunTimes
from mqworker.actors.dispatcher.workers import Crew
from mqworker.actors.mail import PermitsWanted

ASK_EVERY_MS = 50
RATE_LIMITER = "rate_limiter"


class PermitRequests:
    """Says now and then how much room there is."""

    def __init__(self, crew: Crew, times: RunTimes) -> None:
        self._crew = crew
        self._times = times
        self._ask_at_ms = 0
        self._room_by_queue: dict[str, int] = {}
        self._asking: frozenset[str] = frozenset()
        """Queues of which the rate limiter believes that there is room for more."""

    def hurry(self, now_ms: int) -> None:
        """There is room again: what waits in Redis hears of it at once."""
        self._ask_at_ms = now_ms

    def note_room(self, queues: Iterable[DispatchedQueue], room: int) -> None:
        """How much room there is before claiming: a long line of others must not keep limited ones out."""
        self._room_by_queue = {
            queue.name: min(room, self._crew.room(self._times.batch_size(queue.limited_tasks)), LARGEST_CLAIM)
            for queue in queues
            if queue.is_limited
        }

    def mails(self, now_ms: int) -> Iterator[Post]:
        """For each queue with limited messages, how many could start soon; at once when none can any more."""
        with_room = {name: room for name, room in self._room_by_queue.items() if room > 0}
        yield from [Post(RATE_LIMITER, PermitsWanted(name, 0)) for name in self._asking - with_room.keys()]
        self._asking &= with_room.keys()
        if with_room and now_ms >= self._ask_at_ms:
            self._ask_at_ms = now_ms + ASK_EVERY_MS
            self._asking |= with_room.keys()
            yield from [Post(RATE_LIMITER, PermitsWanted(name, room)) for name, room in with_room.items()]
