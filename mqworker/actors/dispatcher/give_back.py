"""Giving back: what no worker here can run soon returns to its queue, so that other nodes can have it.

Three reasons: all workers are busy for too long; a delivery must run alone and no worker gets empty; nobody
here knows the task. The last two are parked, and whoever can run what others have parked claims it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mqworker.actors.dispatcher.hand_out import HandOut
from mqworker.actors.dispatcher.lost_workers import park, release, set_aside
from mqworker.actors.dispatcher.queue import Claimed, DispatchedQueue, DispatchedQueues
from mqworker.actors.dispatcher.workers import Workers
from mqworker.log import Logger
from mqworker.model.record import task_of

SHORTEST_PAUSE_MS = 1_000
LONGEST_PAUSE_MS = 30_000
"""A delivery that must run alone and finds no empty worker is parked for so long."""
_PARKED = b"parked "
"""How a wake-up begins that names a task which some node could not run (parts/parked.lua)."""
_MOST_NAMED = 1_000


class GiveBack:
    """Takes from the hand-out what has waited too long, and settles it as released or parked."""

    def __init__(self, workers: Workers, hand_out: HandOut, queues: DispatchedQueues, log: Logger) -> None:
        self._workers = workers
        self._hand_out = hand_out
        self._queues = queues
        self._log = log
        self._named: set[bytes] = set()

    def release_overdue(self, now_ms: int) -> None:
        """Learn from what found no worker, and let other nodes have it when it waits too long."""
        left = self._hand_out.count_by_queue()
        for queue in self._queues:
            # One for each worker may wait for its ack: it begins when the worker is done with the one before.
            queue.note_left_over(left[queue.name] + max(0, len(queue.unacked) - len(self._workers)))
            release_all(queue, queue.take_overdue(now_ms - self._hand_out.patience_ms))
        for queue, overdue in self._hand_out.take_overdue(now_ms).items():
            if queue.counts_releases:
                self._hand_out.put_back(queue, *overdue)
                continue
            # A delivery that may run once at most is acknowledged by now: there is nothing to give back.
            acked = [each for each in overdue if queue.was_acked(each)]
            self._hand_out.put_back(queue, *acked)
            release_all(queue, [each for each in overdue if each not in acked])
            queue.be_cautious(now_ms)
        self._park_what_must_run_alone(now_ms)

    def _park_what_must_run_alone(self, now_ms: int) -> None:
        """Let others go first, for as long as something has been running alone here."""
        pause_ms = min(LONGEST_PAUSE_MS, max(SHORTEST_PAUSE_MS, self._workers.lone_run_ms(now_ms)))
        for queue, overdue in self._hand_out.take_overdue_alone(now_ms).items():
            queue.settle([park(each.fence, each.record, pause_ms) for each in overdue])

    def release_everything(self) -> None:
        """The end: release all that waits, also what was to be acknowledged first."""
        for queue in self._queues:
            self._hand_out.put(queue, queue.unacked)
            queue.unacked.clear()
        for queue, deliveries in self._hand_out.take_all().items():
            release_all(queue, deliveries)

    def park_unknown(self) -> None:
        """Park what was not handed out because nobody here knows its task."""
        for queue, claimed in self._hand_out.take_unknown():
            queue.settle([set_aside(claimed.fence, claimed.record)])
            task = task_of(claimed.record)
            if task not in self._named and len(self._named) < _MOST_NAMED:  # once: there may be thousands
                self._named.add(task)
                self._log.warning("task_unknown", queue=queue.name, task=task.decode(errors="replace"))

    def look_for_parked(self, queues: Iterable[DispatchedQueue]) -> None:
        """Let the next claims ask for what other nodes have parked."""
        known = self._workers.known_versions()
        for queue in queues:
            queue.look_for_parked(known)

    def hear(self, queue: DispatchedQueue, text: bytes) -> bool:
        """Whether a wake-up says that something was parked; looks for it if its task is known here."""
        is_told = text.startswith(_PARKED)
        if is_told and self._workers.knows(text.removeprefix(_PARKED)):
            self.look_for_parked([queue])
        return is_told


def release_all(queue: DispatchedQueue, deliveries: Sequence[Claimed]) -> None:
    """Give deliveries back that nobody began, uncounted."""
    if deliveries:
        queue.settle([release(each.fence, each.record) for each in deliveries])
