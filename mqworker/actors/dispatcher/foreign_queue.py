"""Foreign queues: queues of other models than the work queue, as the dispatcher sees them.

For the hand-out they are queues like any other. They take no part in exchanges: a thread of their own
(foreign_queue_thread.py) speaks with the queue, and only numbers and records pass between the two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from mqworker.actors.actor import Post, Watched
from mqworker.actors.child_start import ChildStart
from mqworker.actors.dispatcher.foreign_queue_thread import ForeignQueueThread
from mqworker.actors.dispatcher.hand_out import HandOut
from mqworker.actors.dispatcher.queue import Claimed, DispatchedQueue, Receipt
from mqworker.actors.dispatcher.workers import Idle, Workers
from mqworker.actors.mail import AbandonDelivery
from mqworker.actors.waker import Waker
from mqworker.actors.wiring import logger_of, open_store, queue_options
from mqworker.log import Logger
from mqworker.model.batch import BatchTerms
from mqworker.model.clock import Clock, SystemClock
from mqworker.model.crash_limit import after_crash
from mqworker.model.names import ConsumerName, QueueName
from mqworker.model.record import decode_record
from mqworker.model.settlement import Bury, Crash, Failure, RetryAt, Settlement, Suspect
from mqworker.model.settlement_parts import parts_of
from mqworker.queues.catalogue import Model, from_plain, open_queue, public_facts
from mqworker.queues.work.calls import WorkQueueOptions
from mqworker.store.store import Store

if TYPE_CHECKING:
    from mqworker.actors.dispatcher.adoption import Held


class ForeignQueue(DispatchedQueue):
    """One queue of another model, and its thread."""

    counts_releases = True

    def __init__(
        self,
        name: QueueName,
        consumer: ConsumerName,
        options: WorkQueueOptions,
        model: Model,
        thread: ForeignQueueThread,
    ) -> None:
        super().__init__(name, consumer, options)
        self.model = model
        self.thread = thread
        self.loses_unbegun = model.is_once

    def runs_once(self, task: bytes) -> bool:
        """Whether a task is delivered at most once: here that is for the queue to say."""
        return self.model.is_once or super().runs_once(task)

    def must_run_alone(self, record: bytes) -> bool:  # noqa: ARG002 - whatever it says
        """Never: these models count deliveries, and know nothing of crashes, suspicion and losses."""
        return False

    def batch_terms(self, task: bytes) -> BatchTerms | None:  # noqa: ARG002 - whatever it is
        """None: a task that takes batches is refused for these queues; if one comes, it runs by itself."""
        return None

    def add_settlement(self, arguments: Sequence[Any], receipt: Receipt) -> None:
        """Pass a worker's report on."""
        self.thread.report(arguments, receipt)

    def settle(self, settlements: Sequence[Settlement]) -> None:
        """Settle something of the dispatcher's own."""
        self.thread.report([parts_of(each) for each in settlements])

    def settle_for_the_lost(self, settlements: Sequence[Settlement]) -> None:
        """The same for what a worker had when it ended; at most once, nobody else may have it then."""
        # There is no place for a suspicion: where several may be guilty, all of them are counted.
        counted = [
            after_crash(each.delivery, each.cause) if isinstance(each, Suspect) else each
            for each in settlements
        ]
        self.settle([_given_up(each) for each in counted] if self.model.is_once else counted)

    def arrived(self, now_ms: int) -> list[Claimed]:
        """What the thread has claimed."""
        claimed = [Claimed(fence, record, now_ms) for fence, record in self.thread.take_claimed()]
        self._received = len(claimed)
        return claimed

    def offer(self, room: int, idle: Idle) -> None:
        """Let the thread claim as much as is sure to find a worker soon.

        With these models, what is claimed and then given back counts as an attempt; and an at-most-once
        message that was claimed and has not begun is lost with this process. Event loops are not counted:
        nobody knows whether the next messages are for them. They fill up gradually.
        """
        most = idle.sequential if self.model.is_once else max(self._appetite, idle.sequential)
        self.asked_for = min(room, most)
        self.thread.want(self.asked_for)

    def facts(self) -> dict[str, Any]:
        """For the status screen."""
        return {
            **public_facts(self.model),
            "held": self.thread.held,
            "counts": dict(self.thread.counts),
            "counts_age_ms": self.thread.counts_age_ms,
            "trouble": self.thread.trouble,
        }


