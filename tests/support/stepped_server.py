"""A real server whose clock can be set while it runs, by libfaketime. Its monotonic clock is left alone."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from tests.support.real_server import RealServer

_LIBRARIES = ("/usr/lib/*/faketime/libfaketimeMT.so.1", "/usr/lib/faketime/libfaketimeMT.so.1")


def faketime_library() -> Path | None:
    """Where Debian's package faketime keeps its library; None when it is not installed."""
    root = Path("/")
    return next((found for each in _LIBRARIES for found in root.glob(each.removeprefix("/"))), None)


class SteppedServer(RealServer):
    """Skips the test where libfaketime is not installed."""

    def __init__(self) -> None:
        library = faketime_library()
        if library is None:
            pytest.skip("libfaketime is not installed (apt-get install faketime): no server clock to set")
        self._settings = Path(tempfile.mkdtemp(prefix="mqw-clock-"))
        self._offset_file = self._settings / "offset"
        self.set_clock(0)
        super().__init__(
            environment={
                "LD_PRELOAD": str(library),
                "FAKETIME_TIMESTAMP_FILE": str(self._offset_file),
                "FAKETIME_NO_CACHE": "1",
                "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            }
        )

    def set_clock(self, offset_s: float) -> None:
        """Let it differ from the host's clock by so much from now on."""
        written = self._settings / "next"
        written.write_text(f"{offset_s:+}\n")
        written.replace(self._offset_file)  # in one step: the server may read it this moment

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        shutil.rmtree(self._settings, ignore_errors=True)

    def __enter__(self) -> Self:
        return self.start()
