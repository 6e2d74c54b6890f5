"""Tickets: whether a worker or the dispatcher has a message that was handed over, decided exactly once.

A message that is handed over goes to the dispatcher and to a worker at the same time. Whoever is first to
change the worker's ticket has it: the worker redeems it and begins, or the dispatcher cancels it and gives
the message to whomever it likes. A ticket is a number in the worker's slot, beside what it runs; a lock on
that part of the file, held for a few instructions, makes looking and changing one step. The kernel lets go of
it with the process that held it.

Anybody who may publish on our channels can say that a message was handed over. So tickets and places are
numbers of 64 random bits, and the first message that comes with one uses it up: who cannot read the offer at
the server makes no worker run anything, not even by repeating what was heard on the channel.
"""

from __future__ import annotations

import fcntl
import os
import re
import struct
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, NamedTuple

from mqworker.actors.run_slot import MOST_WORKERS, SLOT_BYTES, mark_of, open_slots
from mqworker.model.quarantine import Quarantine

# The number, for what it was redeemed (a fence and the mark of its queue), and the state.
_TICKET = struct.Struct("<QqIB")
_NONE, _ISSUED, _REDEEMED = 0, 1, 2
_SECOND_HALF = SLOT_BYTES // 2
_SHOWN_BYTES = 40
# A fence of eighteen digits fits into the slot; a worker's number is below a thousand, or a little above.
_HANDED_OVER = re.compile(rb"([0-9]{1,18}) (?:-|([0-9]{1,4}):([0-9]{1,20})):([0-9a-f]{16}) ")
_NUMBER_BYTES = 8
_OFFERS_KEPT = 64
"""A message may be on its way that was handed over under one of the offers before the latest."""


class HandedOver(NamedTuple):
    """What enqueue.lua publishes."""

    fence: int
    worker: int | None
    """None: no worker may make an early start on it."""
    ticket: int
    place: str
    record: bytes


def read_handed_over(text: bytes) -> HandedOver | None:
    """Read `<fence> <worker>:<ticket>:<place> <record>`, or `-:<place>` where there is no ticket."""
    found = _HANDED_OVER.match(text)
    if found is None:
        return None
    fence, worker, number, place = found.groups()
    record = text[found.end() :]
    if worker is None:
        return HandedOver(int(fence), None, 0, place.decode(), record)
    return HandedOver(int(fence), int(worker), int(number), place.decode(), record)


def note_unreadable(quarantine: Quarantine, channel: str, text: bytes) -> None:
    """Something came on a channel for such messages that is not one."""
    quarantine.note("wake-up", channel, "hands over no message", text[:_SHOWN_BYTES])


def new_number() -> int:
    """A number that nobody can guess; never 0, which stands for none."""
    return int.from_bytes(os.urandom(_NUMBER_BYTES)) or 1


class Places:
    """The places for messages that the dispatcher offered in one queue: each is taken once."""

    def __init__(self) -> None:
        self._offers: deque[set[str]] = deque(maxlen=_OFFERS_KEPT)

    def offer(self, tickets: Sequence[str]) -> list[str]:
        """The tickets of a new offer, each with a place."""
        digits = os.urandom(_NUMBER_BYTES * len(tickets)).hex()
        size = 2 * _NUMBER_BYTES
        places = [digits[at : at + size] for at in range(0, len(digits), size)]
        self._offers.append(set(places))
        return [f"{ticket}:{place}" for ticket, place in zip(tickets, places, strict=True)]

    def take(self, place: str) -> bool:
        """Whether it was offered, and no message came for it before."""
        for offer in reversed(self._offers):
            if place in offer:
                offer.discard(place)
                return True
        return False


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
        _TICKET.pack_into(self._memory, _at(worker), number, 0, 0, _ISSUED if number else _NONE)

    def redeem(self, worker: int, number: int, queue: str, fence: int) -> bool:
        """By the worker: whether this delivery is its own now."""
        return self._use(worker, number, (number, fence, mark_of(queue), _REDEEMED))

    def refuse(self, worker: int, number: int) -> None:
        """By the worker: it does not begin what came with this ticket, nor anything else that may come."""
        self._use(worker, number, (0, 0, 0, _NONE))

    def _use(self, worker: int, number: int, entry: tuple[int, int, int, int]) -> bool:
        if not self._lock(worker):
            return False  # the dispatcher is about to decide, and will hand it out
        try:
            known, _, _, state = _TICKET.unpack_from(self._memory, _at(worker))
            if known != number or state != _ISSUED:
                return False
            _TICKET.pack_into(self._memory, _at(worker), *entry)
            return True
        finally:
            self._unlock(worker)

    def cancel(self, worker: int, number: int) -> Redeemed | str:
        """By the dispatcher: CANCELLED, what it was redeemed for, or UNDECIDED."""
        if not self._lock(worker):
            return UNDECIDED
        try:
            known, fence, queue_mark, state = _TICKET.unpack_from(self._memory, _at(worker))
            if known == number and state == _REDEEMED:
                return Redeemed(fence, queue_mark)
            _TICKET.pack_into(self._memory, _at(worker), 0, 0, 0, _NONE)
            return CANCELLED
        finally:
            self._unlock(worker)

    def withdraw_all(self) -> None:
        """By a new dispatcher: those of the one before it are good for nothing any more."""
        for worker in range(MOST_WORKERS):
            number, _, _, state = _TICKET.unpack_from(self._memory, _at(worker))
            if state == _ISSUED:
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
