"""CPU wait: whether a process that is silent could have answered, or waited for a CPU all the time.

On a busy machine a process may get a few milliseconds of CPU in a second. Whoever ends silent processes
counts only the time in which they had a CPU or slept. One that hangs sleeps, or spins on a CPU that it has;
one that is stopped waits for nothing: they are found as soon as ever.

Linux counts for each thread how long it was ready to run and had no CPU. Elsewhere nothing is known, and all
time counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_PROCESSES = Path("/proc")
_NS_IN_MS = 1_000_000


class ThreadTimes(NamedTuple):
    """What the kernel has counted of one thread so far."""

    ran_ns: int
    waited_ns: int
    """How long it was ready to run without a CPU; the kernel adds to this when the thread gets one."""
    is_ready: bool
    """Whether it runs or waits for a CPU at this moment."""


Times = Mapping[int, ThreadTimes]
"""By thread."""


class CpuWait:
    """How long a process has waited for a CPU since an instant."""

    def __init__(self, pid: int, since_ms: int, read: Callable[[int], Times] | None = None) -> None:
        self._pid = pid
        self._since_ms = since_ms
        self._read = read or times_of
        self._before = self._read(pid)

    def ms(self, now_ms: int) -> int:
        """So far. Asked only about a process that is silent for too long: it reads some files."""
        return starved_ms(self._before, self._read(self._pid), now_ms - self._since_ms)


def starved_ms(before: Times, after: Times, passed_ms: int) -> int:
    """The longest that one of the threads waited for a CPU meanwhile.

    The longest, and not all together: many threads that each wait a little starve nobody.
    """
    never = ThreadTimes(0, 0, is_ready=False)
    longest = 0
    for thread, now in after.items():
        then = before.get(thread, never)
        # What waits right now is not counted yet; one that is ready and has not run since does not hang.
        has_only_waited = now.is_ready and now.ran_ns == then.ran_ns
        waited_ms = passed_ms if has_only_waited else (now.waited_ns - then.waited_ns) // _NS_IN_MS
        longest = max(longest, waited_ms)
    return min(longest, passed_ms)


def times_of(pid: int) -> dict[int, ThreadTimes]:
    """What is known of the threads of a process; nothing when it is gone, or the system does not tell."""
    found: dict[int, ThreadTimes] = {}
    with suppress(OSError, ValueError, IndexError):
        for thread in (_PROCESSES / str(pid) / "task").iterdir():
            with suppress(OSError, ValueError, IndexError):  # this thread has just ended
                ran, waited, _ = (thread / "schedstat").read_bytes().split()
                state = (thread / "stat").read_bytes().rpartition(b")")[2].split()[0]
                found[int(thread.name)] = ThreadTimes(int(ran), int(waited), is_ready=state == b"R")
    return found
