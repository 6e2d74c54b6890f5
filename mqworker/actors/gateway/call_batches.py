"""A gateway's door to broker or dispatcher: calls gathered into turns, repeated after a restart. Pure.

A turn is one mail with all calls that came up meanwhile, from all clients. Two turns may be under way, each
in a lane of its own; when the peer was killed and another took its place, they are sent again as they were,
and the server recognises what was done already. So a call is carried out once, or answered as unknown.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from mqworker.actors.gateway.errors import APART, UNAVAILABLE, UNKNOWN
from mqworker.actors.mail import GatewayCalls, GatewayReplies

OnReply = Callable[[list[Any]], None]
"""Is given True and the value, or False, the kind of error and its text."""

PATIENCE_MS = 10_000
"""Longer than that of a desk, which as a rule answers first; this is for when there is no peer."""
_WINDOW = 2
_MOST_CALLS = 4_000
_MOST_BYTES = 4 * 1024 * 1024


@dataclass(slots=True)
class _Waiting:
    call: list[Any]
    on_reply: OnReply
    size: int
    since_ms: int


@dataclass(slots=True)
class _Turn:
    mail: GatewayCalls
    waiting_by_number: dict[int, _Waiting]
    oldest_ms: int
    is_stale: bool = False
    """Whether somebody was told that the outcome is unknown: its lane is not used again."""


@dataclass(slots=True)
class _Slot:
    """One of the turns that may be under way."""

    lane: str = field(default_factory=lambda: f"g{secrets.token_urlsafe(9)}")
    turn: _Turn | None = None


class Door:
    """One peer's door. `submit`, then send what `mails` gives."""

    def __init__(self) -> None:
        self._gathered: deque[_Waiting] = deque()
        self._apart: deque[_Waiting] = deque()
        self._slots = [_Slot() for _ in range(_WINDOW)]
        self._numbers = 0
        self._turns = 0
        self.answered = 0

    def __len__(self) -> int:
        under_way = sum(len(slot.turn.waiting_by_number) for slot in self._slots if slot.turn)
        return len(self._gathered) + len(self._apart) + under_way

    def submit(self, call: list[Any], on_reply: OnReply, size: int, now_ms: int) -> None:
        """Take a call; `size` is about how many bytes it has."""
        self._gathered.append(_Waiting(call, on_reply, size, now_ms))

    def mails(self) -> list[GatewayCalls]:
        """What is to be sent now: a turn for each free slot, as long as there are calls."""
        mails: list[GatewayCalls] = []
        for slot in self._slots:
            if slot.turn is None and (self._apart or self._gathered):
                slot.turn = self._next_turn(slot.lane)
                mails.append(slot.turn.mail)
        return mails

    def unanswered(self) -> list[GatewayCalls]:
        """What a new peer must be sent again, in the order of the turns."""
        turns = [slot.turn.mail for slot in self._slots if slot.turn is not None]
        return sorted(turns, key=lambda mail: mail.turn)

    def take(self, mail: GatewayReplies) -> None:
        """Answer the callers."""
        turn: _Turn | None = None
        for number, reply in zip(mail.numbers, mail.replies, strict=True):
            if turn is None or number not in turn.waiting_by_number:  # a mail is about one turn, as a rule
                turn = self._turn_of(number)
            waiting = turn.waiting_by_number.pop(number, None) if turn is not None else None
            if turn is None or waiting is None:
                continue
            if not reply[0] and reply[1] == APART:
                self._apart.append(waiting)
                continue
            turn.is_stale = turn.is_stale or (not reply[0] and reply[1] in {UNAVAILABLE, UNKNOWN})
            self.answered += 1
            waiting.on_reply(reply)
        self._free_slots()

    def give_up(self, now_ms: int) -> None:
        """Answer those who waited too long: nobody is there who could."""
        for gathered in (self._gathered, self._apart):
            while gathered and now_ms - gathered[0].since_ms >= PATIENCE_MS:
                waiting = gathered.popleft()
                waiting.on_reply([False, UNAVAILABLE, "nobody could carry it out in time; it was not sent"])
        for slot in self._slots:
            if slot.turn is not None and now_ms - slot.turn.oldest_ms >= PATIENCE_MS:
                _give_up_turn(slot.turn, now_ms)
        self._free_slots()

    def _next_turn(self, lane: str) -> _Turn:
        is_apart = bool(self._apart)
        source = self._apart if is_apart else self._gathered
        some: list[_Waiting] = []
        size = 0
        while source and len(some) < _MOST_CALLS and (not some or size + source[0].size <= _MOST_BYTES):
            size += source[0].size
            some.append(source.popleft())
        self._turns += 1
        numbers = list(range(self._numbers, self._numbers + len(some)))
        self._numbers += len(some)
        mail = GatewayCalls(numbers, [waiting.call for waiting in some], lane, self._turns, is_apart)
        return _Turn(mail, dict(zip(numbers, some, strict=True)), min(each.since_ms for each in some))

    def _turn_of(self, number: int) -> _Turn | None:
        for slot in self._slots:
            if slot.turn is not None and number in slot.turn.waiting_by_number:
                return slot.turn
        return None

    def _free_slots(self) -> None:
        for index, slot in enumerate(self._slots):
            if slot.turn is not None and not slot.turn.waiting_by_number:
                slot_is_stale, slot.turn = slot.turn.is_stale, None
                if slot_is_stale:
                    self._slots[index] = _Slot()


def _give_up_turn(turn: _Turn, now_ms: int) -> None:
    for number, waiting in list(turn.waiting_by_number.items()):
        if now_ms - waiting.since_ms >= PATIENCE_MS:
            del turn.waiting_by_number[number]
            turn.is_stale = True
            waiting.on_reply([False, UNKNOWN, "it was sent and not answered in time; it may have happened"])
