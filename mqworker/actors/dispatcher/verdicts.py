"""Verdicts on deliveries whose worker died with them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mqworker.actors.dispatcher.workers import Flight, Hand
from mqworker.actors.run_slot import Running
from mqworker.errors import InvalidMessage
from mqworker.model.delivery import UnreadableDelivery
from mqworker.model.instant import After
from mqworker.model.record import decode_record, task_of
from mqworker.model.settlement import Bury, Crash, Failure, Release, Retry, Settlement

HARD_TIMEOUT = "hard time-out"

_LONGEST_PAUSE_MS = 600_000


def verdicts_on_lost_hand(hand: Hand, running: Running | None, cause: str) -> dict[str, list[Settlement]]:
    """On everything that a worker had when it died, by queue; `running` is what its slot says."""
    verdicts: dict[str, list[Settlement]] = {}
    for (queue, fence), flight in _known(hand):
        was_running = (
            flight.is_async or hand.threads > 1 or (running is not None and running.is_of((queue, fence)))
        )
        task = hand.tasks.get(task_of(flight.record).decode(), {})
        verdict = verdict_on_lost_flight(fence, flight.record, task, cause, was_running=was_running)
        verdicts.setdefault(queue, []).append(verdict)
    return verdicts


def verdicts_on_killed_by_drain(hand: Hand) -> dict[str, list[Settlement]]:
    """The same for a worker that was ended by no fault of its own: nothing is counted."""
    verdicts: dict[str, list[Settlement]] = {}
    for (queue, fence), flight in _known(hand):
        verdict = verdict_on_lost_flight(fence, flight.record, {}, "", was_running=False)
        verdicts.setdefault(queue, []).append(verdict)
    return verdicts


def _known(hand: Hand) -> Iterator[tuple[tuple[str, int], Flight]]:
    """Its flights but those whose wake-up has not come: the stock-taking finds these, or they come to us."""
    return ((key, flight) for key, flight in hand.flights.items() if flight.record)


def verdict_on_unbegun(fence: int, record: bytes) -> Settlement:
    """On a delivery that nobody began: back to the line, uncounted."""
    return verdict_on_lost_flight(fence, record, {}, "", was_running=False)


def verdict_on_lost_flight(
    fence: int, record: bytes, task: Mapping[str, Any], cause: str, *, was_running: bool
) -> Settlement:
    """Back to the line, uncounted, if it was not begun; else a failure (time-out) or a crash."""
    try:
        delivery = decode_record(record, fence)
    except InvalidMessage as error:
        return Bury(UnreadableDelivery(fence, record, str(error)), "undecodable")
    if not was_running:
        return Release(delivery)
    if cause.startswith(HARD_TIMEOUT):  # how the process ended stands behind it
        failure = Failure("HardTimeout", "the task ran past its hard time-out; its worker was killed")
        if delivery.failures >= task.get("retries", 0):
            return Bury(delivery, "timed out", failure, evidence={"cause": cause})
        return Retry(delivery, After(min(_LONGEST_PAUSE_MS, 1_000 * 2**delivery.failures)), failure)
    if delivery.max_crashes is not None and delivery.crashes + 1 >= delivery.max_crashes:
        failure = Failure("WorkerCrashed", f"the worker died over it {delivery.crashes + 1} times: {cause}")
        return Bury(delivery, "crashed", failure, evidence={"cause": cause})
    return Crash(delivery)
