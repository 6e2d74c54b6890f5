"""Broker: everything until a message is ready.

Owns:     the time at which the next delayed message, or the next tick of a schedule, is due.
Receives: Drain (supervisor).
Sends:    TelemetryGathered (exporter), of schedules that it fired, where runs are traced. What gateways take
          in is committed beside it (gateway/commit.py).
Never:    claims, settles or runs anything. It also refuses, at its start, a server that would lose messages.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from mqworker.actors.actor import Post, Watched
from mqworker.actors.child_start import ChildStart
from mqworker.actors.gateway.serving import run_broker
from mqworker.actors.mail import Drain, Mail, TelemetryGathered
from mqworker.actors.mailbox import Mailbox
from mqworker.actors.patrol import BATCH, Patrol, QueueLooks
from mqworker.actors.queue_roster import QueueRoster
from mqworker.actors.rounds import Rounds
from mqworker.actors.wake_ups import WakeUps
from mqworker.actors.wiring import logger_of, open_store, quarantine_of, queue_options, topic_options
from mqworker.errors import ConfigurationError, StoreFull, StoreRefused, StoreUnavailable
from mqworker.log import Logger
from mqworker.model.names import QueueName
from mqworker.model.trace_context import Sampling
from mqworker.queues.topics.arguments import TopicOptions
from mqworker.queues.topics.client import Topics
from mqworker.queues.work.calls import WorkQueueOptions
from mqworker.queues.work.steps import LARGEST_BATCH
from mqworker.store.command import Command
from mqworker.store.script import Call
from mqworker.store.server_check import check_server
from mqworker.store.store import Store
from mqworker.tasks.events.delivery import EventDelivery
from mqworker.tasks.schedules.firing import ScheduleFiring
from mqworker.tasks.tracing.firing import FiringTracer
from mqworker.tasks.workflows.outbox import OutboxDrain

EXPORTER = "exporter"
ROUND_MS = 1_000
"""A lost wake-up delays a delayed message by this much at the most; with thousands of queues, by more."""

LONGEST_FORGET_MS = 10_000
"""A queue that has nothing but results is asked again when some of them end; but at least so often, for one
that is kept for a shorter time may have come meanwhile."""

_SIGNS = ("delayed", "deadlines")
"""A queue that has none of these keys has nothing to promote or to expire."""
_RESULTS = ("results", "results:old")
"""A queue that has none of these keys has nothing to forget."""


class Broker:
    """The actor; see the module's first lines."""

    name = "broker"

    def __init__(
        self,
        store: Store,
        roster: QueueRoster,
        log: Logger,
        *,
        outbox: OutboxDrain,
        schedules: ScheduleFiring,
        events: EventDelivery,
        topics: TopicFanOut,
        tracer: FiringTracer | None = None,
    ) -> None:
        self._tracer = tracer
        self._store = store
        self._outbox = outbox
        self._schedules = schedules
        self._events = events
        self._topics = topics
        self._roster = roster
        self._is_checked = False
        self._is_answered = True
        self._rounds = Rounds(ROUND_MS, log, store.quarantine)
        self._looks = QueueLooks(store, roster, Patrol(ROUND_MS), log)
        self._busy: deque[QueueName] = deque()
        self._forget_at_ms: dict[QueueName, int] = {}
        """When results of a queue end, as far as it said."""
        self._channels: frozenset[str] = frozenset()
        self._log = log
        self._wake_ups = WakeUps(store)
        self._expired = 0
        self.is_done = False

    def handle(self, mail: Mail, sender: str, now_ms: int) -> Sequence[Post]:  # noqa: ARG002
        """The only mail it acts on is Drain."""
        if isinstance(mail, Drain):
            self.is_done = True
        return ()

    def turn(self, now_ms: int) -> Sequence[Post]:
        """Promote what is due and expire what is late; sleep until the next one is due, or somebody calls."""
        self._hear_calls(now_ms)
        soonest: list[int] = []
        steps: list[Callable[[], object]] = [self._check_server, partial(self._learn_queues, now_ms)]
        steps += [partial(self._fire_schedules, soonest), self._events.deliver]
        is_answered = self._rounds.hold(now_ms, steps)
        for due_in_ms in soonest:
            self._rounds.hurry(due_in_ms, now_ms)
        if is_answered and self._is_checked:
            self._rounds.attempt(partial(self._look, now_ms))
            is_answered = not self._looks.is_troubled
        if is_answered:
            self._topics.turn(now_ms)
        self._is_answered = is_answered
        fired = [] if self._tracer is None else self._tracer.take()
        return [Post(EXPORTER, TelemetryGathered(fired))] if fired else ()

    def next_turn_in_ms(self, now_ms: int) -> int:
        """Until something is due."""
        if self._busy:
            return 0
        waits_ms = [self._rounds.due_in_ms(now_ms), self._looks.patrol.due_in_ms(now_ms)]
        if self._is_answered:  # else topics are left out of turns, and would be due all the time
            waits_ms.append(self._topics.due_in_ms(now_ms))
        return min(waits_ms)

    def watched(self) -> Iterable[Watched]:
        """The subscriptions to wake-ups."""
        return (*self._wake_ups.watched(), *self._topics.watched())

    def note_subscription(self) -> None:
        """Somebody listens to a topic now: what waits there is to be fanned out."""
        self._topics.note_use()

    def facts(self) -> dict[str, Any]:
        """For the status screen."""
        return {
            "rounds": self._rounds.count,
            "expired": self._expired,
            "fired": self._schedules.fired,
            "ticks_skipped": self._schedules.skipped,
            "server_clock_steps": self._schedules.server_clock.steps,
            "server_clock_step": self._schedules.latest_clock_step,
            "queues": len(self._roster),
            "fanned_out": self._topics.moved,
        }

    def _check_server(self) -> None:
        if not self._is_checked:
            check_server(self._store.connection)  # raises ConfigurationError, which ends the node
            self._is_checked = True

    def _fire_schedules(self, soonest: list[int]) -> None:
        next_in_ms = self._schedules.fire()
        if next_in_ms is not None:
            soonest.append(next_in_ms)

    def _learn_queues(self, now_ms: int) -> None:
        size = len(self._roster)
        self._looks.refresh(now_ms)
        if len(self._roster) != size:
            self._channels = frozenset(map(self._channel, self._roster))
            self._hear_calls(now_ms)  # before they are looked at: nothing is missed in between

    def _look(self, now_ms: int) -> None:
        """One slice of the queues, or of those in which there is something to do."""
        if not self._busy:
            names = self._looks.patrol.take(now_ms)
            found = self._looks.glance(names, self._questions, now_ms)
            for name, (signs, has_results, has_outbox) in found.items():
                if has_outbox:
                    self._drain_outbox(name, now_ms)
                if signs or (has_results and now_ms >= self._forget_at_ms.get(name, 0)):
                    self._busy.append(name)
        some = [self._busy.popleft() for _ in range(min(BATCH, len(self._busy)))]
        calls = {name: self._calls(name) for name in some}
        for name, (promoted, expired, (_, forget_in_ms)) in self._looks.run(calls, now_ms).items():
            self._expired += expired
            self._forget_at_ms[name] = now_ms + min(forget_in_ms, LONGEST_FORGET_MS)
            if promoted[0] == LARGEST_BATCH or expired == LARGEST_BATCH:
                self._looks.patrol.hurry(name, now_ms)
            elif 0 <= promoted[1] < ROUND_MS or (promoted[1] >= 0 and self._looks.patrol.is_slow):
                self._looks.patrol.hurry(name, now_ms + promoted[1])

    def _questions(self, name: QueueName) -> tuple[Command, ...]:
        prefix = f"{self._roster.prefix}{{{name}}}:"
        return (
            ("EXISTS", *(prefix + sign for sign in _SIGNS)),
            ("EXISTS", *(prefix + sign for sign in _RESULTS)),
            ("EXISTS", f"{prefix}outbox"),
        )

    def _calls(self, name: QueueName) -> Sequence[Call[Any]]:
        calls = self._roster.calls(name)
        return calls.promote(LARGEST_BATCH), calls.expire(LARGEST_BATCH), calls.rotate_results()

    def _drain_outbox(self, name: QueueName, now_ms: int) -> None:
        try:
            self._outbox.drain(self._roster.queue(name))
        except StoreUnavailable:
            self._looks.patrol.note_away(name, now_ms)
        except (StoreRefused, StoreFull) as error:
            self._store.quarantine.note("outbox", name, error)

    def _channel(self, name: QueueName) -> str:
        return f"{self._roster.prefix}{{{name}}}:delayed"

    def _hear_calls(self, now_ms: int) -> None:
        """Scripts call when something is due sooner than anything before, and when an outbox is not empty."""
        for channel, _ in self._wake_ups.heard(self._channels):
            if channel:
                name = channel.removeprefix(f"{self._roster.prefix}{{").removesuffix("}:delayed")
                self._looks.patrol.hurry(QueueName(name), now_ms)
            else:  # some calls may have been missed
                self._looks.patrol.hurry_all()


