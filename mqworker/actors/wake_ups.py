"""Wake-ups: what scripts publish on a queue's channels. A lost one delays a message until the next poll."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mqworker.actors.actor import Watched
from mqworker.errors import StoreUnavailable
from mqworker.store.link.subscription import RESUBSCRIBED, Subscription
from mqworker.store.store import Store

MOST_ADDED = 500
"""Channels in one turn: with thousands of them, pings are answered in between."""


class WakeUps:
    """A subscription to the channels of the queues, whichever they are at the moment."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._subscription: Subscription | None = None
        self._channels: frozenset[str] = frozenset()

    def heard(self, channels: Iterable[str]) -> Iterator[tuple[str, bytes]]:
        """What was called since the last time: (channel, text); an empty channel: some may be missing."""
        try:
            if self._listen_to(frozenset(channels)):
                yield RESUBSCRIBED
            while self._subscription is not None:
                call = self._subscription.get(0)
                if call is None:
                    return
                yield call
        except StoreUnavailable:
            return  # polling goes on meanwhile; the next `get` subscribes again

    def watched(self) -> tuple[Watched, ...]:
        """What to wait for."""
        return () if self._subscription is None else (self._subscription,)

    def _listen_to(self, channels: frozenset[str]) -> bool:
        """Whether something may have been missed on the way from the old subscription to the new one."""
        if channels is self._channels or channels == self._channels:
            return False
        if self._subscription is not None and channels > self._channels:
            new = sorted(channels - self._channels)[:MOST_ADDED]
            self._channels = self._channels.union(new) if len(new) == MOST_ADDED else channels
            self._subscription.add(new)
            return False
        was_listening = self._subscription is not None
        if self._subscription is not None:
            self._subscription.close()
            self._subscription = None
        if channels:
            first = sorted(channels)[:MOST_ADDED]
            self._subscription = self._store.connection.subscribe(first)
            channels = channels if len(first) < MOST_ADDED else frozenset(first)
        self._channels = channels
        return was_listening
