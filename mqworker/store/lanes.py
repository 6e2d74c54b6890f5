"""Lanes: how a repeated call is recognised. A lane runs one call at a time and numbers its calls.

The server keeps the newest number of each lane (parts/calls.lua), so remembering costs the same for
one message and for a million, and the record outlives whatever became of the messages. Numbers only go up:
whatever is not above the newest was sent before, and may arrive late (decision 13).
"""

from __future__ import annotations

import os
import secrets
from collections import deque


class Lane:
    """The right to make one call at a time under a name that nobody else uses."""

    __slots__ = ("name", "number")

    def __init__(self) -> None:
        self.name = secrets.token_urlsafe(9)
        self.number = 0

    def next_call(self) -> tuple[str, int]:
        """The numbering of a new call; the same call sent again keeps it."""
        self.number += 1
        return self.name, self.number


class LanePool:
    """Lanes of one process that are free. A fork leaves its parent's lanes alone."""

    def __init__(self) -> None:
        self._free: deque[Lane] = deque()
        self._pid = os.getpid()

    def take(self) -> Lane:
        """A lane that no other call uses. `deque` makes this safe between threads."""
        if self._pid != os.getpid():
            self._free, self._pid = deque(), os.getpid()
        try:
            return self._free.pop()
        except IndexError:
            return Lane()

    def give_back(self, lane: Lane) -> None:
        """Only after the call was answered: one that was given up may still arrive, its lane is dropped."""
        self._free.append(lane)
