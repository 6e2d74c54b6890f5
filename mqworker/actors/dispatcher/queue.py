"""Queues as the dispatcher sees them: one round trip each, in which it settles what finished and claims more.

`DispatchedQueue` knows what is to be settled and whether to claim, `Claiming` sends the exchanges of a turn.
A queue whose server is in trouble is left alone for a moment; the others go on. Which queues: those that the
node was told to serve, or all that its workers have tasks for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from mqworker.actors.dispatcher.workers import Idle, WorkerState
from mqworker.actors.early_start.tickets import Places
from mqworker.actors.mail import WorkerReady
from mqworker.actors.run_slot import mark_of
from mqworker.errors import MqworkerError, StoreFull, StoreRefused, StoreUnavailable
from mqworker.log import Logger
from mqworker.model.batch import BatchTerms, QueueBatches
from mqworker.model.names import ConsumerName, QueueName
from mqworker.model.record import (
    are_any_limited,
    is_on_probation,
    losses_of,
    must_run_alone,
    permit_ms_of,
    task_of,
)
from mqworker.model.settlement import Settlement
from mqworker.queues.work.calls import LOOK_AGAIN, LookAgain, WorkQueueCalls, WorkQueueOptions
from mqworker.store.exchange import Exchange
from mqworker.store.script import Call
from mqworker.store.store import Store

if TYPE_CHECKING:
    from mqworker.actors.dispatcher.foreign_queue import ForeignQueues

STORE_TROUBLE = (StoreUnavailable, StoreRefused, StoreFull)
OUTAGE_PAUSE_MS = 200
LARGEST_CLAIM = 1_000
MOST_POLLED = 200
"""How many queues are polled in one turn; a node with more relies on wake-ups for longer."""
CAUTION_MS = 1_000
LONGEST_CAUTION_MS = 8_000
"""How long after a give-back event loops are not counted as room for that queue; longer each time
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
    """When its permit ends; 0 if it needs no permit."""


class KnownTasks(NamedTuple):
    """What all queues need to know about the tasks; built once, since there may be thousands of both."""

    once: frozenset[bytes]
    asynchronous: frozenset[bytes]
    limited_by_queue: dict[str, frozenset[bytes]]
    max_losses: dict[bytes, int | None]
    batches: dict[bytes, BatchTerms]
    by_queue: dict[str, list[bytes]]

    @classmethod
    def of(cls, tasks: Mapping[str, Mapping[str, Any]]) -> KnownTasks:
        """From what a worker says."""
        limited: dict[str, set[bytes]] = {}
        by_queue: dict[str, list[bytes]] = {}
        for name, task in tasks.items():
            by_queue.setdefault(task["queue"], []).append(name.encode())
            if task["limited"]:
                limited.setdefault(task["queue"], set()).add(name.encode())
        return cls(
            frozenset(name.encode() for name, task in tasks.items() if task["once"]),
            frozenset(name.encode() for name, task in tasks.items() if task["async"]),
            {queue: frozenset(names) for queue, names in limited.items()},
            {name.encode(): task.get("max_losses") for name, task in tasks.items()},
            {name.encode(): BatchTerms(*task["batch"]) for name, task in tasks.items() if "batch" in task},
            by_queue,
        )


