"""Waker: lets other threads of a process wake the selector of its main thread."""

from __future__ import annotations

import os


class Waker:
    """A pipe to oneself."""

    def __init__(self) -> None:
        self._read_end, self._write_end = os.pipe()
        os.set_blocking(self._read_end, False)
        os.set_blocking(self._write_end, False)

    def fileno(self) -> int:
        """Readable after `wake`."""
        return self._read_end

    def wake(self) -> None:
        """Wake the main thread; once is enough until it clears."""
        try:
            os.write(self._write_end, b"!")
        except BlockingIOError:
            return

    def clear(self) -> None:
        """Be unreadable until the next `wake`."""
        try:
            while os.read(self._read_end, 4096):
                pass
        except BlockingIOError:
            return

    def close(self) -> None:
        """Give the descriptors back."""
        os.close(self._read_end)
        os.close(self._write_end)
