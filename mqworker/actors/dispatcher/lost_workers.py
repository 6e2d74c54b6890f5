"""Losses: workers whose pipe has ended, and what they had in their hands, until their death is known."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mqworker.actors.dispatcher.workers import Crew, Hand
from mqworker.actors.run_slot import Running

EVIDENCE_WAIT_MS = 1_000
"""So long the dispatcher waits for the supervisor's word on how a worker died."""


@dataclass(slots=True)
class LostHand:
    """A worker that died, as a rule."""

    hand: Hand
    running: Running | None
    since_ms: int
    """When its pipe ended, or when its own end was last asked for."""


class Losses:
    """Waits for the evidence. Pure."""

    def __init__(self) -> None:
        self._lost: list[LostHand] = []

    def __len__(self) -> int:
        return len(self._lost)

    def hands(self) -> Iterator[Hand]:
        """All that are waited for."""
        return (lost.hand for lost in self._lost)

    def add(self, hand: Hand, running: Running | None, now_ms: int) -> None:
        """The pipe to a worker ended; `running` is what its slot said then."""
        self._lost.append(LostHand(hand, running, now_ms))

    def note_death(self, crew: Crew, worker: str, cause: str) -> None:
        """The supervisor's word: before or after the end of the pipe, but before the next Attach."""
        dying = [hand for hand in self.hands() if hand.name == worker and hand.cause is None]
        hand = dying[0] if dying else crew.get(worker)
        if hand is not None:
            hand.cause = cause

    def take_dead(self, crew: Crew, now_ms: int) -> list[LostHand]:
        """Those that are surely dead: the supervisor said so, or started another in their place."""
        dead = [
            lost
            for lost in self._lost
            if lost.hand.cause is not None or (_is_overdue(lost, now_ms) and crew.get(lost.hand.name))
        ]
        self._lost = [lost for lost in self._lost if lost not in dead]
        return dead

    def take_deaf(self, now_ms: int) -> list[str]:
        """Those of whose death nobody speaks: only their pipe broke. To be killed; asked again and again."""
        deaf = [lost for lost in self._lost if _is_overdue(lost, now_ms)]
        for lost in deaf:
            lost.since_ms = now_ms
        return [lost.hand.name for lost in deaf]


def _is_overdue(lost: LostHand, now_ms: int) -> bool:
    return now_ms - lost.since_ms >= EVIDENCE_WAIT_MS
