"""The watch over queues at which clients of gateways wait: it passes wake-ups on to whoever asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mqworker.actors.actor import Post, Watched
from mqworker.actors.mail import QueuesWoken
from mqworker.actors.wake_ups import WakeUps
from mqworker.model.names import parse_queue_name
from mqworker.store.store import Store

_LONGEST_MS = 3_600_000
RECONSIDER_MS = 1_000
"""Channels nobody waits at any more are left this much later: who pops in a loop is back at once."""


class GatewayWatch:
    """Subscribed to the channels of all queues that some gateway watches."""

    def __init__(self, store: Store, channel_of: Callable[[str], str]) -> None:
        self._wake_ups = WakeUps(store)
        self._channel_of = channel_of
        self._queues_by_gateway: dict[str, set[str]] = {}
        self._queue_by_channel: dict[str, str] = {}
        self._fresh: set[str] = set()
        self._reconsider_at_ms: int | None = None

    def set(self, gateway: str, queues: Sequence[str]) -> None:
        """Watch these queues for this gateway, and no others."""
        before = self._queues_by_gateway.get(gateway, set())
        # A client may wait at any name; one that no queue can have has no channel to listen to.
        watched = {queue for queue in queues if parse_queue_name(queue.encode()) is not None}
        self._queues_by_gateway[gateway] = watched
        self._fresh |= watched - before
        for queue in self._fresh:
            self._queue_by_channel[self._channel_of(queue)] = queue

    def posts(self, now_ms: int) -> list[Post]:
        """What was heard since the last time, and at first: something may have come before we listened."""
        if not self._queue_by_channel:
            return []
        self._leave_unwatched(now_ms)
        woken, self._fresh = self._fresh, set()
        for channel, _ in self._wake_ups.heard(self._queue_by_channel):
            queue = self._queue_by_channel.get(channel)
            woken |= set(self._queue_by_channel.values()) if queue is None else {queue}
        return [
            Post(gateway, QueuesWoken(sorted(wanted & woken)))
            for gateway, wanted in self._queues_by_gateway.items()
            if wanted & woken
        ]

    def next_turn_in_ms(self, now_ms: int) -> int:
        """At once when a queue is new, else until somebody calls."""
        if self._fresh:
            return 0
        if self._reconsider_at_ms is None:
            return _LONGEST_MS
        return max(0, self._reconsider_at_ms - now_ms)

    def watched(self) -> Sequence[Watched]:
        """The subscription."""
        return self._wake_ups.watched()

    def _leave_unwatched(self, now_ms: int) -> None:
        """Changing a subscription costs a connection, so it is done seldom."""
        wanted = set().union(*self._queues_by_gateway.values())
        has_unwatched = not wanted.issuperset(self._queue_by_channel.values())
        if not has_unwatched:
            self._reconsider_at_ms = None
        elif self._reconsider_at_ms is None:
            self._reconsider_at_ms = now_ms + RECONSIDER_MS
        elif now_ms >= self._reconsider_at_ms:
            self._reconsider_at_ms = None
            self._queue_by_channel = {
                channel: queue for channel, queue in self._queue_by_channel.items() if queue in wanted
            }
