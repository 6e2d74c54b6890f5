"""Announcing: a worker, which alone imports the app, tells others what is in it, until it is heard."""

from __future__ import annotations

from collections.abc import Callable

from mqworker.errors import StoreFull, StoreRefused, StoreUnavailable
from mqworker.log import Logger
from mqworker.store.exchange import UNREADABLE

TRY_AGAIN_MS = 5_000


class Announcement:
    """Said once per life of a worker: which schedules the app has, which of its tasks subscribe."""

    def __init__(self, what: str, announce: Callable[[], int], log: Logger) -> None:
        """`announce` says it and gives the number of things it named."""
        self._what = what
        self._announce = announce
        self._log = log
        self._next_ms: int | None = 0

    def turn(self, now_ms: int) -> None:
        """Say it, if that is still to be done and it is time to try."""
        if self._next_ms is None or now_ms < self._next_ms:
            return
        try:
            count = self._announce()
        except (StoreUnavailable, StoreFull, StoreRefused, *UNREADABLE) as error:
            # What the app announced before is read there, and anybody may have written it.
            self._next_ms = now_ms + TRY_AGAIN_MS
            self._log.warning("announcement_waits", what=self._what, reason=str(error))
            return
        self._next_ms = None
        if count:
            self._log.info("announcement_made", what=self._what, count=count)
