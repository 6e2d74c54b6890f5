"""Removal: the blobs of messages that were run go at once, on a thread of their own.

It is never waited for, and what it misses the sweep finds. A report that was accepted may still have been
refused by its fence, and then somebody else runs the message: so the queue is asked first.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from mqworker.errors import MqworkerError
from mqworker.log import get_logger
from mqworker.model.delivery import Delivery
from mqworker.model.settlement import Ack, Settlement
from mqworker.queues.work.queue import WorkQueue
from mqworker.tasks.offload.places import Place

_ENDED = frozenset({"absent", "succeeded"})
_MOST_WAITING = 10_000


class BlobRemoval:
    """Removes the arguments of messages that have ended. One for a worker."""

    def __init__(self, place: Place, queue_of: Callable[[str], WorkQueue]) -> None:
        self._place = place
        self._queue_of = queue_of
        self._waiting: queue.Queue[tuple[str, Delivery]] = queue.Queue(_MOST_WAITING)
        self._thread: threading.Thread | None = None
        self._log = get_logger(part="offload")

    def note(self, queue_name: str, settlement: Settlement) -> None:
        """A report on this delivery was stored, or refused."""
        delivery = settlement.delivery
        if not isinstance(settlement, Ack) or not isinstance(delivery, Delivery) or not delivery.offloaded:
            return
        try:
            self._waiting.put_nowait((queue_name, delivery))
        except queue.Full:
            return  # the sweep has time
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="mqworker-offload", daemon=True)
            self._thread.start()

    def _serve(self) -> None:
        while True:
            name, delivery = self._waiting.get()
            try:
                if self._queue_of(name).find(delivery.id).state in _ENDED:
                    self._place.remove(delivery.offloaded)
            except MqworkerError as error:
                self._log.warning("payload_left", task_id=delivery.id, problem=str(error))
