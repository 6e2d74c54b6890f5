"""Lines: queues of other models than the work queue, as the dispatcher sees them.

To the shelf and the crew they are queues like any other. They take no part in exchanges: a clerk, which is a
thread (dispatcher_clerk.py), speaks with the queue, and only numbers and records pass between the two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any

from mqworker.actors.actor import SUPERVISOR, Post, Watched
from mqworker.actors.child_start import ChildStart
from mqworker.actors.dispatcher.adoption import Held
from mqworker.actors.dispatcher.foreign_queue_thread import Clerk, fences_since
from mqworker.actors.dispatcher.hand_out import Shelf
from mqworker.actors.dispatcher.queue import Claimed, DispatchedQueue, Receipt
from mqworker.actors.dispatcher.workers import Crew, Idle
from mqworker.actors.mail import AbandonDelivery, KillWorker
from mqworker.actors.waker import Bell
from mqworker.actors.wiring import logger_of, open_store, queue_options
from mqworker.log import Logger
from mqworker.model.clock import Clock, SystemClock
from mqworker.model.crash_limit import after_crash
from mqworker.model.names import ConsumerName, QueueName
from mqworker.model.record import decode_record
from mqworker.model.settlement import Bury, Crash, Failure, Retry, Settlement, Suspect
from mqworker.model.settlement_parts import parts_of
from mqworker.queues.catalogue import Model, from_plain, open_queue, public_facts
from mqworker.queues.work.calls import WorkQueueOptions
from mqworker.store.store import Store

NOT_ADOPTED = "the dispatcher ended"


class ModelLine(DispatchedQueue):
    """One queue of another model, and its clerk."""

    def __init__(
        self,
        name: QueueName,
        consumer: ConsumerName,
        options: WorkQueueOptions,
        model: Model,
        clerk: Clerk,
    ) -> None:
        super().__init__(name, consumer, options)
        self.model = model
        self.clerk = clerk

    def runs_once(self, task: bytes) -> bool:
        """Whether a task is delivered at most once: here that is for the queue to say."""
        return self.model.is_once or super().runs_once(task)

    def must_run_alone(self, record: bytes) -> bool:  # noqa: ARG002 - whatever it says
        """Never: these models count deliveries, and know nothing of crashes, suspicion and losses."""
        return False

    def add_settlement(self, arguments: Sequence[Any], receipt: Receipt) -> None:
        """Pass a worker's report on."""
        self.clerk.report(arguments, receipt)

    def settle(self, settlements: Sequence[Settlement]) -> None:
        """Settle something of the dispatcher's own."""
        self.clerk.report([parts_of(each) for each in settlements])

    def settle_for_the_lost(self, settlements: Sequence[Settlement]) -> None:
        """The same for what a worker had when it ended; at most once, nobody else may have it then."""
        # There is no place for a suspicion: where several may be guilty, all of them are counted.
        counted = [
            after_crash(each.delivery, each.cause) if isinstance(each, Suspect) else each
            for each in settlements
        ]
        self.settle([_given_up(each) for each in counted] if self.model.is_once else counted)

    def arrived(self, now_ms: int) -> list[Claimed]:
        """What the clerk has claimed."""
        claimed = [Claimed(fence, record, now_ms) for fence, record in self.clerk.take_claimed()]
        self._received = len(claimed)
        return claimed

    def offer(self, room: int, idle: Idle) -> None:
        """Let the clerk claim, as much as is sure to find a worker soon.

        For what is claimed and then given back counts as an attempt with these models; and what may run once
        only is lost with this process when it was claimed and has not begun. Event loops are not counted: who
        knows whether the next messages are for them. They fill up by and by.
        """
        most = idle.sequential if self.model.is_once else max(self._appetite, idle.sequential)
        self.asked_for = min(room, most)
        self.clerk.want(self.asked_for)

    def facts(self) -> dict[str, Any]:
        """For the status screen."""
        return {
            **public_facts(self.model),
            "held": self.clerk.held,
            "counts": dict(self.clerk.counts),
            "counts_age_ms": self.clerk.counts_age_ms,
            "trouble": self.clerk.trouble,
        }


