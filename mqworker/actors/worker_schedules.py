"""Publishing: a worker, which alone imports the app, tells brokers of its schedules, until it is heard."""

from __future__ import annotations

from mqworker.errors import StoreFull, StoreUnavailable
from mqworker.log import Logger
from mqworker.tasks.app import App
from mqworker.tasks.schedule import publish_schedules

TRY_AGAIN_MS = 5_000


class SchedulePublisher:
    """Publishes once per life of a worker."""

    def __init__(self, app: App, log: Logger) -> None:
        self._app = app
        self._log = log
        self._next_ms: int | None = 0

    def turn(self, now_ms: int) -> None:
        """Publish, if that is still to be done and it is time to try."""
        if self._next_ms is None or now_ms < self._next_ms:
            return
        try:
            count = publish_schedules(self._app)
        except (StoreUnavailable, StoreFull) as error:
            self._next_ms = now_ms + TRY_AGAIN_MS
            self._log.warning("schedules_not_published", reason=str(error))
            return
        self._next_ms = None
        if count:
            self._log.info("schedules_published", app=self._app.name, count=count)
