"""The status socket: whoever connects gets one JSON snapshot of the node, and is let go.

It lies in the data directory, for this user only. `mqworker health` reads it: it needs neither Redis nor the
application, and since the supervisor's one loop answers, an answer proves that the loop turns.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

SOCKET_NAME = "supervisor.sock"
_PATTERN = "supervisor*.sock"
_BACKLOG = 16
# A snapshot fits into the buffer of a socket but for hundreds of workers; a reader gets this long to take it.
_SEND_S = 0.05
_SNAPSHOT_BYTES = 16 * 1024 * 1024

Snapshot = dict[str, Any]
"""Any: plain values, as JSON has them."""


class StatusSocket:
    """Listens until it is closed. The second supervisor of a directory gets a name with its pid."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / SOCKET_NAME
        if _is_answered(self.path):
            self.path = directory / f"supervisor-{os.getpid()}.sock"
        self.path.unlink(missing_ok=True)  # a killed supervisor's
        self._listener = socket.socket(socket.AF_UNIX)
        with _short(self.path) as address:
            self._listener.bind(address)
        self.path.chmod(0o600)
        self._listener.listen(_BACKLOG)
        self._listener.settimeout(0)

    def fileno(self) -> int:
        """For selectors."""
        return self._listener.fileno()

    def answer(self, snapshot: Callable[[], Snapshot]) -> None:
        """Answer the clients that wait."""
        with suppress(OSError):  # a reader that went away again, or does not read
            connection, _ = self._listener.accept()
            with connection:
                connection.settimeout(_SEND_S)
                connection.sendall(json.dumps(snapshot()).encode())

    def close(self) -> None:
        """Stop listening and remove the file."""
        self._listener.close()
        self.path.unlink(missing_ok=True)


def read_snapshots(directory: Path, timeout_s: float) -> dict[str, Snapshot | None]:
    """The snapshot of each supervisor of this directory by the name of its socket; None if it hangs."""
    answers: dict[str, Snapshot | None] = {}
    for path in sorted(directory.glob(_PATTERN)):
        with suppress(FileNotFoundError, ConnectionError):  # left by one that was killed
            answers[path.name] = _read_snapshot(path, timeout_s)
    return answers


def _read_snapshot(path: Path, timeout_s: float) -> Snapshot | None:
    with _connected(path, timeout_s) as connection:
        try:
            data = b""
            while (piece := connection.recv(65_536)) and len(data) < _SNAPSHOT_BYTES:
                data += piece
            snapshot: Snapshot = json.loads(data)
        except (TimeoutError, ValueError):
            return None
        return snapshot


def _is_answered(path: Path) -> bool:
    """Whether somebody listens; the kernel says so, even if that process hangs."""
    try:
        with _connected(path, _SEND_S):
            return True
    except (FileNotFoundError, ConnectionError):
        return False
    except OSError:  # its backlog is full
        return True


@contextmanager
def _connected(path: Path, timeout_s: float) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(timeout_s)
        with _short(path) as address:
            connection.connect(address)
        yield connection


@contextmanager
def _short(path: Path) -> Iterator[str]:
    """A name of the path that fits into a socket address, however deep the directory is."""
    if not Path("/proc/self/fd").exists():
        yield str(path)
        return
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)