class ModelLines:
    """All lines of a dispatcher; without one it costs nothing."""

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
        self._fences = fences_since(self._clock.now_ms())
        self._bell: Bell | None = None
        self._line_by_name: dict[str, ModelLine] = {}

    def __iter__(self) -> Iterator[ModelLine]:
        return iter(self._line_by_name.values())

    def get(self, name: str) -> ModelLine | None:
        """A line by name, if it is one."""
        return self._line_by_name.get(name)

    def open(self, name: str, plain: dict[str, Any]) -> ModelLine:
        """The line of this name; its clerk begins when it is first opened."""
        line = self._line_by_name.get(name)
        if line is None:
            self._bell = self._bell or Bell()
            model = from_plain(plain)
            store = cache(self._open_store)  # one, however often a queue that is away is opened
            clerk = Clerk(
                model,
                lambda: open_queue(name, model, store(), self._options.namespace),
                fences=self._fences,
                ring=self._bell.ring,
                max_crashes=self._max_crashes,
                clock=self._clock,
                log=self._log.bind(queue=name, model=model.title),
            )
            clerk.start()
            line = ModelLine(QueueName(name), self._consumer, self._options, model, clerk)
            self._line_by_name[name] = line
        return line

    def turn(
        self, shelf: Shelf, room: int, idle: Idle, queues: Iterable[DispatchedQueue], now_ms: int
    ) -> None:
        """Put on the shelf what was claimed, and say how much more could be."""
        if not self._line_by_name:
            return
        if self._bell is not None:
            self._bell.quiet()
        left = shelf.count_by_queue()
        least_ms = min((each.worker_ms for each in queues if each.may_have_messages), default=None)
        for line in self:
            line.note_left_over(left[line.name])
            for hand, number in line.clerk.take_stored():
                hand.accepted.append(number)
            arrived = line.arrived(now_ms)
            shelf.put(line, arrived)
            room = max(0, room - len(arrived))
            # Those with messages that had less of the workers' time come first.
            is_next = least_ms is None or line.worker_ms <= least_ms or idle.sequential > 0
            line.offer(room if is_next else 0, idle)

    def adopt(self, worker: str, held: Sequence[Held]) -> list[Post]:
        """Take over what a worker holds of these; where a model does not allow that, the worker has to go.

        For then the message comes back by the rules of the model, and would be run by two at a time.
        """
        is_foreign = False
        for line in self:
            ours = {each.fence: each.record for each in held if each.queue == line.name}
            if ours and line.model.has_lasting_fences:
                line.clerk.adopt({fence: decode_record(record, fence) for fence, record in ours.items()})
            is_foreign |= bool(ours) and not line.model.has_lasting_fences and not line.model.is_once
        return [Post(SUPERVISOR, KillWorker(worker, NOT_ADOPTED))] if is_foreign else []

    def abandoned(self, crew: Crew) -> list[Post]:
        """What to tell the workers that have something whose lease was lost."""
        return [
            Post(hand.name, AbandonDelivery(line.name, fence))
            for line in self
            for fence in line.clerk.take_lost()
            for hand in crew
            if hand.lose(line.name, fence)
        ]

    def watched(self) -> tuple[Watched, ...]:
        """What to wait for."""
        return () if self._bell is None else (self._bell,)

    def facts(self) -> dict[str, Any]:
        """For the status screen."""
        return {line.name: line.facts() for line in self}

    def close(self) -> None:
        """Let all clerks settle what is left and leave."""
        for line in self:
            line.clerk.close()


def lines_of(start: ChildStart) -> ModelLines:
    """The lines of a dispatcher; each has links of its own, which open when it does."""
    return ModelLines(
        ConsumerName(start.consumer),
        queue_options(start.settings),
        open_store=lambda: open_store(start),
        max_crashes=start.settings.max_crashes,
        log=logger_of(start),
    )


def _given_up(settlement: Settlement) -> Settlement:
    if isinstance(settlement, Bury):
        return settlement
    failure = settlement.failure if isinstance(settlement, Retry) else None
    was = "the worker died" if isinstance(settlement, Crash) else "the worker ended"
    return Bury(
        settlement.delivery,
        "crashed",
        failure or Failure("WorkerCrashed", f"{was} while it had this message"),
    )
