"""Run slots: what each worker has begun, in memory that the dispatcher can read after its death.

A worker writes the fence, the hard deadline and a mark of the queue before each task, at the price of one
store to memory; no mail is sent. When a worker is killed, its slot is the evidence of what it was doing; when
a task overruns, it says so. What runs in threads and on the event loop is noted in a table beside the slots,
which a worker adds to the file when it first needs it.

Nothing is ever cleared: a task that ended is only marked as such. Whether its report was accepted the
dispatcher knows, and until then what is written here is the evidence.
"""

from __future__ import annotations

import itertools
import mmap
import os
import struct
import sys
import zlib
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache

_RUNNING = struct.Struct("<qqIB")
_STATE_AT = 20
_BESIDE = struct.Struct("<qIB3x")
_BESIDE_STATE_AT = 12
_IS_RUNNING, _HAS_ENDED, _RUN_TOGETHER = 1, 2, 3
_BEGUN = (_IS_RUNNING, _RUN_TOGETHER)
MOST_WORKERS = 1_024  # as the setting `workers` allows; an unused slot takes no memory
SLOT_BYTES = 64
"""A cache line each: workers on different cores do not disturb one another. Its second half holds tickets."""
_SLOTS_BYTES = MOST_WORKERS * SLOT_BYTES
_TABLE_BYTES = 524_288
"""For each worker, behind the slots of all: room for twice what `concurrency` and `threads` allow."""
_LOGGED = struct.Struct("<qqI4x")
_LOG_ENTRIES = 4_096
"""The newest runs of a worker that traces: more than it can have run without a word to its dispatcher."""
_LOG_AT = _TABLE_BYTES - _LOG_ENTRIES * _LOGGED.size

Key = tuple[str, int]
"""A delivery: its queue and its fence, for two queues may give out the same fence."""


@dataclass(frozen=True, slots=True)
class Running:
    """What a worker's main thread runs, and when it must be over at last (monotonic ms, 0 never)."""

    fence: int
    hard_deadline_ms: int
    queue_mark: int

    def is_of(self, flight: Key) -> bool:
        """Whether it is the one of this queue, with this fence."""
        queue, fence = flight
        return fence == self.fence and mark_of(queue) == self.queue_mark

    def is_over(self, now_ms: int) -> bool:
        """Whether it has a hard deadline, and that has passed."""
        return 0 < self.hard_deadline_ms < now_ms


@dataclass(frozen=True, slots=True)
class Begun:
    """What a worker has begun so far, each as the mark of a queue and a fence; most were reported since."""

    running: frozenset[tuple[int, int]] = frozenset()
    ended: frozenset[tuple[int, int]] = frozenset()
    last_in_order: tuple[int, int] | None = None
    """The last one that the main thread began, still running or not; it runs them in order of arrival."""
    log: Mapping[tuple[int, int], int] = field(default_factory=dict)
    """Where runs are traced: the newest of them, in whichever thread, and when each began (ms since 1970)."""
    together: frozenset[tuple[int, int]] = frozenset()
    """Of those that run, the first ones of batches of several."""

    def later(self, other: Begun) -> Begun:
        """The same worker, looked at once more."""
        ended = self.ended | other.ended
        log = {**self.log, **other.log}
        together = self.together | other.together
        return Begun((self.running | other.running) - ended, ended, other.last_in_order, log, together)

    def of(self, flights: Iterable[tuple[Key, bool]]) -> tuple[set[Key], set[Key]]:
        """Of deliveries in the order in which the worker got them: those that run, those that have ended.

        With each is said whether the main thread runs it, one after another.
        """
        running: set[Key] = set()
        ended: set[Key] = set()
        before: list[Key] = []
        for key, is_in_order in flights:
            known = (mark_of(key[0]), key[1])
            if known == self.last_in_order:
                ended.update(before)
            if known in self.running:
                running.add(key)
            elif known in self.ended:
                ended.add(key)
            elif is_in_order:
                before.append(key)
        return running, ended


