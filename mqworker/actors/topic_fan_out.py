"""The broker's part in topics: moves what is published to all that listen, at no cost while nobody does.

Every broker does it; the script decides, so no record is moved twice. Publishing into an empty topic calls
(publish.lua), and the desk says when somebody subscribed. Besides, topics that somebody
listens to are looked at every second, and whether there are any every five.
"""

from __future__ import annotations

from collections.abc import Iterable

from mqworker.actors.actor import Watched
from mqworker.actors.rounds import Rounds
from mqworker.actors.wake_ups import WakeUps
from mqworker.errors import ConfigurationError
from mqworker.log import Logger
from mqworker.queues.topics.client import Topics

IDLE_LOOK_MS = 5_000
"""One SMEMBERS: how a node learns that somebody began to listen elsewhere."""
BUSY_LOOK_MS = 1_000
"""A lost call delays what was published by this much at the most."""


class TopicFanOut:
    """Calls `dispatch_waiting` when it is worth it."""

    def __init__(self, topics: Topics, log: Logger) -> None:
        self._topics = topics
        self._rounds = Rounds(IDLE_LOOK_MS, log)
        self._wake_ups = WakeUps(topics.store)
        self._is_off = False
        self._was_used = False
        self._listened_to = 0
        self.moved = 0

    def turn(self, now_ms: int) -> None:
        """Move what waits, if it is time."""
        if self._was_used or self._was_called():
            self._was_used = False
            self._rounds.hurry(0, now_ms)
        if not self._is_off:
            self._rounds.hold(now_ms, [lambda: self._dispatch(now_ms)])

    def note_use(self) -> None:
        """Somebody began to listen a moment ago, through this process."""
        self._was_used = True

    def due_in_ms(self, now_ms: int) -> int:
        """Until the next look."""
        return IDLE_LOOK_MS if self._is_off else self._rounds.due_in_ms(now_ms)

    def watched(self) -> Iterable[Watched]:
        """The subscription to calls, while somebody listens to a topic."""
        return self._wake_ups.watched()

    def _dispatch(self, now_ms: int) -> None:
        try:
            found = self._topics.dispatch_waiting()
        except ConfigurationError:
            # A cluster: whoever uses topics there is told; a node that does not has nothing to mend.
            self._is_off = True
            return
        self.moved += found.count
        self._listened_to = found.topics
        if found.topics:
            self._rounds.hurry(BUSY_LOOK_MS if found.next_in_ms is None else found.next_in_ms, now_ms)

    def _was_called(self) -> bool:
        return any(list(self._wake_ups.heard([self._topics.channel] if self._listened_to else [])))
