"""Which servers and nodes of this test run are alive: so that a run that leaves one behind fails.

Everything that a run starts lives below one directory of its own (`ROOT`), as the place where its processes
work or in their command lines; what runs beside it, of another run, is not looked at. A process that is
detached, or has lost its parent, is found all the same.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

GONE_WITHIN_S = 20.0
_SIGNS = (b"valkey-server", b"mqworker", b"patient_node")
_OWN_SIGNS = (b"pytest",)


def make_root() -> Path:
    """A directory for everything temporary of this run; short, for the sockets in it."""
    root = Path(tempfile.mkdtemp(prefix="mqwt"))
    root.chmod(0o755)  # PostgreSQL and MariaDB run as users of their own
    tempfile.tempdir = os.environ["TMPDIR"] = str(root)
    return root


@dataclass(frozen=True, slots=True)
class Running:
    """A process of this run."""

    pid: int
    directory: str
    command: str


def running(root: Path) -> dict[int, Running]:
    """The servers and nodes of this run, by pid; nothing where there is no /proc."""
    found: dict[int, Running] = {}
    for entry in Path("/proc").iterdir() if Path("/proc/self").exists() else ():
        if entry.name.isdigit() and (process := _running(entry, str(root))) is not None:
            found[process.pid] = process
    return found


def _running(entry: Path, root: str) -> Running | None:
    with suppress(OSError):  # it ended meanwhile, or is a kernel's
        words = (entry / "cmdline").read_bytes()
        first = words[:400]
        if not any(sign in first for sign in _SIGNS) or any(sign in first for sign in _OWN_SIGNS):
            return None
        directory = str((entry / "cwd").readlink())
        if directory.startswith(root) or root.encode() in words:
            return Running(
                int(entry.name), directory, words.replace(b"\0", b" ").decode(errors="replace")[:300]
            )
    return None


def end_those_left(root: Path) -> list[Running]:
    """What is alive though there was time to end; it is ended now."""
    ends_at = time.monotonic() + GONE_WITHIN_S
    while (left := list(running(root).values())) and time.monotonic() < ends_at:
        time.sleep(0.05)
    for process in left:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
    return left
