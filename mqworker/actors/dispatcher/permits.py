"""Asking for permits: limited messages wait in Redis until the rate limiter hears of room for them. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from mqworker.actors.actor import Post
from mqworker.actors.dispatcher.queue import LARGEST_CLAIM, DispatchedQueue
from mqworker.actors.mail import PermitsWanted

ASK_EVERY_MS = 50
RATE_LIMITER = "rate_limiter"


class PermitRequests:
    """Says now and then how much room there is."""

    def __init__(self) -> None:
        self._ask_at_ms = 0

    def hurry(self, now_ms: int) -> None:
        """There is room again: what waits in Redis hears of it at once."""
        self._ask_at_ms = now_ms

    def mails(self, queues: Iterable[DispatchedQueue], room: int, now_ms: int) -> list[Post]:
        """One for each queue with limited messages.

        `room` is what there was before claiming: a long line of others must not keep them out for ever.
        """
        if room == 0 or now_ms < self._ask_at_ms:
            return []
        self._ask_at_ms = now_ms + ASK_EVERY_MS
        limited = [queue for queue in queues if queue.is_limited]
        return [Post(RATE_LIMITER, PermitsWanted(queue.name, min(room, LARGEST_CLAIM))) for queue in limited]
