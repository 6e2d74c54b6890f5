"""A broker by hand: the real actor, without a process, whose rounds a test calls."""

from __future__ import annotations

from mqworker import App
from mqworker.actors.broker import Broker, broker_of
from mqworker.actors.queue_roster import REFRESH_MS
from mqworker.log import get_logger
from mqworker.queues.work.calls import WorkQueueOptions


class HandBroker:
    """Holds one round after the other on the server of an app."""

    def __init__(self, app: App) -> None:
        settings = app.settings
        options = WorkQueueOptions(settings.namespace, dedup_window_ms=round(settings.dedup_window_s * 1000))
        self.broker: Broker = broker_of(
            app.connections.store, options, settings.max_message_bytes, get_logger(actor="broker")
        )
        self._now_ms = 0

    def round(self) -> None:
        """One round, a while after the last one; the roster is read anew in it."""
        for _ in range(2):  # the roster learns of a queue in one round and looks at it in the next
            self._now_ms += 2 * REFRESH_MS
            self.broker.turn(self._now_ms)
