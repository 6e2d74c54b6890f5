"""The heartbeat reaper's part in topics: drops peers that neither subscribed nor observed for too long."""

from __future__ import annotations

from mqworker.errors import ConfigurationError
from mqworker.log import Logger
from mqworker.queues.topics.client import Topics

SWEEP_EVERY_MS = 5_000
"""One SMEMBERS while nobody listens to anything."""


class TopicSweep:
    """Calls `sweep` every few seconds."""

    def __init__(self, topics: Topics, log: Logger) -> None:
        self._topics = topics
        self._log = log
        self._next_ms = 0
        self.dropped = 0

    def turn(self, now_ms: int) -> None:
        """Drop silent peers, if it is time."""
        if now_ms < self._next_ms:
            return
        self._next_ms = now_ms + SWEEP_EVERY_MS
        try:
            dropped = self._topics.sweep()
        except ConfigurationError:
            return  # a cluster, where nobody can have subscribed
        self.dropped += dropped
        if dropped:
            self._log.info("topic_peers_dropped", count=dropped)
