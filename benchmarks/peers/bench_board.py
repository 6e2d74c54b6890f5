"""The board: a shared memory file on which every task leaves the time of its first run and how often it ran.

One counter for all contestants: no server, no lock, about half a microsecond. Layout, for a capacity of n:
n bytes "how often it ran", n int64 "sent at", n int64 "first ran at"; times are CLOCK_MONOTONIC in ns.
Standard library only: it is imported by the harness and in the environment of every contestant.
"""

from __future__ import annotations

import mmap
import time
from pathlib import Path
from struct import Struct

BYTES_PER_TASK = 17
_NEVER = b"\0"
_INSTANT = Struct("<q")
_MOST_RUNS = 255


class Board:
    """The file, mapped. Tasks are numbered from 0; each number is used once in the life of a board."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
        self.capacity = len(self._map) // BYTES_PER_TASK
        self._sent = self.capacity
        self._ran = self.capacity * 9

    @classmethod
    def create(cls, path: Path, capacity: int) -> Board:
        """An empty board; the file has holes, so that what is not used costs nothing."""
        with path.open("wb") as file:
            file.truncate(capacity * BYTES_PER_TASK)
        return cls(path)

    def note_sent(self, index: int) -> None:
        """The producer is about to enqueue this task."""
        _INSTANT.pack_into(self._map, self._sent + 8 * index, time.monotonic_ns())

    def note_run(self, index: int) -> None:
        """The task runs: the time of the first run stays, the runs are counted."""
        runs = self._map[index]
        if runs == 0:
            _INSTANT.pack_into(self._map, self._ran + 8 * index, time.monotonic_ns())
        if runs < _MOST_RUNS:
            self._map[index] = runs + 1

    def first_missing(self, begin: int, end: int) -> int:
        """The first task of this range that never ran; `end` if all did."""
        found = self._map.find(_NEVER, begin, end)
        return end if found < 0 else found

    def runs(self, begin: int, end: int) -> bytes:
        """How often each task of this range ran."""
        return self._map[begin:end]

    def done(self, begin: int, end: int) -> int:
        """How many tasks of this range ran at least once."""
        return end - begin - self.runs(begin, end).count(_NEVER)

    def sent_at(self, begin: int, end: int) -> tuple[int, ...]:
        """When the tasks of this range were sent, in ns; 0 for those nobody noted."""
        return self._instants(self._sent, begin, end)

    def ran_at(self, begin: int, end: int) -> tuple[int, ...]:
        """When the tasks of this range first ran, in ns; 0 for those that did not."""
        return self._instants(self._ran, begin, end)

    def _instants(self, offset: int, begin: int, end: int) -> tuple[int, ...]:
        data = self._map[offset + 8 * begin : offset + 8 * end]
        return Struct(f"<{end - begin}q").unpack(data)
