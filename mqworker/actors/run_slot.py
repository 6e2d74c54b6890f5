"""Run slots: what each worker is running right now, in memory that the dispatcher can read after its death.

A worker writes the fence, the hard deadline and a mark of the queue before each task, at the price of one
store to memory; no mail is sent. When a worker is killed, its slot is the evidence of what it was doing; when
a task overruns, it says so.
"""

from __future__ import annotations

import mmap
import os
import struct
import zlib
from dataclasses import dataclass
from functools import cache

_RUNNING = struct.Struct("<qqI")
_MOST_WORKERS = 1_024  # as the setting `workers` allows; an unused slot takes no memory
SLOT_BYTES = 64
"""A cache line each: workers on different cores do not disturb one another. Its second half holds tickets."""


@dataclass(frozen=True, slots=True)
class Running:
    """The delivery that a worker has begun, and when it must be over at last (monotonic ms, 0 never)."""

    fence: int
    hard_deadline_ms: int
    queue_mark: int

    def is_of(self, flight: tuple[str, int]) -> bool:
        """Whether it is the one of this queue, with this fence."""
        queue, fence = flight
        return fence == self.fence and mark_of(queue) == self.queue_mark

    def is_over(self, now_ms: int) -> bool:
        """Whether it has a hard deadline, and that has passed."""
        return 0 < self.hard_deadline_ms < now_ms


class RunSlots:
    """The slots of all workers of a node, in one small file that is mapped by all its processes."""

    def __init__(self, path: str) -> None:
        descriptor, self._memory = open_slots(path)
        os.close(descriptor)

    def begin(self, worker: int, queue: str, fence: int, hard_deadline_ms: int) -> None:
        """Written by the worker, before the task's first line."""
        _RUNNING.pack_into(self._memory, worker * SLOT_BYTES, fence, hard_deadline_ms, mark_of(queue))

    def end(self, worker: int) -> None:
        """Written by the worker, after the task."""
        _RUNNING.pack_into(self._memory, worker * SLOT_BYTES, 0, 0, 0)

    def running(self, worker: int) -> Running | None:
        """Read by the dispatcher; None when the worker has begun nothing."""
        fence, hard_deadline_ms, queue_mark = _RUNNING.unpack_from(self._memory, worker * SLOT_BYTES)
        return Running(fence, hard_deadline_ms, queue_mark) if fence else None


def open_slots(path: str) -> tuple[int, mmap.mmap]:
    """The file's descriptor and its memory."""
    size = _MOST_WORKERS * SLOT_BYTES
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if os.fstat(descriptor).st_size < size:
            os.ftruncate(descriptor, size)
        return descriptor, mmap.mmap(descriptor, size)
    except BaseException:
        os.close(descriptor)
        raise


@cache
def mark_of(queue: str) -> int:
    """A number for a queue: two queues may give out the same fence, in the same millisecond."""
    return zlib.crc32(queue.encode())