class DispatchedQueue:
    """Builds the calls of one turn; sends nothing itself."""

    counts_releases = False
    """Whether a delivery that is given back counts as an attempt."""
    loses_unbegun = False
    """Whether what a worker has not begun is lost with it: then nothing waits behind another."""

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
        self.batches = QueueBatches()
        self.worker_ms = 0.0
        """The time that workers spent on it, divided by its weight; who had least is served first."""
        self.resume_at_ms = 0
        """When to try again after trouble with its server; 0 while all is well."""
        self.is_unreachable = False
        """Whether that trouble was that nobody answered."""
        self._consumer = consumer
        self._weight = 1
        self._max_losses: dict[bytes, int | None] = {}
        self._settlements: list[Call[Any]] = []
        self._receipts: list[Receipt] = []
        self._receipts_under_way: list[Receipt] = []
        self._once_tasks: frozenset[bytes] = frozenset()
        self._async_tasks: frozenset[bytes] = frozenset()
        self._exchange: Exchange | None = None
        self._asked_at_ms = 0
        """Before the exchange under way was sent for the first time: permits are counted from there."""
        self.asked_for = 0
        """How many the exchange under way asks for."""
        self._is_claiming = False
        self.lost_leases = 0
        """Deliveries that somebody else had when they were to be settled."""
        self._received = 0
        self.is_line_long = False
        """Whether the last claim came back full."""
        self._left_over = 0
        self._cautious_until_ms = 0
        self._caution_ms = CAUTION_MS
        self.asked_for_all = 0
        """How often it was asked for parked messages of all tasks that are known here."""
        self._known: Mapping[str, str] = {}
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

    def learn(self, weight: int, tasks: KnownTasks) -> None:
        """What the application says of this queue and of all tasks."""
        self._weight = weight
        self._once_tasks, self._async_tasks = tasks.once, tasks.asynchronous
        self.limited_tasks = tasks.limited_by_queue.get(self.name, frozenset())
        self._max_losses = tasks.max_losses
        self.batches.learn(tasks.by_queue.get(self.name, ()), tasks.batches)

    def batch_terms(self, task: bytes) -> BatchTerms | None:
        """How a task takes batches; None where it takes none."""
        return self.batches.by_task.get(task)

    @property
    def is_limited(self) -> bool:
        """Whether some of its messages wait for permits."""
        return bool(self.limited_tasks)

    def look_for_parked(self, known: Mapping[str, str]) -> None:
        """Claim what others could not run, of these tasks too, each with its version."""
        self._known = {**self._known, **known} if self._looks_for_parked else known
        self._looks_for_parked = bool(self._known)
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
        """Whether nothing may run beside it: a worker died while it ran, or it was lost too often."""
        return must_run_alone(record) or is_on_probation(record) or self.is_lost_too_often(record)

    def is_lost_too_often(self, record: bytes) -> bool:
        """Whether it may take its node with it: it is given one more chance, on probation."""
        limit = self._max_losses.get(task_of(record))
        return limit is not None and losses_of(record) >= limit

    def begin_probation(self, fence: int) -> Call[bytes | None]:
        """To be called before it runs: its record with the mark, None when the lease was lost."""
        return self.calls.begin_probation(fence, self._consumer)

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
        if self.batches.own:
            # What is gathered and fills the batches of all workers is enough: other nodes can have the rest.
            return self.batches.wanted(room)
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
            calls = self._settlements
            # Below 0 when queues before this one were given more than there was room for.
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
                idle_tickets = [NO_TICKET] * self._offering if self.is_line_long else tickets(self._offering)
                offer = self.places.offer(idle_tickets)
                known = [*chain.from_iterable(self._known.items())] if self._looks_for_parked else ()
                calls = [*calls, self.calls.claim_records(self.asked_for, self._consumer, offer, known)]
            if not calls:
                return None
            self._settlements = []
            self._receipts, self._receipts_under_way = [], self._receipts
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
        reply: list[tuple[int, bytes]] | LookAgain = results[-1] if self._is_claiming else LOOK_AGAIN
        if reply is LOOK_AGAIN:
            return []
        self._received = len(reply)
        self._offered = max(0, self._offering - self._received)
        claimed_bytes = sum([len(record) for _, record in reply])
        is_more_likely = self._received >= self.asked_for or claimed_bytes > MANY_BYTES
        self.may_have_messages = is_more_likely if self.asked_for else self.may_have_messages
        self.is_line_long = self.asked_for > 0 and is_more_likely
        if self._looks_for_parked and self.asked_for:
            # What was parked was delivered before; as long as such come, there may be more of them.
            self._looks_for_parked = any(record[DELIVERIES] != NEVER_DELIVERED for _, record in reply)
        claimed = [Claimed(fence, record, now_ms) for fence, record in reply]
        if are_any_limited([record for _, record in reply]):
            claimed = [self._with_permit(each) for each in claimed]
        return claimed

    def _with_permit(self, claimed: Claimed) -> Claimed:
        permit_ms = permit_ms_of(claimed.record)
        return claimed if permit_ms is None else claimed._replace(start_by_ms=self._asked_at_ms + permit_ms)

    def note_handed_over(self) -> None:
        """The server gave us a message as it was enqueued (enqueue.lua)."""
        self._offered = max(0, self._offered - 1)

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
        self._polled = 0
        for name in names:
            self._open(name)

    def __iter__(self) -> Iterator[DispatchedQueue]:
        return iter(self._queue_by_name.values())

    def __getitem__(self, name: str) -> DispatchedQueue:
        return self._foreign_queues.get(name) or self._queue_by_name[name]

    def wake(self, queue: DispatchedQueue) -> None:
        """It may have messages again."""
        if not queue.may_have_messages:
            queue.wake(min(each.worker_ms for each in self))

    def next_polled(self) -> list[DispatchedQueue]:
        """Queues to ask now although no wake-up came: all, or a few in turn when there are very many."""
        queues = [*self._queue_by_name.values()]
        first = self._polled % max(1, len(queues))
        self._polled = first + MOST_POLLED
        return (queues[first:] + queues[:first])[:MOST_POLLED]

    @property
    def is_any_line_long(self) -> bool:
        """Whether more messages wait somewhere than there is room for."""
        return any(queue.is_line_long for queue in self)

    def get(self, name: str) -> DispatchedQueue | None:
        """A queue by name, None when this node does not serve it."""
        return self._foreign_queues.get(name) or self._queue_by_name.get(name)

    def marked(self, mark: int) -> DispatchedQueue | None:
        """The work queue with this mark in a run slot."""
        return next((queue for queue in self if mark_of(queue.name) == mark), None)

    def learn(self, ready: WorkerReady) -> None:
        """What a worker says about its queues and their tasks."""
        tasks = KnownTasks.of(ready.tasks)
        for name, options in ready.queues.items():
            if self._fixed and name not in self._fixed:
                continue
            if "model" in options:
                self._queue_by_name.pop(name, None)
                self._foreign_queues.open(name, options["model"])
            elif name not in self._queue_by_name:
                self._open(name)
            self[name].learn(options.get("weight", 1), tasks)

    def _open(self, name: str) -> None:
        self._queue_by_name[name] = DispatchedQueue(QueueName(name), self._consumer, self._options)


