"""A worker's life beside its tasks: what it announces at the start, and when it is time to leave."""

from __future__ import annotations

from collections.abc import Callable

from mqworker.errors import StoreFull, StoreRefused, StoreUnavailable
from mqworker.log import Logger
from mqworker.store.exchange import UNREADABLE

TRY_AGAIN_MS = 5_000


class Announcement:
    """Announced once by each worker: the app's schedules, and which of its tasks subscribe to topics."""

    def __init__(self, what: str, announce: Callable[[], int], log: Logger) -> None:
        """`announce` says it and gives the number of things it named."""
        self._what = what
        self._announce = announce
        self._log = log
        self._next_ms: int | None = 0

    def turn(self, now_ms: int) -> None:
        """Announce, if that has not worked yet and it is time to try."""
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


LOOK_EVERY_MS = 1_000
"""Asking for the memory costs a system call: not after every task."""


class WorkerLimits:
    """None is no limit."""

    def __init__(
        self,
        max_tasks: int | None = None,
        max_memory_bytes: int | None = None,
        memory_bytes: Callable[[], int] = lambda: 0,
    ) -> None:
        self._max_tasks = max_tasks
        self._max_memory_bytes = max_memory_bytes
        self._memory_bytes = memory_bytes
        self._look_at_ms = 0

    def reached(self, tasks_run: int, now_ms: int) -> str | None:
        """The reason to leave, or None."""
        if self._max_tasks is not None and tasks_run >= self._max_tasks:
            return f"ran {tasks_run} tasks, of {self._max_tasks}"
        if self._max_memory_bytes is not None and now_ms >= self._look_at_ms:
            self._look_at_ms = now_ms + LOOK_EVERY_MS
            used = self._memory_bytes()
            if used > self._max_memory_bytes:
                return f"uses {used:,} bytes, of {self._max_memory_bytes:,}"
        return None
