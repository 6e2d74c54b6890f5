"""A bell: rung by other threads of a process, heard by the selector of its main one."""

from __future__ import annotations

import os


class Bell:
    """A pipe to oneself."""

    def __init__(self) -> None:
        self._ear, self._rope = os.pipe()
        os.set_blocking(self._ear, False)
        os.set_blocking(self._rope, False)

    def fileno(self) -> int:
        """Readable after a ring."""
        return self._ear

    def ring(self) -> None:
        """Wake the main thread; a bell that is already ringing stays so."""
        try:
            os.write(self._rope, b"!")
        except BlockingIOError:
            return

    def quiet(self) -> None:
        """Stop ringing."""
        try:
            while os.read(self._ear, 4096):
                pass
        except BlockingIOError:
            return

    def close(self) -> None:
        """Give the descriptors back."""
        os.close(self._ear)
        os.close(self._rope)