class Room(NamedTuple):
    """How many deliveries the workers could take now."""

    anywhere: int
    in_order: int
    """Event loops left out."""
    idle: Idle
    """How many could begin this moment."""


class Answered(NamedTuple):
    """What a queue answered."""

    queue: DispatchedQueue
    claimed: list[Claimed]
    is_back: bool
    """Whether its server was away before: it may have forgotten something."""


class Claiming:
    """Settles and claims in all work queues of a dispatcher."""

    def __init__(self, store: Store, queues: DispatchedQueues, log: Logger) -> None:
        self._store = store
        self._queues = queues
        self._log = log

    def exchange(self, room: Room, tickets: Callable[[int], list[str]], now_ms: int) -> Iterator[Answered]:
        """Send what there is to settle, and claim as much as there is room for.

        Queues in trouble are asked last, and one in a turn: a shard of a cluster that hangs must not hold
        back the others for long, and pings are answered in between.
        """
        healthy: list[tuple[DispatchedQueue, Exchange]] = []
        troubled: list[tuple[DispatchedQueue, Exchange]] = []
        anywhere, in_order, idle = room
        for queue in sorted(self._queues, key=lambda each: each.worker_ms):
            if now_ms < queue.resume_at_ms:
                continue
            wanted = queue.wants(anywhere, in_order, now_ms)
            exchange = queue.next_exchange(self._store, wanted, idle, tickets, now_ms)
            if exchange is not None:
                anywhere, in_order = anywhere - queue.asked_for, in_order - queue.asked_for
                (troubled if queue.resume_at_ms else healthy).append((queue, exchange))
        for together in (healthy, troubled[:1]):
            outcomes = self._store.attempt_each([exchange for _, exchange in together])
            for (queue, _), outcome in zip(together, outcomes, strict=True):
                yield from self._complete(queue, outcome, now_ms)

    def suspend(self, queue: DispatchedQueue, error: MqworkerError, now_ms: int) -> None:
        """Leave a queue alone for a moment, because its server did not answer or refused."""
        queue.is_unreachable = not (isinstance(error, StoreRefused) and error.is_about_data)
        if not queue.is_unreachable:
            self._store.quarantine.note("queue", queue.name, error)
        elif not queue.resume_at_ms:
            self._log.warning("store_unavailable", queue=queue.name, reason=str(error))
        queue.resume_at_ms = now_ms + OUTAGE_PAUSE_MS

    def begin_probation(self, queue: DispatchedQueue, fence: int, now_ms: int) -> bytes | None:
        """Note at the server that a delivery runs on probation now: its record, None if that failed."""
        try:
            return self._store.run(queue.begin_probation(fence))
        except STORE_TROUBLE as error:
            self.suspend(queue, error, now_ms)
            return None

    # Any: what the scripts of the exchange answer.
    def _complete(
        self, queue: DispatchedQueue, outcome: list[Any] | MqworkerError, now_ms: int
    ) -> Iterator[Answered]:
        if isinstance(outcome, MqworkerError):  # only this queue is in trouble, whatever the error is
            self.suspend(queue, outcome, now_ms)
            return
        is_back = bool(queue.resume_at_ms)
        if is_back:
            self._log.info("store_resumed", queue=queue.name)
            queue.resume_at_ms = 0
        yield Answered(queue, queue.complete(outcome, now_ms), is_back)
