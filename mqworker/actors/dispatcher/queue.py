"""Queues as the dispatcher sees them: what is to be settled, whether to claim, the exchange under way.

Which queues: those that the node was told to serve, or all that its workers have tasks for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from mqworker.actors.dispatcher.workers import Idle, WorkerState
from mqworker.actors.early_start.tickets import Places
from mqworker.actors.mail import WorkerReady
from mqworker.actors.run_slot import mark_of
from mqworker.model.names import ConsumerName, QueueName
from mqworker.model.record import (
    are_any_limited,
    decode_record,
    is_on_probation,
    losses_of,
    must_run_alone,
    permit_ms_of,
    task_of,
)
from mqworker.model.settlement import Ack, Release, Settlement
from mqworker.queues.work.calls import LOOK_AGAIN, LookAgain, WorkQueueCalls, WorkQueueOptions
from mqworker.store.exchange import Exchange
from mqworker.store.script import Call
from mqworker.store.store import Store

if TYPE_CHECKING:
    from mqworker.actors.dispatcher.foreign_queue import ForeignQueues

LARGEST_CLAIM = 1_000
CAUTION_MS = 1_000
LONGEST_CAUTION_MS = 8_000
"""So long after something was given back, event loops are not counted as room for its queue; longer each time
in a row, for what stands at the front is then claimed and given back again and again."""
MANY_BYTES = 4 * 1024 * 1024
"""A claim of so much may have been cut short by its size (parts/take.lua), not by the end of the queue."""


DELIVERIES, NEVER_DELIVERED = slice(17, 20), b"000"
"""Where a record counts them (model/record.py)."""
NO_TICKET = "-"
"""For a message without an early start."""


class Receipt(NamedTuple):
    """A report that is to be accepted once it is stored."""

    worker: WorkerState
    number: int


class Claimed(NamedTuple):
    """A delivery under our lease that no worker has."""

    fence: int
    record: bytes
    since_ms: int
    start_by_ms: int = 0
    """Until when its permit is valid; 0: it needs none."""


class DispatchedQueue:
    """Builds the calls of one turn; sends nothing itself."""

    counts_releases = False
    """Whether a delivery that is given back counts as an attempt."""

    def __init__(self, name: QueueName, consumer: ConsumerName, options: WorkQueueOptions) -> None:
        self.name = name
        self.calls = WorkQueueCalls(name, options)
        self.keys = self.calls.keys
        self.held_key = self.keys.held(consumer)
        """Where the server keeps what this consumer holds; also the channel on which it hands over."""
        self.places = Places()
        """What was offered, for messages that the server hands over the moment they are enqueued."""
        self.may_have_messages = True
        self.limited_tasks: frozenset[bytes] = frozenset()
        self.worker_ms = 0.0
        """The time that workers spent on it, divided by its weight; who had least is served first."""
        self.resume_at_ms = 0
        """When to try again after trouble with its server; 0 while all is well."""
        self.is_unreachable = False
        """Whether that trouble was that nobody answered."""
        self._consumer = consumer
        self._weight = 1
        self._async_tasks: frozenset[bytes] = frozenset()
        self._once_tasks: frozenset[bytes] = frozenset()
        self._max_losses: dict[bytes, int | None] = {}
        self._settlements: list[Call[Any]] = []
        self._receipts: list[Receipt] = []
        self._receipts_under_way: list[Receipt] = []
        self.unacked: deque[Claimed] = deque()
        """Deliveries of at-most-once tasks: acknowledged when a worker is free, then run; not earlier, for
        what is acknowledged and still here is lost if this process ends."""
        self._being_acked: list[Claimed] = []
        self._exchange: Exchange | None = None
        self._asked_at_ms = 0
        """Before the exchange under way was sent for the first time: permits are counted from there."""
        self.asked_for = 0
        """How many the exchange under way asks for."""
        self._is_claiming = False
        self.lost_leases = 0
        """Deliveries that somebody else had when they were to be settled."""
        self._received = 0
        self._is_line_long = False
        """Whether the last claim came back full."""
        self._left_over = 0
        self._cautious_until_ms = 0
        self._caution_ms = CAUTION_MS
        self._known: Sequence[str] = ()
        self._looks_for_parked = False
        """Whether the next claim also asks for what others could not run."""
        self._offering = 0
        self._offered = 0
        """How many the server may hand over to us the moment they are enqueued: idle workers, as of late."""
        self._appetite = 1
        """How many are claimed at once: twice as many while all of them find a worker, fewer when not."""

    def begin_channel(self, worker: int) -> str:
        """On which one of our workers hears of messages for an early start."""
        return self.keys.begin(self._consumer, worker)

    def learn(self, weight: int, tasks: Mapping[str, Mapping[str, Any]]) -> None:
        """What the application says of this queue and of its tasks."""
        self._weight = weight
        self._once_tasks = frozenset(name.encode() for name, task in tasks.items() if task["once"])
        self.limited_tasks = frozenset(
            name.encode() for name, task in tasks.items() if task["limited"] and task["queue"] == self.name
        )
        self._async_tasks = frozenset(name.encode() for name, task in tasks.items() if task["async"])
        self._max_losses = {name.encode(): task.get("max_losses") for name, task in tasks.items()}

    @property
    def is_limited(self) -> bool:
        """Whether some of its messages wait for permits."""
        return bool(self.limited_tasks)

    def look_for_parked(self, known: Sequence[str]) -> None:
        """Claim what others could not run, of these tasks, each with its version."""
        self._known, self._looks_for_parked = known, bool(known)
        self.may_have_messages = self.may_have_messages or bool(known)

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

    def runs_once(self, task: bytes) -> bool:
        """Whether a task is delivered at most once."""
        return task in self._once_tasks

    def must_run_alone(self, record: bytes) -> bool:
        """Whether nothing may run beside it: a worker died while it ran, or it was lost too often.

        Not asked of what runs at most once: it is acknowledged by then, and must begin now or never.
        """
        if task_of(record) in self._once_tasks:
            return False
        return must_run_alone(record) or is_on_probation(record) or self.is_lost_too_often(record)

    def is_lost_too_often(self, record: bytes) -> bool:
        """Whether it may take its node with it: it is given one more chance, on probation."""
        limit = self._max_losses.get(task_of(record))
        return limit is not None and losses_of(record) >= limit

    def begin_probation(self, fence: int) -> Call[bytes | None]:
        """To be called before it runs: its record with the mark, None when the lease was lost."""
        return self.calls.begin_probation(fence, self._consumer)

    def was_acked(self, claimed: Claimed) -> bool:
        """Whether a delivery that waits for a worker is acknowledged already."""
        return self.runs_once(task_of(claimed.record))

    def add_settlement(self, arguments: Sequence[Any], receipt: Receipt) -> None:
        """Take a worker's report for the next exchange."""
        self._settlements.append(self.calls.settle_with(arguments, self._consumer))
        self._receipts.append(receipt)

    def settle(self, settlements: Sequence[Settlement]) -> None:
        """Settle something of the dispatcher's own with the next exchange."""
        self._settlements.append(self.calls.settle(settlements, self._consumer))

    def settle_for_the_lost(self, settlements: Sequence[Settlement]) -> None:
        """The same for what a worker had when it ended."""
        self.settle(settlements)

    @property
    def has_unsettled(self) -> bool:
        """Whether the next exchange must not wait."""
        return bool(self._settlements) or self._exchange is not None

    def wants(self, room: int, room_in_order: int, now_ms: int) -> int:
        """How many messages to claim; none while some of this queue still wait for a worker here.

        `room_in_order` leaves event loops out: after something had to be given back, it is assumed for a
        while that the next messages are not for them either.
        """
        if not self.may_have_messages or self._left_over or self.resume_at_ms > now_ms:
            return 0
        return room if now_ms >= self._cautious_until_ms else min(room, room_in_order)

    def be_cautious(self, now_ms: int) -> None:
        """Some of its deliveries were given back."""
        self._cautious_until_ms = now_ms + self._caution_ms
        self._caution_ms = min(2 * self._caution_ms, LONGEST_CAUTION_MS)

    def next_exchange(
        self, store: Store, wanted: int, idle: Idle, tickets: Callable[[int], list[str]], now_ms: int
    ) -> Exchange | None:
        """What to send: the exchange not answered yet, or a new one; None when there is nothing to say.

        `wanted` is how many there is room for; what could begin this moment is taken off `idle`, and is
        offered with one of `tickets` each.
        """
        if self._exchange is None:
            self._give_up_stale(now_ms)
            calls = self._settlements
            to_ack = self._take_ackable(idle)
            if to_ack:
                acks = [Ack(decode_record(each.record, each.fence)) for each in to_ack]
                calls = [self.calls.settle(acks, self._consumer), *calls]
            # Below 0 when queues before this one were given more than there was room for: what is acked only
            # now had its room before.
            self.asked_for = max(0, min(wanted, max(self._appetite, idle.sequential)))
            # What is sent anyway also tells the server how many workers are idle now.
            is_offer_due = bool(calls) and self._offered != max(0, idle.sequential)
            if is_offer_due and not self._left_over:
                self.asked_for = max(self.asked_for, idle.sequential)
            self._is_claiming = self.asked_for > 0 or is_offer_due
            if self._is_claiming:
                # Settle before claiming: a crash in between leaves a worker idle for a moment; the other
                # order would hold more than there is room for.
                self._offering = max(0, min(self.asked_for, idle.sequential))
                # While many messages wait, an offer is hardly ever taken up: no ticket is wasted.
                idle_tickets = [NO_TICKET] * self._offering if self._is_line_long else tickets(self._offering)
                offer = self.places.offer(idle_tickets)
                known = self._known if self._looks_for_parked else ()
                calls = [*calls, self.calls.claim_records(self.asked_for, self._consumer, offer, known)]
            if not calls:
                return None
            self._settlements = []
            self._receipts, self._receipts_under_way = [], self._receipts
            self._being_acked = to_ack
            self._exchange = store.begin(calls)
            self._asked_at_ms = now_ms
        return self._exchange

    def complete(self, results: list[Any], now_ms: int) -> list[Claimed]:
        """The exchange was answered: the deliveries to hand out."""
        self._exchange = None
        for worker, number in self._receipts_under_way:
            worker.accepted.append(number)
        self._receipts_under_way = []
        for lost in results[:-1] if self._is_claiming else results:  # a number, or the settlements
            self.lost_leases += lost if isinstance(lost, int) else len(lost)
        acked = self._acked(results[0]) if self._being_acked else []
        reply: list[tuple[int, bytes]] | LookAgain = results[-1] if self._is_claiming else LOOK_AGAIN
        if reply is LOOK_AGAIN:
            return acked
        self._received = len(reply)
        self._offered = max(0, self._offering - self._received)
        claimed_bytes = sum([len(record) for _, record in reply])
        is_more_likely = self._received >= self.asked_for or claimed_bytes > MANY_BYTES
        self.may_have_messages = is_more_likely if self.asked_for else self.may_have_messages
        self._is_line_long = self.asked_for > 0 and is_more_likely
        if self._looks_for_parked and self.asked_for:
            # What was parked was delivered before; as long as such come, there may be more of them.
            self._looks_for_parked = any(record[DELIVERIES] != NEVER_DELIVERED for _, record in reply)
        claimed = [Claimed(fence, record, now_ms) for fence, record in reply]
        if are_any_limited([record for _, record in reply]):
            claimed = [self._with_permit(each) for each in claimed]
        return acked + self._to_hand_out(claimed)

    def _with_permit(self, claimed: Claimed) -> Claimed:
        permit_ms = permit_ms_of(claimed.record)
        return claimed if permit_ms is None else claimed._replace(start_by_ms=self._asked_at_ms + permit_ms)

    def note_handed_over(self) -> None:
        """The server gave us a message as it was enqueued (enqueue.lua)."""
        self._offered = max(0, self._offered - 1)

    def take_handed_over(self, delivery: Claimed) -> list[Claimed]:
        """No worker makes an early start on it: what to hand out."""
        return self._to_hand_out([delivery])

    def _to_hand_out(self, claimed: list[Claimed]) -> list[Claimed]:
        """Those that are not to be acknowledged first."""
        if not self._once_tasks:
            return claimed
        self.unacked.extend(each for each in claimed if task_of(each.record) in self._once_tasks)
        return [each for each in claimed if task_of(each.record) not in self._once_tasks]

    def note_left_over(self, count: int) -> None:
        """Learn how many to claim from how many of the last ones found no worker."""
        self._left_over = count
        received, self._received = self._received, 0
        if received and not count:
            self._caution_ms = CAUTION_MS
        if received and count:
            self._appetite = max(1, received - count)
        elif received and received >= self.asked_for:
            self._appetite = min(2 * max(received, self._appetite), LARGEST_CLAIM)

    def take_overdue(self, before_ms: int) -> list[Claimed]:
        """Take all that is to be acknowledged before it runs, if one found no worker since an instant.

        All at once, as HandOut.take_overdue does, and for the same reason.
        """
        if not any(each.since_ms < before_ms for each in self.unacked):
            return []
        overdue, self.unacked = list(self.unacked), deque()
        return overdue

    @property
    def unacked_since_ms(self) -> int | None:
        """Since when the oldest waits to be acknowledged and then run; None too while its server is away."""
        if not self.unacked or self.resume_at_ms:
            return None
        return next((each.since_ms for each in self.unacked if not self.is_async(task_of(each.record))), None)

    def _give_up_stale(self, now_ms: int) -> None:
        """What is acknowledged can wait for no other permit: so it is looked at before."""
        stale = [each for each in self.unacked if 0 < each.start_by_ms <= now_ms]
        if stale:
            self.unacked = deque(each for each in self.unacked if each not in stale)
            self.settle([Release(decode_record(each.record, each.fence)) for each in stale])

    def has_ackable(self, idle: Idle) -> bool:
        """Whether one could be acknowledged now, because a worker is free to run it."""
        return any(
            idle.asynchronous > 0 if self.is_async(task_of(each.record)) else idle.sequential > 0
            for each in self.unacked
        )

    def _take_ackable(self, idle: Idle) -> list[Claimed]:
        taken: list[Claimed] = []
        if self.unacked:
            kept: deque[Claimed] = deque()
            for each in self.unacked:
                (taken if idle.take(is_async=self.is_async(task_of(each.record))) else kept).append(each)
            self.unacked = kept
        return taken

    def _acked(self, lost: list[Settlement]) -> list[Claimed]:
        lost_fences = {settlement.delivery.fence for settlement in lost}
        acked, self._being_acked = self._being_acked, []
        return [each._replace(start_by_ms=0) for each in acked if each.fence not in lost_fences]


