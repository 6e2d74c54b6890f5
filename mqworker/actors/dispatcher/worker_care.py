"""Care for workers: who overran is killed, who is silent is asked what it has, who may leave is let go."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

from mqworker.actors.actor import SUPERVISOR, Post
from mqworker.actors.dispatcher.lost_workers import release
from mqworker.actors.dispatcher.queues import DispatchedQueues
from mqworker.actors.dispatcher.workers import Crew, Hand, Question
from mqworker.actors.mail import DeliveriesListed, Drain, KillWorker, ListDeliveries
from mqworker.actors.run_slot import Running, RunSlots
from mqworker.log import Logger
from mqworker.model.settlement import Settlement

WORKER = "worker:"
"""How the names of workers begin; behind it stands the number of their slot."""
LOOK_EVERY_MS = 20
"""So often the workers that have something are looked at."""
ASK_AFTER_MS = 2_000
"""A worker that has deliveries and was silent for so long is asked which ones; and again as often."""
ANSWER_WITHIN_MS = 8_000
"""One that runs nothing and does not answer is killed then: its loop hangs, or the process is stopped."""


class WorkerCare:
    """Looks after the workers of a dispatcher."""

    def __init__(self, crew: Crew, slots: RunSlots, queues: DispatchedQueues, log: Logger) -> None:
        self._crew = crew
        self._slots = slots
        self._queues = queues
        self._log = log
        self._numbers = count(1)
        self._missing = 0
        """How many deliveries workers were given and did not have when they were asked."""
        self._now_ms = 0

    def look_after(self, now_ms: int) -> Iterator[Post]:
        """What has to be said to or about workers at this moment."""
        self._now_ms = now_ms
        for hand in self._crew:
            if hand.flights or not hand.is_heard:
                yield from self._look_after_busy(hand, now_ms)
                continue
            hand.question = None
            if hand.is_leaving and hand.is_ready:
                hand.is_ready = False
                yield Post(hand.name, Drain(0))

    def _look_after_busy(self, hand: Hand, now_ms: int) -> Iterator[Post]:
        running = self._slots.running(slot_of(hand.name))
        if running is not None and running.is_over(now_ms) and _is_seen_to_run(hand, running):
            yield Post(SUPERVISOR, KillWorker(hand.name, "hard time-out"))
        if not hand.is_heard:
            return  # it has not said yet what it has
        if hand.question is not None:
            is_late = now_ms - hand.question.asked_at_ms >= ANSWER_WITHIN_MS
            if is_late and not self._is_running(hand):
                hand.question.asked_at_ms = now_ms  # asked for again if it lives on
                yield Post(SUPERVISOR, KillWorker(hand.name, "has deliveries, runs none, does not answer"))
        elif now_ms - max(hand.last_report_ms, hand.last_list_ms) >= ASK_AFTER_MS:
            keys = frozenset(hand.flights.keys() - hand.presumed.keys())
            hand.question = Question(next(self._numbers), now_ms, keys)
            yield Post(hand.name, ListDeliveries(hand.question.number))

    def take_list(self, hand: Hand, mail: DeliveriesListed, now_ms: int) -> None:
        """Release what a worker was given before it was asked, and does not have.

        Pipes keep the order: what it reported or returned before its list is not among its flights any more.
        """
        question = hand.question
        if question is None or question.number != mail.number:
            return
        hand.question, hand.last_list_ms = None, now_ms
        listed = {(queue, fence) for queue, fences in mail.fences_by_queue.items() for fence in fences}
        missing = [key for key in hand.flights if key in question.flights and key not in listed]
        if missing:
            self._missing += len(missing)
            self._log.warning("deliveries_missing", worker=hand.name, deliveries=len(missing))
        verdicts: dict[str, list[Settlement]] = {}
        for queue, fence in missing:
            flight = hand.drop(queue, fence)
            if flight is not None and flight.record:  # without one, the stock-taking finds it
                verdicts.setdefault(queue, []).append(release(fence, flight.record))
        for queue, settlements in verdicts.items():
            # By way of the server, which knows whether it was settled meanwhile.
            self._queues[queue].settle_for_the_lost(settlements)

    def facts(self) -> dict[str, Any]:
        """For the status screen: who runs something, who was asked and has not answered."""
        return {
            "busy": [hand.name for hand in self._crew if self._is_running(hand)],
            "unanswered_ms": {
                hand.name: self._now_ms - hand.question.asked_at_ms
                for hand in self._crew
                if hand.question is not None
            },
            "missing": self._missing,
        }

    def _is_running(self, hand: Hand) -> bool:
        """Whether it runs one of its deliveries, for all we know: only its main thread has a slot."""
        if hand.asynchronous or (hand.threads > 1 and hand.flights):
            return True
        running = self._slots.running(slot_of(hand.name))
        return running is not None and any(map(running.is_of, hand.flights))


def slot_of(worker: str) -> int:
    """The number of a worker's slot."""
    return int(worker.removeprefix(WORKER))


def _is_seen_to_run(hand: Hand, running: Running) -> bool:
    """Whether it is this worker that its slot speaks of, and not one before it."""
    return not hand.is_heard or any(map(running.is_of, hand.flights))