class RunSlots:
    """The slots of all workers of a node, in one small file that is mapped by all its processes."""

    def __init__(self, path: str) -> None:
        # Kept open: closing any descriptor of a file lets go of the locks of tickets.py.
        self._descriptor, self._memory = open_slots(path)

    def begin(self, worker: int, queue: str, fence: int, hard_deadline_ms: int) -> None:
        """Written by the worker, before the task's first line."""
        _RUNNING.pack_into(
            self._memory, worker * SLOT_BYTES, fence, hard_deadline_ms, mark_of(queue), _IS_RUNNING
        )

    def begin_together(self, worker: int, queue: str, fence: int, hard_deadline_ms: int) -> None:
        """The same for a batch of several, by its first one; the dispatcher knows the others."""
        _RUNNING.pack_into(
            self._memory, worker * SLOT_BYTES, fence, hard_deadline_ms, mark_of(queue), _RUN_TOGETHER
        )

    def end(self, worker: int) -> None:
        """Written by the worker, after the task: what it was stays, until the report was accepted."""
        self._memory[worker * SLOT_BYTES + _STATE_AT] = _HAS_ENDED

    def all_begun(self) -> list[Begun]:
        """What all workers run, or ran when they died."""
        each = (self.begun(worker) for worker in range(MOST_WORKERS))
        return [begun for begun in each if begun.running or begun.log]

    def running(self, worker: int) -> Running | None:
        """Read by the dispatcher; None when the worker's main thread runs nothing."""
        fence, deadline_ms, mark, state = _RUNNING.unpack_from(self._memory, worker * SLOT_BYTES)
        return Running(fence, deadline_ms, mark) if fence and state in _BEGUN else None

    def beside(self, worker: int, most: int) -> Beside:
        """For the worker: where it notes what runs beside its main thread, so many at the most."""
        return Beside(self._descriptor, worker, most)

    def run_log(self, worker: int) -> RunLog:
        """For a worker that traces: where it notes when its runs began."""
        return RunLog(self._descriptor, worker)

    def begun(self, worker: int) -> Begun:
        """Read by the dispatcher when a worker is lost: everything of which there is a trace."""
        by_state: dict[int, set[tuple[int, int]]] = {
            _IS_RUNNING: set(),
            _HAS_ENDED: set(),
            _RUN_TOGETHER: set(),
        }
        fence, _, mark, state = _RUNNING.unpack_from(self._memory, worker * SLOT_BYTES)
        last_in_order = (mark, fence) if fence else None
        if last_in_order is not None:
            by_state.get(state, by_state[_HAS_ENDED]).add(last_in_order)
        table, log = os.pread(self._descriptor, _TABLE_BYTES, _table_at(worker)), {}
        if len(table) == _TABLE_BYTES:
            for fence, mark, state in _BESIDE.iter_unpack(table[:_LOG_AT]):
                if fence:
                    by_state.get(state, by_state[_HAS_ENDED]).add((mark, fence))
            logged = _LOGGED.iter_unpack(table[_LOG_AT:])
            log = {(mark, fence): at_ms for fence, at_ms, mark in logged if fence}
        together = frozenset(by_state[_RUN_TOGETHER])
        running, ended = together | by_state[_IS_RUNNING], frozenset(by_state[_HAS_ENDED])
        return Begun(running, ended, last_in_order, log, together)


class Beside:
    """A worker's table of what runs in threads and on its event loop; any thread may write."""

    def __init__(self, descriptor: int, worker: int, most: int) -> None:
        _make_room(descriptor, _table_at(worker), _TABLE_BYTES)
        self._memory = mmap.mmap(descriptor, _TABLE_BYTES, offset=_table_at(worker))
        # The place that was free for the longest is taken first: traces of what has ended last a while.
        self._free = deque(range(min(2 * most, _LOG_AT // _BESIDE.size)))

    def begin(self, queue: str, fence: int) -> int:
        """Note that a delivery begins: its place in the table."""
        place = self._free.popleft()
        _BESIDE.pack_into(self._memory, place * _BESIDE.size, fence, mark_of(queue), _IS_RUNNING)
        return place

    def begin_together(self, queue: str, fence: int) -> int:
        """The same for a batch of several, by its first one."""
        place = self._free.popleft()
        _BESIDE.pack_into(self._memory, place * _BESIDE.size, fence, mark_of(queue), _RUN_TOGETHER)
        return place

    def end(self, place: int) -> None:
        """It has ended; what it was stays readable until the place is needed."""
        self._memory[place * _BESIDE.size + _BESIDE_STATE_AT] = _HAS_ENDED
        self._free.append(place)


class RunLog:
    """The newest runs of a worker that traces; any thread may write.

    From the slot it is known what a worker ran last. What it ran before that, and had not reported when it
    and its dispatcher were killed, is known from here alone.
    """

    def __init__(self, descriptor: int, worker: int) -> None:
        _make_room(descriptor, _table_at(worker), _TABLE_BYTES)
        self._memory = mmap.mmap(descriptor, _TABLE_BYTES, offset=_table_at(worker))
        # Behind the newest: what a worker before this one noted there may be needed yet.
        starts = [at_ms for _, at_ms, _ in _LOGGED.iter_unpack(self._memory[_LOG_AT:])]
        self._numbers = itertools.count(starts.index(max(starts)) + 1)

    def note(self, queue: str, fence: int, at_ms: int) -> None:
        """Before the task's first line."""
        place = next(self._numbers) % _LOG_ENTRIES
        _LOGGED.pack_into(self._memory, _LOG_AT + place * _LOGGED.size, fence, at_ms, mark_of(queue))


def open_slots(path: str) -> tuple[int, mmap.mmap]:
    """The file's descriptor and its memory."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _make_room(descriptor, 0, _SLOTS_BYTES)
        return descriptor, mmap.mmap(descriptor, _SLOTS_BYTES)
    except OSError as error:
        os.close(descriptor)
        raise OSError(error.errno, error.strerror, path) from error
    except BaseException:
        os.close(descriptor)
        raise


def _make_room(descriptor: int, start: int, size: int) -> None:
    """Blocks and not only a length: on a full disk this says so, where a write to memory would end us.

    It never shortens a file that another worker just grew.
    """
    if sys.platform == "linux":
        os.posix_fallocate(descriptor, start, size)
    elif os.fstat(descriptor).st_size < start + size:
        os.pwrite(descriptor, b"\0", start + size - 1)


@cache
def mark_of(queue: str) -> int:
    """A number for a queue: two queues may give out the same fence, in the same millisecond."""
    return zlib.crc32(queue.encode())


def _table_at(worker: int) -> int:
    return _SLOTS_BYTES + worker * _TABLE_BYTES
