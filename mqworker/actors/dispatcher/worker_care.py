"""Care for workers: one that overruns is killed, a silent one is asked what it has, a leaving one is let go.

Also whom to tell that a message was cancelled, and whether to kill its worker.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count
from typing import Any, NamedTuple

from mqworker.actors.actor import SUPERVISOR, Post
from mqworker.actors.cpu_wait import CpuWait
from mqworker.actors.dispatcher.lost_workers import CANCELLED, batch_of, release
from mqworker.actors.dispatcher.queue import DispatchedQueues
from mqworker.actors.dispatcher.workers import Question, Workers, WorkerState
from mqworker.actors.mail import CancelDelivery, DeliveriesListed, Drain, KillWorker, ListDeliveries
from mqworker.actors.run_slot import Running, RunSlots
from mqworker.log import Logger
from mqworker.model.names import parse_message_id
from mqworker.model.record import is_record_of
from mqworker.model.settlement import Settlement

WORKER = "worker:"
"""How the names of workers begin; behind it stands the number of their slot."""
LOOK_EVERY_MS = 20
"""How often to look at the workers that have deliveries."""
ASK_AFTER_MS = 2_000
"""A worker that has deliveries and is silent for this long is asked which ones; then asked again as often."""
ANSWER_WITHIN_MS = 8_000
"""One that runs nothing and does not answer is killed then: its loop hangs, or the process is stopped. Time
in which it waited for a CPU does not count."""

_CUT_ADVICE = "they go back to their queue, uncounted, and run again; a longer drain_s lets them finish"


class WorkerCare:
    """Looks after the workers of a dispatcher."""

    def __init__(self, workers: Workers, slots: RunSlots, queues: DispatchedQueues, log: Logger) -> None:
        self._workers = workers
        self._slots = slots
        self._queues = queues
        self._log = log
        self._numbers = count(1)
        self._missing = 0
        """How many deliveries workers were given and did not have when they were asked."""
        self._now_ms = 0
        self._cut_by_worker: dict[str, int] = {}
        self._has_told_of_cut = False

    def look_after(self, now_ms: int) -> Iterator[Post]:
        """What has to be said to or about workers at this moment."""
        self._now_ms = now_ms
        for worker in self._workers:
            if worker.flights or not worker.is_heard:
                yield from self._look_after_busy(worker, now_ms)
                continue
            worker.question = None
            if worker.is_leaving and worker.is_ready:
                worker.is_ready = False
                yield Post(worker.name, Drain(0))

    def _look_after_busy(self, worker: WorkerState, now_ms: int) -> Iterator[Post]:
        running = self._slots.running(slot_of(worker.name))
        if running is not None and running.is_over(now_ms) and _is_seen_to_run(worker, running):
            yield Post(SUPERVISOR, KillWorker(worker.name, "hard time-out"))
        if not worker.is_heard:
            return  # it has not said yet what it has
        if worker.question is not None:
            if not self._is_running(worker) and worker.question.is_late(ANSWER_WITHIN_MS, now_ms):
                worker.question.asked_at_ms = now_ms  # asked for again if it lives on
                worker.question.cpu_wait = CpuWait(worker.pid, now_ms)
                yield Post(SUPERVISOR, KillWorker(worker.name, "has deliveries, runs none, does not answer"))
        elif now_ms - max(worker.last_report_ms, worker.last_list_ms) >= ASK_AFTER_MS:
            keys = frozenset(worker.flights.keys() - worker.presumed.keys())
            cpu_wait = CpuWait(worker.pid, now_ms)
            worker.question = Question(next(self._numbers), now_ms, keys, cpu_wait)
            yield Post(worker.name, ListDeliveries(worker.question.number))

    def note_cut(self, worker: WorkerState) -> None:
        """It died during a drain, and what it had goes back uncounted: perhaps the supervisor was quicker."""
        if worker.flights:
            self._cut_by_worker[worker.name] = len(worker.flights)

    def tell_of_cut(self, holders: Iterable[WorkerState]) -> None:
        """A drain is over and these workers still have deliveries: how many are cut. Told once."""
        for worker in holders:
            self.note_cut(worker)
        if self._cut_by_worker and not self._has_told_of_cut:
            self._has_told_of_cut = True
            cut, workers = sum(self._cut_by_worker.values()), len(self._cut_by_worker)
            self._log.warning("drain_cut", deliveries=cut, workers=workers, advice=_CUT_ADVICE)

    def take_list(self, worker: WorkerState, mail: DeliveriesListed, now_ms: int) -> None:
        """Release what a worker was given before it was asked, and does not have.

        Pipes keep the order: what it reported or returned before its list is not among its flights any more.
        """
        question = worker.question
        if question is None or question.number != mail.number:
            return
        worker.question, worker.last_list_ms = None, now_ms
        listed = {(queue, fence) for queue, fences in mail.fences_by_queue.items() for fence in fences}
        missing = [key for key in worker.flights if key in question.flights and key not in listed]
        if missing:
            self._missing += len(missing)
            self._log.warning("deliveries_missing", worker=worker.name, deliveries=len(missing))
        settlements_by_queue: dict[str, list[Settlement]] = {}
        for queue, fence in missing:
            flight = worker.drop(queue, fence)
            if flight is not None and flight.record:  # without one, the reconciliation finds it
                settlements_by_queue.setdefault(queue, []).append(release(fence, flight.record))
        for queue, settlements in settlements_by_queue.items():
            # By way of the server, which knows whether it was settled meanwhile.
            self._queues[queue].settle_for_the_lost(settlements)

    def facts(self) -> dict[str, Any]:
        """For the status screen: who runs something, who was asked and has not answered."""
        return {
            "busy": [worker.name for worker in self._workers if self._is_running(worker)],
            "unanswered_ms": {
                worker.name: self._now_ms - worker.question.asked_at_ms
                for worker in self._workers
                if worker.question is not None
            },
            "missing": self._missing,
        }

    def _is_running(self, worker: WorkerState) -> bool:
        """Whether it runs one of its deliveries, for all we know: only its main thread has a slot."""
        if worker.asynchronous or (worker.threads > 1 and worker.flights):
            return True
        running = self._slots.running(slot_of(worker.name))
        return running is not None and any(map(running.is_of, worker.flights))


def slot_of(worker: str) -> int:
    """The number of a worker's slot."""
    return int(worker.removeprefix(WORKER))


