"""Giving back: what no worker here can run soon returns to its queue, so that other nodes can have it.

Three reasons: all workers are busy for too long; a delivery must run alone and no worker gets empty; nobody
here knows the task. The last two are parked, and whoever can run what others have parked claims it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mqworker.actors.dispatcher.hand_out import HandOut
from mqworker.actors.dispatcher.lost_workers import park, release, set_aside
from mqworker.actors.dispatcher.queue import Claimed, DispatchedQueue, DispatchedQueues
from mqworker.actors.dispatcher.workers import Workers
from mqworker.log import Logger
from mqworker.model.record import LARGEST_RECORD_BYTES, task_of
from mqworker.model.settlement import UNKNOWN_TASK

SHORTEST_PAUSE_MS = 1_000
LONGEST_PAUSE_MS = 30_000
"""How long to park a delivery that must run alone and finds no empty worker."""
_PARKED = b"parked "
"""How a wake-up begins that names a task which some node could not run (parts/parked.lua)."""
_MOST_NAMED = 1_000
MOST_ASKED_FOR = 5_000
"""How many tasks, over all queues, one round of claims asks for."""


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
            queue.note_left_over(left[queue.name])
        for queue, overdue in self._hand_out.take_overdue(now_ms).items():
            if queue.counts_releases:
                self._hand_out.put_back(queue, *overdue)
                continue
            release_all(queue, overdue)
            queue.be_cautious(now_ms)
        self._park_what_must_run_alone(now_ms)

    def _park_what_must_run_alone(self, now_ms: int) -> None:
        """Let others go first, for as long as something has been running alone here."""
        pause_ms = min(LONGEST_PAUSE_MS, max(SHORTEST_PAUSE_MS, self._workers.lone_run_ms(now_ms)))
        for queue, overdue in self._hand_out.take_overdue_alone(now_ms).items():
            queue.settle([park(each.fence, each.record, pause_ms) for each in overdue])

    def release_everything(self) -> None:
        """The end: release all that waits."""
        for queue, deliveries in self._hand_out.take_all().items():
            release_all(queue, deliveries)

    def park_unknown(self) -> None:
        """Park what was not handed out because nobody here knows its task; bury what no pipe can carry."""
        for queue, claimed in self._hand_out.take_unknown():
            queue.settle([set_aside(claimed.fence, claimed.record)])
            if len(claimed.record) > LARGEST_RECORD_BYTES:
                facts = {"reason": "undecodable", "bytes": len(claimed.record)}
                self._log.error("delivery_buried", queue=queue.name, fence=claimed.fence, **facts)
                continue
            task = task_of(claimed.record)
            if task not in self._named and len(self._named) < _MOST_NAMED:  # once: there may be thousands
                self._named.add(task)
                self._log.warning("task_unknown", queue=queue.name, task=task.decode(errors="replace"))

    def look_for_parked(self, queues: Iterable[DispatchedQueue]) -> None:
        """Let the next claims ask for what other nodes have parked.

        Each queue is asked for its own tasks, and by turns for all that are known here: with a thousand tasks
        and a thousand queues, to ask everywhere for everything would be all that a server does.
        """
        known = self._workers.known_versions()
        at_once = max(1, MOST_ASKED_FOR // max(1, len(known)))
        by_turns = sorted(queues, key=lambda queue: queue.asked_for_all)
        for queue in by_turns[:at_once]:
            queue.asked_for_all += 1
            queue.look_for_parked(known)
        if by_turns[at_once:]:
            own = _names_by_queue(self._workers.tasks())
            for queue in by_turns[at_once:]:
                queue.look_for_parked({name: known[name] for name in own.get(queue.name, ())})

    def hear(self, queue: DispatchedQueue, text: bytes) -> bool:
        """Whether a wake-up says that something was parked; looks for it if its task is known here."""
        is_told = text.startswith(_PARKED)
        task = text.removeprefix(_PARKED)
        if is_told and self._workers.knows(task):
            name = task.decode(errors="replace")
            queue.look_for_parked({name: self._workers.known_versions().get(name, UNKNOWN_TASK)})
        return is_told


# Any: what a worker says of a task.
def _names_by_queue(tasks: Mapping[str, Mapping[str, Any]]) -> dict[str, set[str]]:
    """Which tasks are called through which queue, unless a call says otherwise."""
    names: dict[str, set[str]] = {}
    for name, task in tasks.items():
        names.setdefault(task["queue"], set()).add(name)
    return names


def release_all(queue: DispatchedQueue, deliveries: Sequence[Claimed]) -> None:
    """Give deliveries back that nobody began, uncounted."""
    if deliveries:
        queue.settle([release(each.fence, each.record) for each in deliveries])
