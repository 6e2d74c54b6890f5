"""Signals as something to read: the handlers do nothing, the kernel's word goes into a pipe."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Self

HEARD = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)


class SignalInbox:
    """Collects signals between its entry and its exit."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)

    def __enter__(self) -> Self:
        self._previous_fd = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        self._previous = {number: signal.signal(number, _do_nothing) for number in HEARD}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._previous_fd)
        os.close(self._read)
        os.close(self._write)

    def fileno(self) -> int:
        """For selectors."""
        return self._read

    def take(self) -> list[signal.Signals]:
        """What has arrived, in order."""
        with suppress(BlockingIOError):
            return [signal.Signals(number) for number in os.read(self._read, 256) if number in HEARD]
        return []


def _do_nothing(_number: int, _frame: FrameType | None) -> None:
    pass