def broker_of(
    store: Store,
    options: WorkQueueOptions,
    max_message_bytes: int,
    log: Logger,
    *,
    topics: TopicOptions | None = None,
    tracer: FiringTracer | None = None,
) -> Broker:
    """A broker with everything it needs."""
    roster = QueueRoster(store, options)
    return Broker(
        store,
        roster,
        log,
        outbox=OutboxDrain(
            store, options.namespace, roster.queue, max_message_bytes=max_message_bytes, log=log
        ),
        schedules=ScheduleFiring(store, options.namespace, roster.queue, log, tracer=tracer),
        events=EventDelivery(store, options.namespace, roster.queue, log),
        topics=TopicFanOut(Topics(store, topics), log),
        tracer=tracer,
    )


def main(control: Mailbox, start: ChildStart) -> int:
    """The broker's process."""
    settings, store = start.settings, open_store(start, quarantine_of(start))
    broker = broker_of(
        store,
        queue_options(settings),
        settings.max_message_bytes,
        logger_of(start),
        topics=topic_options(settings),
        tracer=None if settings.otel == "off" else FiringTracer(Sampling(settings.otel_share)),
    )
    return run_broker(broker, control, start, store, on_subscribe=broker.note_subscription)


IDLE_LOOK_MS = 5_000
"""One SMEMBERS: how a node learns that somebody began to listen elsewhere."""
BUSY_LOOK_MS = 1_000
"""A lost call delays what was published by this much at the most."""