class DispatchedQueues:
    """Work queues by name. Foreign queues are found by name, too, but left out when iterating."""

    def __init__(
        self,
        names: Iterable[str],
        consumer: ConsumerName,
        options: WorkQueueOptions,
        foreign_queues: ForeignQueues,
    ) -> None:
        """Without names: all queues that workers have tasks for."""
        self._consumer = consumer
        self._options = options
        self._foreign_queues = foreign_queues
        self._queue_by_name: dict[str, DispatchedQueue] = {}
        self._fixed = frozenset(names)
        for name in names:
            self._open(name)

    def __iter__(self) -> Iterator[DispatchedQueue]:
        return iter(self._queue_by_name.values())

    def __getitem__(self, name: str) -> DispatchedQueue:
        return self._foreign_queues.get(name) or self._queue_by_name[name]

    def get(self, name: str) -> DispatchedQueue | None:
        """A queue by name, None when this node does not serve it."""
        return self._foreign_queues.get(name) or self._queue_by_name.get(name)

    def marked(self, mark: int) -> DispatchedQueue | None:
        """The work queue with this mark in a run slot."""
        return next((queue for queue in self if mark_of(queue.name) == mark), None)

    def learn(self, ready: WorkerReady) -> None:
        """What a worker says about its queues and their tasks."""
        for name, options in ready.queues.items():
            if self._fixed and name not in self._fixed:
                continue
            if "model" in options:
                self._queue_by_name.pop(name, None)
                self._foreign_queues.open(name, options["model"])
            elif name not in self._queue_by_name:
                self._open(name)
            self[name].learn(options.get("weight", 1), ready.tasks)

    def _open(self, name: str) -> None:
        self._queue_by_name[name] = DispatchedQueue(QueueName(name), self._consumer, self._options)
