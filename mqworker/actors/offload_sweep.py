"""The sweep of blobs in the process of the recovery scanner, on a thread: a bucket may answer slowly."""

from __future__ import annotations

import threading
from collections.abc import Callable

from mqworker.actors.child_start import ChildStart
from mqworker.actors.wiring import logger_of, open_store, queue_options
from mqworker.errors import MqworkerError
from mqworker.log import Logger
from mqworker.model.clock import SystemClock
from mqworker.queues.work.queue import WorkQueue
from mqworker.tasks.offload.places import place_at
from mqworker.tasks.offload.sweep import Sweep, Swept

SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 3_600.0


class SweepThread:
    """Sweeps now and then until it is closed."""

    def __init__(self, sweep: Callable[[], Swept], every_s: float, log: Logger) -> None:
        self._sweep = sweep
        self._every_s = every_s
        self._log = log
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="mqworker-sweep", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """End; a sweep that is under way is not waited for."""
        self._is_over.set()

    def _serve(self) -> None:
        while not self._is_over.wait(self._every_s):
            try:
                swept = self._sweep()
            except MqworkerError as error:
                self._log.warning("sweep_failed", problem=str(error))
                continue
            if swept.removed:
                self._log.info("payloads_swept", removed=swept.removed, needed=swept.needed)


def sweep_thread_of(start: ChildStart) -> SweepThread | None:
    """The thread of a node; None where payloads are not kept elsewhere."""
    settings = start.settings
    if settings.offload is None:
        return None
    place = place_at(settings.offload, above=settings.offload_above_bytes, grace_s=settings.offload_grace_s)
    every_s = min(LONGEST_PAUSE_S, max(SHORTEST_PAUSE_S, settings.offload_grace_s / 4))

    def sweep() -> Swept:
        store = open_store(start)
        try:
            options = queue_options(settings)
            return Sweep(
                store,
                settings.namespace,
                place,
                lambda name: WorkQueue(name, store, options),
                SystemClock(),
            ).run()
        finally:
            store.close()

    return SweepThread(sweep, every_s, logger_of(start))
