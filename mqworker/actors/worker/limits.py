"""How long a worker may live: so many tasks, so much memory. A decision over two numbers and the time."""

from __future__ import annotations

from collections.abc import Callable

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
