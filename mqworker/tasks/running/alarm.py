"""The time-out of a sync task: a signal that raises in it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from mqworker.errors import TaskTimeout


@contextmanager
def alarm(timeout_ms: int, task: str) -> Iterator[None]:
    """Raise `TaskTimeout` in the block when it takes longer."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    is_running = True

    def ring(_number: int, _frame: FrameType | None) -> None:
        if is_running:  # else it rang in the instant after the end
            raise TaskTimeout(f"{task} ran longer than {timeout_ms / 1000:g} s")

    previous = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, timeout_ms / 1000)
    try:
        yield
    finally:
        is_running = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
