"""Registering: a worker, which alone imports the app, tells which of its tasks subscribe."""

from __future__ import annotations

from mqworker.errors import StoreFull, StoreRefused, StoreUnavailable
from mqworker.log import Logger
from mqworker.tasks.app import App
from mqworker.tasks.subscription import register_subscriptions

TRY_AGAIN_MS = 5_000


class SubscriptionRegistrar:
    """Registers once per life of a worker. Events that come before it are kept for whoever is first."""

    def __init__(self, app: App, log: Logger) -> None:
        self._app = app
        self._log = log
        self._next_ms: int | None = 0

    def turn(self, now_ms: int) -> None:
        """Register, if that is still to be done and it is time to try."""
        if self._next_ms is None or now_ms < self._next_ms:
            return
        try:
            count = register_subscriptions(self._app)
        except (StoreUnavailable, StoreFull, StoreRefused) as error:
            self._next_ms = now_ms + TRY_AGAIN_MS
            self._log.warning("subscriptions_not_registered", reason=str(error))
            return
        self._next_ms = None
        if count:
            self._log.info("subscriptions_registered", app=self._app.name, count=count)
