"""Lost workers: what becomes of the deliveries that a worker had when it died. The one judge of that.

Suspicion is not guilt. What a worker had not begun goes back to its line as if nothing had happened. What it
ran alone when it died counts a crash. What it ran beside others is a suspect: it runs again with nothing
beside it, until it has ended once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from mqworker.actors.dispatcher.workers import Crew, Flight, Hand
from mqworker.actors.frame import NO_MAIL
from mqworker.actors.run_slot import Begun, Key, mark_of
from mqworker.errors import InvalidMessage
from mqworker.model.crash_limit import after_crash
from mqworker.model.delivery import Delivery, UnreadableDelivery
from mqworker.model.instant import After
from mqworker.model.record import decode_record, task_of
from mqworker.model.settlement import (
    UNKNOWN_TASK,
    Bury,
    Failure,
    Park,
    Release,
    Retry,
    Settlement,
    Suspect,
)
from mqworker.tasks.running.run import UNKNOWN_TASK_MS

EVIDENCE_WAIT_MS = 1_000
"""So long the dispatcher waits for the supervisor's word on how a worker died."""
HARD_TIMEOUT = "hard time-out"
PIPE_BROKE = "its pipe broke"
CANCELLED = "cancelled"
"""Why workers are killed; how the process ended stands behind it in their cause of death."""

_LONGEST_PAUSE_MS = 600_000


@dataclass(slots=True)
class LostWorker:
    """A worker that died, as a rule: its pipe has ended."""

    hand: Hand
    begun: Begun
    since_ms: int
    """When its pipe ended, or when its own end was last asked for."""


class LostWorkers:
    """Waits for the evidence of how they died. Pure."""

    def __init__(self) -> None:
        self._lost: list[LostWorker] = []

    def __len__(self) -> int:
        return len(self._lost)

    def hands(self) -> Iterator[Hand]:
        """All that are waited for."""
        return (lost.hand for lost in self._lost)

    def add(self, hand: Hand, begun: Begun, now_ms: int) -> None:
        """The pipe to a worker ended; `begun` is what its slot said then."""
        self._lost.append(LostWorker(hand, begun, now_ms))

    def put_back(self, lost: LostWorker) -> None:
        """It could not be judged yet."""
        self._lost.append(lost)

    def note_death(self, crew: Crew, worker: str, cause: str, begun: Begun) -> None:
        """The supervisor's word: before or after the end of the pipe, but before the next Attach.

        `begun` is what the slot says now: a worker whose pipe broke may have gone on after that.
        """
        for lost in self._lost:
            if lost.hand.name == worker and lost.hand.cause is None:
                lost.hand.cause, lost.begun = cause, lost.begun.later(begun)
                return
        hand = crew.get(worker)
        if hand is not None:
            hand.cause = cause

    def take_dead(self, crew: Crew, now_ms: int) -> list[LostWorker]:
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


def _is_overdue(lost: LostWorker, now_ms: int) -> bool:
    return now_ms - lost.since_ms >= EVIDENCE_WAIT_MS


# The judge. Pure.


def settlements_of_lost(hand: Hand, begun: Begun, cause: str) -> dict[str, list[Settlement]]:
    """On everything that a worker had when it died, by queue."""
    accused = _accused(hand, begun, cause)
    settlements: dict[str, list[Settlement]] = {}
    for key, flight in hand.flights.items():
        task = hand.tasks.get(task_of(flight.record).decode(errors="replace"), {})
        verdict = _verdict(key, flight, task, cause, len(accused) if key in accused else 0)
        settlements.setdefault(flight.queue, []).append(verdict)
    return settlements


def settlements_of_drained(hand: Hand) -> dict[str, list[Settlement]]:
    """The same for a worker that was ended by no fault of its own: nothing is counted."""
    settlements: dict[str, list[Settlement]] = {}
    for (queue, fence), flight in hand.flights.items():
        settlements.setdefault(queue, []).append(release(fence, flight.record))
    return settlements


def settlement_of_stray(fence: int, record: bytes, cause: str, accused: int) -> Settlement:
    """The same for one whose worker ended with the dispatcher; `accused` ran in it then, 0: this did not."""
    delivery = _delivery(fence, record)
    if not isinstance(delivery, Delivery):
        return _unreadable(delivery)
    return _judged(delivery, cause, accused)


def release(fence: int, record: bytes) -> Settlement:
    """For a delivery that nobody began: back to the line, uncounted."""
    delivery = _delivery(fence, record)
    return Release(delivery) if isinstance(delivery, Delivery) else _unreadable(delivery)


def set_aside(fence: int, record: bytes) -> Settlement:
    """For a delivery whose task no worker here knows: parked for a node that does."""
    delivery = _delivery(fence, record)
    if not isinstance(delivery, Delivery):
        return _unreadable(delivery)
    failure = Failure("UnknownTask", f"no task is named {delivery.task!r} on this node")
    return Park(delivery, After(UNKNOWN_TASK_MS), failure, UNKNOWN_TASK)


def park(fence: int, record: bytes, pause_ms: int) -> Settlement:
    """For a delivery that must run alone and found no empty worker: back to the line later, uncounted."""
    delivery = _delivery(fence, record)
    if not isinstance(delivery, Delivery):
        return _unreadable(delivery)
    told = "a worker died while it ran, so it runs alone; all workers have something else to do"
    return Park(delivery, After(pause_ms), Failure("WaitsToRunAlone", told))


def _accused(hand: Hand, begun: Begun, cause: str) -> set[Key]:
    """Which of its deliveries may have killed it."""
    is_in_order = hand.threads == 1
    running, ended = begun.of(
        (key, is_in_order and not flight.is_async) for key, flight in hand.flights.items()
    )
    if cause.startswith(HARD_TIMEOUT):
        # Only the main thread's task has a hard deadline; what ran beside it is known to be innocent.
        return {key for key in running if begun.last_in_order == (mark_of(key[0]), key[1])}
    if cause.startswith((PIPE_BROKE, NO_MAIL)):
        return running | ended  # who wrote into the pipe may have ended since, but its report was not read
    return running or ended


def _verdict(key: Key, flight: Flight, task: Mapping[str, Any], cause: str, accused: int) -> Settlement:
    """`accused` is how many may have killed the worker; 0 when this one is not among them."""
    delivery = _delivery(key[1], flight.record)
    if not isinstance(delivery, Delivery):
        return _unreadable(delivery)
    if accused and cause.startswith(HARD_TIMEOUT):  # how the process ended stands behind it
        return _timed_out(delivery, task, cause)
    return _judged(delivery, cause, accused)


def _judged(delivery: Delivery, cause: str, accused: int) -> Settlement:
    if accused == 0:
        return Release(delivery)
    return after_crash(delivery, cause) if accused == 1 else Suspect(delivery, cause)


def _timed_out(delivery: Delivery, task: Mapping[str, Any], cause: str) -> Settlement:
    failure = Failure("HardTimeout", "the task ran past its hard time-out; its worker was killed")
    if delivery.failures >= task.get("retries", 0):
        return Bury(delivery, "timed out", failure, evidence={"cause": cause})
    return Retry(delivery, After(min(_LONGEST_PAUSE_MS, 1_000 * 2**delivery.failures)), failure)


def _delivery(fence: int, record: bytes) -> Delivery | UnreadableDelivery:
    try:
        return decode_record(record, fence)
    except InvalidMessage as error:
        return UnreadableDelivery(fence, record, str(error))


def _unreadable(delivery: UnreadableDelivery) -> Settlement:
    return Bury(delivery, "undecodable")
