"""Lost workers: what becomes of the deliveries that a worker had when it died. The one judge of that.

Suspicion is not guilt. What a worker had not begun goes back to its queue as if nothing had happened. A
delivery that ran alone when its worker died counts a crash. One that ran beside others is a suspect: it runs
again with nothing beside it, until it has ended once. What ran in one call with others, as a batch, runs
again with half of them at the most, so that after a few deaths the guilty one is alone.

The application's hooks run in a worker, for only workers have the application's code: the next one that takes
work is told (`CrashReports`). It is told once, and not again if that worker dies too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from mqworker.actors.actor import Post
from mqworker.actors.dispatcher.workers import Flight, Workers, WorkerState
from mqworker.actors.frame import NO_MAIL
from mqworker.actors.mail import DeliveryBuried
from mqworker.actors.run_slot import Begun, Key, mark_of
from mqworker.errors import InvalidMessage
from mqworker.log import Logger
from mqworker.model.batch import half_of
from mqworker.model.crash_limit import CRASHED, after_crash
from mqworker.model.delivery import Delivery, UnreadableDelivery
from mqworker.model.instant import After
from mqworker.model.record import LARGEST_RECORD_BYTES, decode_record, task_of
from mqworker.model.run_span import WORKER_CRASHED
from mqworker.model.settlement import (
    UNKNOWN_TASK,
    Bury,
    Crash,
    Failure,
    Park,
    Release,
    RetryAt,
    Settlement,
    Suspect,
)
from mqworker.tasks.running.run import UNKNOWN_TASK_MS

EVIDENCE_WAIT_MS = 1_000
"""How long the dispatcher waits for the supervisor to say how a worker died."""
HARD_TIMEOUT = "hard time-out"
PIPE_BROKE = "its pipe broke"
CANCELLED = "cancelled"
"""Why workers are killed; how the process ended stands behind it in their cause of death."""

_LONGEST_PAUSE_MS = 600_000


@dataclass(slots=True)
class LostWorker:
    """A worker that died, as a rule: its pipe has ended."""

    worker: WorkerState
    begun: Begun
    since_ms: int
    """When its pipe ended, or when its own end was last asked for."""

    @property
    def cause(self) -> str:
        """How it died, as far as is known."""
        return self.worker.cause or "unknown"


class LostWorkers:
    """Waits for the evidence of how they died. Pure."""

    def __init__(self) -> None:
        self._lost: list[LostWorker] = []

    def __len__(self) -> int:
        return len(self._lost)

    def workers(self) -> Iterator[WorkerState]:
        """All that are waited for."""
        return (lost.worker for lost in self._lost)

    def add(self, worker: WorkerState, begun: Begun, now_ms: int) -> None:
        """The pipe to a worker ended; `begun` is what its slot said then."""
        self._lost.append(LostWorker(worker, begun, now_ms))

    def put_back(self, lost: LostWorker) -> None:
        """It could not be judged yet."""
        self._lost.append(lost)

    def note_death(self, workers: Workers, worker: str, cause: str, begun: Begun, rss_bytes: int = 0) -> None:
        """The supervisor's word: before or after the end of the pipe, but before the next Attach.

        `begun` is what the slot says now: a worker whose pipe broke may have gone on after that.
        """
        for lost in self._lost:
            if lost.worker.name == worker and lost.worker.cause is None:
                lost.worker.cause, lost.begun = cause, lost.begun.later(begun)
                lost.worker.rss_bytes = rss_bytes
                return
        state = workers.get(worker)
        if state is not None:
            state.cause, state.rss_bytes = cause, rss_bytes

    def take_dead(self, workers: Workers, now_ms: int) -> list[LostWorker]:
        """Those that are surely dead: the supervisor said so, or started another in their place."""
        dead = [
            lost
            for lost in self._lost
            if lost.worker.cause is not None or (_is_overdue(lost, now_ms) and workers.get(lost.worker.name))
        ]
        self._lost = [lost for lost in self._lost if lost not in dead]
        return dead

    def take_unreachable(self, now_ms: int) -> list[str]:
        """Workers whose pipe broke and whose death nobody reports; listed until they have been killed."""
        overdue = [lost for lost in self._lost if _is_overdue(lost, now_ms)]
        for lost in overdue:
            lost.since_ms = now_ms
        return [lost.worker.name for lost in overdue]


def _is_overdue(lost: LostWorker, now_ms: int) -> bool:
    return now_ms - lost.since_ms >= EVIDENCE_WAIT_MS


# The judge. Pure.


def settlements_of(lost: LostWorker, *, is_draining: bool) -> dict[str, list[Settlement]]:
    """What becomes of its deliveries, by queue; nothing is counted when it was ended on purpose."""
    if is_draining or lost.cause.startswith(CANCELLED):
        return settlements_of_drained(lost.worker)
    return settlements_of_lost(lost.worker, lost.begun, lost.cause)


def settlements_of_lost(worker: WorkerState, begun: Begun, cause: str) -> dict[str, list[Settlement]]:
    """On everything that a worker had when it died, by queue."""
    accused = {each for key in _accused(worker, begun, cause) for each in batch_of(worker, key)}
    sizes = Counter((key[0], flight.together) for key, flight in worker.flights.items() if flight.together)
    settlements: dict[str, list[Settlement]] = {}
    for key, flight in worker.flights.items():
        task = worker.tasks.get(task_of(flight.record).decode(errors="replace"), {})
        company = _Company(len(accused) if key in accused else 0, sizes.get((key[0], flight.together), 1))
        settlement = _settlement(key, flight, task, cause, company)
        settlements.setdefault(flight.queue, []).append(settlement)
    return settlements


def batch_of(worker: WorkerState, key: Key) -> set[Key]:
    """What runs together with one of its deliveries, itself included."""
    first = worker.flights[key].together
    if not first:
        return {key}
    return {each for each, flight in worker.flights.items() if flight.together == first and each[0] == key[0]}


def settlements_of_drained(worker: WorkerState) -> dict[str, list[Settlement]]:
    """The same for a worker that was ended by no fault of its own: nothing is counted."""
    settlements: dict[str, list[Settlement]] = {}
    for (queue, fence), flight in worker.flights.items():
        settlements.setdefault(queue, []).append(release(fence, flight.record))
    return settlements


def settlement_of_stray(fence: int, record: bytes, cause: str, accused: int) -> Settlement:
    """The same for one whose worker ended with the dispatcher; `accused` ran in it then, 0: this did not."""
    delivery = _delivery(fence, record)
    if not isinstance(delivery, Delivery):
        return _unreadable(delivery)
    return _judged(delivery, cause, _Company(accused))


class _Company(NamedTuple):
    """What ran with a delivery when its worker died."""

    accused: int
    """How many may have killed the worker; 0 when this one is not among them."""
    batch: int = 1
    """How many of them ran in one call with it, itself included."""


def release(fence: int, record: bytes) -> Settlement:
    """For a delivery that nobody began: back to its queue, uncounted."""
    delivery = _delivery(fence, record)
    return Release(delivery) if isinstance(delivery, Delivery) else _unreadable(delivery)


def set_aside(fence: int, record: bytes) -> Settlement:
    """For a delivery whose task no worker here knows: parked for a node that does, unless it is no record."""
    delivery = _delivery(fence, record)
    if not isinstance(delivery, Delivery):
        return _unreadable(delivery)
    failure = Failure("UnknownTask", f"no task is named {delivery.task!r} on this node")
    return Park(delivery, After(UNKNOWN_TASK_MS), failure, UNKNOWN_TASK)


def park(fence: int, record: bytes, pause_ms: int) -> Settlement:
    """For a delivery that must run alone and found no empty worker: back to its queue later, uncounted."""
    delivery = _delivery(fence, record)
    if not isinstance(delivery, Delivery):
        return _unreadable(delivery)
    told = "a worker died while it ran, so it runs alone; all workers have something else to do"
    return Park(delivery, After(pause_ms), Failure("WaitsToRunAlone", told))


def _accused(worker: WorkerState, begun: Begun, cause: str) -> set[Key]:
    """Which of its deliveries may have killed it."""
    is_in_order = worker.threads == 1
    running, ended = begun.of(
        (key, is_in_order and not flight.is_async) for key, flight in worker.flights.items()
    )
    if cause.startswith(HARD_TIMEOUT):
        # Only the main thread's task has a hard deadline; what ran beside it is known to be innocent.
        return {key for key in running if begun.last_in_order == (mark_of(key[0]), key[1])}
    if cause.startswith((PIPE_BROKE, NO_MAIL)):
        return running | ended  # who wrote into the pipe may have ended since, but its report was not read
    return running or ended


def _settlement(
    key: Key, flight: Flight, task: Mapping[str, Any], cause: str, company: _Company
) -> Settlement:
    delivery = _delivery(key[1], flight.record)
    if not isinstance(delivery, Delivery):
        return _unreadable(delivery)
    if company.accused and cause.startswith(HARD_TIMEOUT):  # how the process ended stands behind it
        return _timed_out(delivery, task, cause)
    return _judged(delivery, cause, company)


def _judged(delivery: Delivery, cause: str, company: _Company) -> Settlement:
    if company.accused == 0:
        return Release(delivery)
    if company.accused == 1:
        return after_crash(delivery, cause)
    return Suspect(delivery, cause, half_of(company.batch))


def _timed_out(delivery: Delivery, task: Mapping[str, Any], cause: str) -> Settlement:
    failure = Failure("HardTimeout", "the task ran past its hard time-out; its worker was killed")
    if delivery.failures >= task.get("retries", 0):
        return Bury(delivery, "timed out", failure, evidence={"cause": cause})
    return RetryAt(delivery, After(min(_LONGEST_PAUSE_MS, 1_000 * 2**delivery.failures)), failure)


def _delivery(fence: int, record: bytes) -> Delivery | UnreadableDelivery:
    if len(record) > LARGEST_RECORD_BYTES:
        problem = f"{len(record):,} bytes are no record; accepted are up to {LARGEST_RECORD_BYTES:,}"
        return UnreadableDelivery(fence, record, problem)
    try:
        return decode_record(record, fence)
    except InvalidMessage as error:
        return UnreadableDelivery(fence, record, str(error))


def _unreadable(delivery: UnreadableDelivery) -> Settlement:
    return Bury(delivery, "undecodable")


_MOST_UNTOLD = 1_000
_EVENT_BY_KIND = {Crash: "delivery_crashed", RetryAt: "delivery_timed_out", Bury: "delivery_buried"}


class CrashReports:
    """Logs each delivery that a dead worker ran; keeps those that were given up until a worker is told."""

    def __init__(self, log: Logger) -> None:
        self._log = log
        self._untold: list[tuple[str, DeliveryBuried]] = []

    def note(
        self, settlements_by_queue: Mapping[str, Sequence[Settlement]], worker: WorkerState, cause: str
    ) -> None:
        """What became of what a worker had when it died."""
        for queue, settlements in settlements_by_queue.items():
            for settlement in settlements:
                event = _EVENT_BY_KIND.get(type(settlement))
                if event is not None and isinstance(settlement.delivery, Delivery):
                    self._note(event, queue, settlement, settlement.delivery, worker=worker, cause=cause)
        if worker.flights:
            self._log.warning("worker_lost", worker=worker.name, cause=cause, deliveries=len(worker.flights))

    def posts(self, workers: Workers) -> Iterator[Post]:
        """The mail about messages that were given up, to workers that know their tasks."""
        untold, self._untold = self._untold, []
        for task, mail in untold:
            teller = next((worker for worker in workers if worker.takes_work and worker.knows(task)), None)
            if teller is not None:
                yield Post(teller.name, mail)
            else:
                self._untold.append((task, mail))

    def _note(
        self,
        event: str,
        queue: str,
        settlement: Settlement,
        delivery: Delivery,
        *,
        worker: WorkerState,
        cause: str,
    ) -> None:
        facts = {"task": delivery.task, "task_id": delivery.id, "attempt": delivery.attempt, "queue": queue}
        if isinstance(settlement, Bury):
            reason, failure = settlement.reason, settlement.failure
            self._log.error(event, **facts, worker=worker.name, cause=cause, reason=reason)
        else:
            reason = "timed out" if isinstance(settlement, RetryAt) else CRASHED
            failure = Failure(WORKER_CRASHED, f"its worker died: {cause}")
            self._log.warning(event, **facts, worker=worker.name, cause=cause)
        flight = worker.flights.get((queue, delivery.fence))
        if flight is not None and failure is not None and len(self._untold) < _MOST_UNTOLD:
            mail = DeliveryBuried(
                queue,
                delivery.fence,
                flight.record,
                reason,
                failure.error,
                failure.message,
                is_buried=isinstance(settlement, Bury),
            )
            self._untold.append((delivery.task, mail))
