"""The file of a node: it holds the run slots, and is locked as long as any process of the node lives.

The supervisor opens and locks it; its children inherit the lock, and the kernel lets go of it with the last
of them, however they ended. So whoever can lock the file of another node knows that its processes are gone:
what it held can be released at once, without waiting for its heartbeat to be missed.

Only files of this boot of this machine count: a lock says nothing about processes under another kernel. Where
children are spawned instead of forked they inherit no lock, so there it is not used.
"""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

_PREFIX = "slots"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def node_file(directory: Path, boot: str) -> Path:
    """Where the file of a node lies; `boot` is new for each start of a node."""
    return directory.resolve() / f"{_PREFIX}-{_machine()}-{boot}"


def lock_node_file(path: Path) -> int | None:
    """Make the file and lock it for this process and those it forks.

    None where locks are not inherited, and where no file can be made: whoever needs one will say so.
    """
    while sys.platform == "linux":
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError:
            return None
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if _is_at(descriptor, path):
            return descriptor
        os.close(descriptor)  # somebody found it before it was locked, took it for a leftover and removed it
    return None


def ended_nodes(own: Path) -> list[str]:
    """The boots of nodes beside this one of which no process is left."""
    if sys.platform != "linux":
        return []
    ended = []
    for path in own.parent.glob(f"{_PREFIX}-{_machine()}-*"):
        with suppress(OSError), _locked(path) as is_locked:
            if is_locked and path != own:
                ended.append(path.name.rpartition("-")[2])
    return ended


def forget_node(own: Path, boot: str) -> None:
    """Remove the file of a node that ended and of which nothing is left to be released."""
    path = node_file(own.parent, boot)
    with suppress(OSError), _locked(path) as is_locked:
        if is_locked:
            path.unlink()


@contextmanager
def _locked(path: Path) -> Iterator[bool]:
    descriptor = os.open(path, os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        yield False
    else:
        yield _is_at(descriptor, path)
    finally:
        os.close(descriptor)


def _is_at(descriptor: int, path: Path) -> bool:
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(descriptor), path.stat())
    return False


@cache
def _machine() -> str:
    """A mark of this boot of this machine."""
    try:
        return _BOOT_ID.read_text().replace("-", "")[:12]
    except OSError:
        return "unknown"