class ForeignQueues:
    """All foreign queues of a dispatcher; without one it costs nothing."""

    def __init__(
        self,
        consumer: ConsumerName,
        options: WorkQueueOptions,
        *,
        open_store: Callable[[], Store],
        max_crashes: int | None,
        log: Logger,
        clock: Clock | None = None,
    ) -> None:
        self._consumer = consumer
        self._options = options
        self._open_store = open_store
        self._max_crashes = max_crashes
        self._log = log
        self._clock = clock or SystemClock()
        self._waker: Waker | None = None
        self._queue_by_name: dict[str, ForeignQueue] = {}

    def __iter__(self) -> Iterator[ForeignQueue]:
        return iter(self._queue_by_name.values())

    def get(self, name: str) -> ForeignQueue | None:
        """A queue by name, None when no foreign queue is called so."""
        return self._queue_by_name.get(name)

    def open(self, name: str, plain: dict[str, Any]) -> ForeignQueue:
        """The queue of this name; its thread starts when it is first opened."""
        queue = self._queue_by_name.get(name)
        if queue is None:
            self._waker = self._waker or Waker()
            model = from_plain(plain)
            store = cache(self._open_store)  # one, however often a queue that is away is opened
            thread = ForeignQueueThread(
                model,
                lambda: open_queue(name, model, store(), self._options.namespace, node=self._consumer),
                wake_dispatcher=self._waker.wake,
                max_crashes=self._max_crashes,
                clock=self._clock,
                log=self._log.bind(queue=name, model=model.title),
            )
            thread.start()
            queue = ForeignQueue(QueueName(name), self._consumer, self._options, model, thread)
            self._queue_by_name[name] = queue
        return queue

    def turn(
        self, hand_out: HandOut, room: int, idle: Idle, queues: Iterable[DispatchedQueue], now_ms: int
    ) -> None:
        """Pass on what was claimed to the hand-out, and say how much more could be."""
        if not self._queue_by_name:
            return
        if self._waker is not None:
            self._waker.clear()
        left = hand_out.count_by_queue()
        least_ms = min((each.worker_ms for each in queues if each.may_have_messages), default=None)
        for queue in self:
            queue.note_left_over(left[queue.name])
            for worker, number in queue.thread.take_stored():
                worker.accepted.append(number)
            arrived = queue.arrived(now_ms)
            hand_out.put(queue, arrived)
            room = max(0, room - len(arrived))
            # Those with messages that had less of the workers' time come first.
            is_next = least_ms is None or queue.worker_ms <= least_ms or idle.sequential > 0
            queue.offer(room if is_next else 0, idle)

    def adopt(self, held: Sequence[Held]) -> None:
        """Take over what a worker holds of these."""
        for queue in self:
            ours = {each.fence: each.record for each in held if each.queue == queue.name}
            if ours:
                queue.thread.adopt({fence: decode_record(record, fence) for fence, record in ours.items()})

    def end_adoption(self) -> None:
        """No worker has anything more of the dispatcher before us."""
        for queue in self:
            queue.thread.end_adoption()

    def abandoned(self, workers: Workers) -> list[Post]:
        """What to tell the workers that have something whose lease was lost."""
        return [
            Post(worker.name, AbandonDelivery(queue.name, fence))
            for queue in self
            for fence in queue.thread.take_lost()
            for worker in workers
            if worker.lose(queue.name, fence)
        ]

    def watched(self) -> tuple[Watched, ...]:
        """What to wait for."""
        return () if self._waker is None else (self._waker,)

    def facts(self) -> dict[str, Any]:
        """For the status screen."""
        return {queue.name: queue.facts() for queue in self}

    def close(self) -> None:
        """Let all threads settle what is left and leave."""
        for queue in self:
            queue.thread.close()


def foreign_queues_of(start: ChildStart) -> ForeignQueues:
    """The foreign queues of a dispatcher; each has connections of its own, which open when it does."""
    return ForeignQueues(
        ConsumerName(start.consumer),
        queue_options(start.settings),
        open_store=lambda: open_store(start),
        max_crashes=start.settings.max_crashes,
        log=logger_of(start),
    )


def _given_up(settlement: Settlement) -> Settlement:
    if isinstance(settlement, Bury):
        return settlement
    failure = settlement.failure if isinstance(settlement, RetryAt) else None
    was = "the worker died" if isinstance(settlement, Crash) else "the worker ended"
    return Bury(
        settlement.delivery,
        "crashed",
        failure or Failure("WorkerCrashed", f"{was} while it had this message"),
    )