class TopicFanOut:
    """Calls `dispatch_waiting` when it is worth it."""

    def __init__(self, topics: Topics, log: Logger) -> None:
        self._topics = topics
        self._rounds = Rounds(IDLE_LOOK_MS, log, topics.store.quarantine)
        self._wake_ups = WakeUps(topics.store)
        self._is_off = False
        self._was_used = False
        self._listened_to = 0
        self.moved = 0

    def turn(self, now_ms: int) -> None:
        """Fan out what waits, if it is time."""
        if self._was_used or self._was_called():
            self._was_used = False
            self._rounds.hurry(0, now_ms)
        if not self._is_off:
            self._rounds.hold(now_ms, [lambda: self._dispatch(now_ms)])

    def note_use(self) -> None:
        """Somebody began to listen a moment ago, through this process."""
        self._was_used = True

    def due_in_ms(self, now_ms: int) -> int:
        """Until the next look."""
        return IDLE_LOOK_MS if self._is_off else self._rounds.due_in_ms(now_ms)

    def watched(self) -> Iterable[Watched]:
        """The subscription to calls, while somebody listens to a topic."""
        return self._wake_ups.watched()

    def _dispatch(self, now_ms: int) -> None:
        try:
            found = self._topics.dispatch_waiting()
        except ConfigurationError:
            # A cluster: whoever uses topics there is told; a node that does not has nothing to mend.
            self._is_off = True
            return
        self.moved += found.count
        self._listened_to = found.topics
        if found.topics:
            self._rounds.hurry(BUSY_LOOK_MS if found.next_in_ms is None else found.next_in_ms, now_ms)

    def _was_called(self) -> bool:
        return any(list(self._wake_ups.heard([self._topics.channel] if self._listened_to else [])))