def _is_seen_to_run(worker: WorkerState, running: Running) -> bool:
    """Whether it is this worker that its slot speaks of, and not one before it."""
    return not worker.is_heard or any(map(running.is_of, worker.flights))


class Stop(NamedTuple):
    """A wish of request_cancel.lua, as it comes on the channel of wake-ups."""

    message: bytes
    is_kill: bool


def stop_in(text: bytes) -> Stop | None:
    """The wish in a wake-up, if it is one, and speaks of what can be the id of a message."""
    how, _, message = text.partition(b" ")
    is_wish = how in {b"cancel", b"kill"} and parse_message_id(message) is not None
    return Stop(message, how == b"kill") if is_wish else None


def posts_to_stop(stop: Stop, workers: Workers, slots: RunSlots) -> Iterator[Post]:
    """What to send so that whoever runs the message stops."""
    for worker in workers:
        keys = [key for key, flight in worker.flights.items() if is_record_of(flight.record, stop.message)]
        if not keys:
            continue
        yield Post(worker.name, CancelDelivery(stop.message.decode()))
        if stop.is_kill and any(_runs(worker, key, slots) for key in keys):
            yield Post(SUPERVISOR, KillWorker(worker.name, CANCELLED))


def _runs(worker: WorkerState, key: tuple[str, int], slots: RunSlots) -> bool:
    """Whether a worker runs it; of several at once it is assumed."""
    running = slots.running(slot_of(worker.name))
    is_among_others = worker.flights[key].is_async or worker.threads > 1
    return is_among_others or (running is not None and any(map(running.is_of, batch_of(worker, key))))
