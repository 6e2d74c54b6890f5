"""One queue as the dispatcher sees it: what is to be settled, whether to claim, the exchange under way."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from mqworker.actors.dispatcher_crew import Idle
from mqworker.model.names import ConsumerName, QueueName
from mqworker.model.record import decode_record
from mqworker.model.settlement import Ack, Settlement
from mqworker.queues.work_calls import LOOK_AGAIN, LookAgain, WorkQueueCalls, WorkQueueOptions
from mqworker.store.exchange import Exchange
from mqworker.store.script import Call
from mqworker.store.store import Store

LARGEST_CLAIM = 1_000


class DispatchedQueue:
    """Builds the calls of one turn; sends nothing itself."""

    def __init__(self, name: QueueName, consumer: ConsumerName, options: WorkQueueOptions) -> None:
        self.name = name
        self.calls = WorkQueueCalls(name, options)
        self.keys = self.calls.keys
        self.may_have_messages = True
        self.is_limited = False
        self.worker_ms = 0.0
        """The time that workers spent on it, divided by its weight; who had least is served first."""
        self.resume_at_ms = 0
        """When to try again after trouble with its server; 0 while all is well."""
        self._consumer = consumer
        self._weight = 1
        self._async_tasks: frozenset[bytes] = frozenset()
        self._once_tasks: frozenset[bytes] = frozenset()
        self._settlements: list[Call[Any]] = []
        self.unacked: deque[tuple[int, bytes]] = deque()
        """Deliveries of at-most-once tasks: acknowledged when a worker is free, then run; not earlier, for
        what is acknowledged and still here is lost if this process ends."""
        self._being_acked: list[tuple[int, bytes]] = []
        self._exchange: Exchange | None = None
        self._asked_for = 0

    def learn(self, weight: int, tasks: Mapping[str, Mapping[str, Any]]) -> None:
        """What the application says of this queue and of its tasks."""
        self._weight = weight
        self._once_tasks = frozenset(name.encode() for name, task in tasks.items() if task["once"])
        self.is_limited = any(task["limited"] and task["queue"] == self.name for task in tasks.values())
        self._async_tasks = frozenset(name.encode() for name, task in tasks.items() if task["async"])

    def charge(self, run_ms: float) -> None:
        """Note the time that workers spent on messages of this queue."""
        self.worker_ms += run_ms / self._weight

    def wake(self, least_ms: float) -> None:
        """Messages came after a quiet time: it is served soon, but has not saved up its share meanwhile."""
        self.may_have_messages = True
        self.worker_ms = max(self.worker_ms, least_ms)

    def is_async(self, task: bytes) -> bool:
        """Whether a task runs on an event loop."""
        return task in self._async_tasks

    def is_delicate(self, record: bytes, task: bytes) -> bool:
        """Whether it runs with nobody else's delivery beside it: it crashed before, or may not run twice.

        Of the former the guilty one is then known; of the latter a dying worker takes one with it, no batch.
        """
        return record[23:25] != b"00" or task in self._once_tasks

    def add_settlement(self, arguments: Sequence[Any]) -> None:
        """Take a worker's report for the next exchange."""
        self._settlements.append(self.calls.settle_with(arguments, self._consumer))

    def settle(self, settlements: Sequence[Settlement]) -> None:
        """Settle something of the dispatcher's own with the next exchange."""
        self._settlements.append(self.calls.settle(settlements, self._consumer))

    @property
    def held_key(self) -> str:
        """Where the server keeps what this consumer holds."""
        return self.keys.held(self._consumer)

    @property
    def has_unsettled(self) -> bool:
        """Whether the next exchange must not wait."""
        return bool(self._settlements) or self._exchange is not None

    def next_exchange(self, store: Store, wanted: int, idle: Idle) -> Exchange | None:
        """What to send: the exchange not answered yet, or a new one; None when there is nothing to say.

        `wanted` is how many there is room for; what could begin this moment is taken off `idle`.
        """
        if self._exchange is None:
            calls = self._settlements
            to_ack = self._take_ackable(idle)
            if to_ack:
                acks = [Ack(decode_record(record, fence)) for fence, record in to_ack]
                calls = [self.calls.settle(acks, self._consumer), *calls]
            # Below 0 when queues before this one were given more than there was room for: what is acked only
            # now had its room before.
            self._asked_for = max(0, min(wanted, LARGEST_CLAIM))
            if self._asked_for > 0:
                # Settle before claiming: a crash in between leaves a worker idle for a moment; the other
                # order would hold more than there is room for.
                calls = [*calls, self.calls.claim_records(self._asked_for, self._consumer)]
            if not calls:
                return None
            self._settlements = []
            self._being_acked = to_ack
            self._exchange = store.begin(calls)
        return self._exchange

    def complete(self, results: list[Any]) -> list[tuple[int, bytes]]:
        """The exchange was answered: the deliveries to hand out, as fence and record."""
        self._exchange = None
        acked = self._acked(results[0]) if self._being_acked else []
        if self._asked_for == 0:
            return acked
        claimed: list[tuple[int, bytes]] | LookAgain = results[-1]
        if claimed is LOOK_AGAIN:
            return acked
        self.may_have_messages = len(claimed) >= self._asked_for
        if self._once_tasks:
            self.unacked.extend(each for each in claimed if task_of(each[1]) in self._once_tasks)
            claimed = [each for each in claimed if task_of(each[1]) not in self._once_tasks]
        return acked + claimed

    def has_ackable(self, idle: Idle) -> bool:
        """Whether one could be acknowledged now, because somebody is free to run it."""
        return any(
            idle.asynchronous > 0 if self.is_async(task_of(record)) else idle.sequential > 0
            for _, record in self.unacked
        )

    def _take_ackable(self, idle: Idle) -> list[tuple[int, bytes]]:
        taken: list[tuple[int, bytes]] = []
        if self.unacked:
            kept: deque[tuple[int, bytes]] = deque()
            for each in self.unacked:
                (taken if idle.take(is_async=self.is_async(task_of(each[1]))) else kept).append(each)
            self.unacked = kept
        return taken

    def _acked(self, lost: list[Settlement]) -> list[tuple[int, bytes]]:
        lost_fences = {settlement.delivery.fence for settlement in lost}
        acked, self._being_acked = self._being_acked, []
        return [each for each in acked if each[0] not in lost_fences]


def task_of(record: bytes) -> bytes:
    """The task's name in a record, without reading the rest of it."""
    after_id = record.find(b" ", 25)
    return record[after_id + 1 : record.find(b" ", after_id + 1)]
