"""Tickets: whether a worker or the dispatcher has a message that was handed over, decided exactly once.

A message that is handed over goes to the dispatcher and to a worker at the same time. Whoever is first to
change the worker's ticket has it: the worker redeems it and begins, or the dispatcher cancels it and gives
the message to whomever it likes. A ticket is a number in the worker's slot, beside what it runs; a lock on
that part of the file, held for a few instructions, makes looking and changing one step. The kernel lets go of
it with the process that held it.
"""

from __future__ import annotations

import fcntl
import re
import struct
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, NamedTuple

from mqworker.actors.run_slot import MOST_WORKERS, SLOT_BYTES, mark_of, open_slots
from mqworker.model.quarantine import Quarantine

# The number: 0 none, above 0 issued, below 0 redeemed; then for what: a fence and the mark of its queue.
_TICKET = struct.Struct("<qqI")
_SECOND_HALF = SLOT_BYTES // 2
_SHOWN_BYTES = 40
# Eighteen digits fit into the slot; a worker's number is below a thousand, or a little above.
_HANDED_OVER = re.compile(rb"([0-9]{1,18}) (?:-|([0-9]{1,4}):([0-9]{1,18})) ")


class HandedOver(NamedTuple):
    """What enqueue.lua publishes."""

    fence: int
    worker: int | None
    """None: no worker may make an early start on it."""
    ticket: int
    record: bytes


def read_handed_over(text: bytes) -> HandedOver | None:
    """Read `<fence> <worker>:<number> <record>` (`-` for no ticket); None when it has another form."""
    found = _HANDED_OVER.match(text)
    if found is None:
        return None
    fence, worker, number = found.groups()
    record = text[found.end() :]
    if worker is None:
        return HandedOver(int(fence), None, 0, record)
    return HandedOver(int(fence), int(worker), int(number), record)


def note_unreadable(quarantine: Quarantine, channel: str, text: bytes) -> None:
    """What came on a channel for such messages, and is none."""
    quarantine.note("wake-up", channel, "hands over no message", text[:_SHOWN_BYTES])


@dataclass(frozen=True, slots=True)
class Redeemed:
    """The worker was first: it runs this one, or has run it."""

    fence: int
    queue_mark: int


CANCELLED: Final = "cancelled"
"""The worker begins nothing with this ticket any more."""
UNDECIDED: Final = "undecided"
"""The worker holds the lock this moment: look again."""


class Tickets:
    """The tickets of all workers of a node, for one of its processes."""

    def __init__(self, path: str) -> None:
        # Kept open: closing any descriptor of a file lets go of all locks that the process has on it.
        self._descriptor, self._memory = open_slots(path)

    def issue(self, worker: int, number: int) -> None:
        """Written by the dispatcher where none is out; 0 for none, before a new worker hears of any."""
        _TICKET.pack_into(self._memory, _at(worker), number, 0, 0)

    def redeem(self, worker: int, number: int, queue: str, fence: int) -> bool:
        """By the worker: whether this delivery is its own now."""
        if not self._lock(worker):
            return False  # the dispatcher is about to decide, and will hand it out
        try:
            issued, _, _ = _TICKET.unpack_from(self._memory, _at(worker))
            if issued != number:
                return False
            _TICKET.pack_into(self._memory, _at(worker), -number, fence, mark_of(queue))
            return True
        finally:
            self._unlock(worker)

    def cancel(self, worker: int, number: int) -> Redeemed | str:
        """By the dispatcher: CANCELLED, what it was redeemed for, or UNDECIDED."""
        if not self._lock(worker):
            return UNDECIDED
        try:
            issued, fence, queue_mark = _TICKET.unpack_from(self._memory, _at(worker))
            if issued == -number:
                return Redeemed(fence, queue_mark)
            _TICKET.pack_into(self._memory, _at(worker), 0, 0, 0)
            return CANCELLED
        finally:
            self._unlock(worker)

    def withdraw_all(self) -> None:
        """By a new dispatcher: those of the one before it are good for nothing any more."""
        for worker in range(MOST_WORKERS):
            number, _, _ = _TICKET.unpack_from(self._memory, _at(worker))
            if number > 0:
                self.cancel(worker, number)

    def _lock(self, worker: int) -> bool:
        with suppress(BlockingIOError, PermissionError):  # which of the two depends on the system
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, _SECOND_HALF, _at(worker))
            return True
        return False

    def _unlock(self, worker: int) -> None:
        fcntl.lockf(self._descriptor, fcntl.LOCK_UN, _SECOND_HALF, _at(worker))


def _at(worker: int) -> int:
    return worker * SLOT_BYTES + _SECOND_HALF
