"""How long a worker may live: so many tasks, so much memory. A pure decision over two numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

_LOOK_EVERY = 256


@dataclass(frozen=True, slots=True)
class WorkerLimits:
    """None is no limit."""

    max_tasks: int | None = None
    max_memory_bytes: int | None = None
    memory_bytes: Callable[[], int] = lambda: 0

    def reached(self, tasks_run: int) -> str | None:
        """The reason to leave, or None."""
        if self.max_tasks is not None and tasks_run >= self.max_tasks:
            return f"ran {tasks_run} tasks, of {self.max_tasks}"
        # Asking for the memory costs a system call: not after every task.
        if self.max_memory_bytes is not None and tasks_run % _LOOK_EVERY == 0:
            used = self.memory_bytes()
            if used > self.max_memory_bytes:
                return f"uses {used:,} bytes, of {self.max_memory_bytes:,}"
        return None
