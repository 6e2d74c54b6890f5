"""Broker: everything until a message is ready.

Owns:     the time at which the next delayed message, or the next tick of a schedule, is due.
Receives: Drain (supervisor).
Sends:    nothing; what gateways take in is carried out by the desk beside it.
Never:    claims, settles or runs anything. It also refuses, at its start, a server that would lose messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from mqworker.actors.actor import Post, Watched
from mqworker.actors.child_start import ChildStart
from mqworker.actors.gateway.serving import run_broker
from mqworker.actors.mail import Drain, Mail
from mqworker.actors.mailbox import Mailbox
from mqworker.actors.queue_roster import QueueRoster
from mqworker.actors.rounds import Rounds
from mqworker.actors.wake_ups import WakeUps
from mqworker.actors.wiring import logger_of, open_store, queue_options, topic_options
from mqworker.errors import ConfigurationError
from mqworker.log import Logger
from mqworker.queues.topics.arguments import TopicOptions
from mqworker.queues.topics.client import Topics
from mqworker.queues.work.calls import WorkQueueOptions
from mqworker.queues.work.queue import WorkQueue
from mqworker.store.server_check import check_server
from mqworker.store.store import Store
from mqworker.tasks.events.delivery import EventDelivery
from mqworker.tasks.schedules.firing import ScheduleFiring
from mqworker.tasks.workflows.outbox import OutboxDrain

ROUND_MS = 1_000
"""A lost wake-up delays a delayed message by this much at the most."""


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
    ) -> None:
        self._store = store
        self._outbox = outbox
        self._schedules = schedules
        self._events = events
        self._topics = topics
        self._roster = roster
        self._is_checked = False
        self._rounds = Rounds(ROUND_MS, log)
        self._wake_ups = WakeUps(store)
        self._expired = 0
        self.is_done = False

    def handle(self, mail: Mail, sender: str, now_ms: int) -> Sequence[Post]:  # noqa: ARG002
        """Only the end concerns it, so far."""
        if isinstance(mail, Drain):
            self.is_done = True
        return ()

    def turn(self, now_ms: int) -> Sequence[Post]:
        """Promote what is due and expire what is late; sleep until the next one is due, or somebody calls."""
        if self._was_called():
            self._rounds.hurry(0, now_ms)
        soonest: list[int] = []
        steps: list[Callable[[], object]] = [self._check_server, partial(self._roster.refresh, now_ms)]
        steps += [partial(self._fire_schedules, soonest), self._events.deliver]
        steps += [partial(self._look_at, queue, soonest) for queue in self._roster]
        self._rounds.hold(now_ms, steps)
        for due_in_ms in soonest:
            self._rounds.hurry(due_in_ms, now_ms)
        self._topics.turn(now_ms)
        return ()

    def next_turn_in_ms(self, now_ms: int) -> int:
        """Until something is due."""
        return min(self._rounds.due_in_ms(now_ms), self._topics.due_in_ms(now_ms))

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
            "queues": sum(1 for _ in self._roster),
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

    def _look_at(self, queue: WorkQueue, soonest: list[int]) -> None:
        self._outbox.drain(queue)
        next_in_ms = queue.promote()
        if next_in_ms >= 0:
            soonest.append(next_in_ms)
        self._expired += queue.expire()
        queue.rotate_results()

    def _was_called(self) -> bool:
        return any(list(self._wake_ups.heard(queue.calls.keys.calls_for_broker for queue in self._roster)))


def broker_of(
    store: Store,
    options: WorkQueueOptions,
    max_message_bytes: int,
    log: Logger,
    *,
    topics: TopicOptions | None = None,
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
        schedules=ScheduleFiring(store, options.namespace, roster.queue, log),
        events=EventDelivery(store, options.namespace, roster.queue, log),
        topics=TopicFanOut(Topics(store, topics), log),
    )


def main(control: Mailbox, start: ChildStart) -> int:
    """The broker's process."""
    settings = start.settings
    broker = broker_of(
        open_store(start),
        queue_options(settings),
        settings.max_message_bytes,
        logger_of(start),
        topics=topic_options(settings),
    )
    return run_broker(broker, control, start, on_subscribe=broker.note_subscription)


IDLE_LOOK_MS = 5_000
"""One SMEMBERS: how a node learns that somebody began to listen elsewhere."""
BUSY_LOOK_MS = 1_000
"""A lost call delays what was published by this much at the most."""


class TopicFanOut:
    """Calls `dispatch_waiting` when it is worth it."""

    def __init__(self, topics: Topics, log: Logger) -> None:
        self._topics = topics
        self._rounds = Rounds(IDLE_LOOK_MS, log)
        self._wake_ups = WakeUps(topics.store)
        self._is_off = False
        self._was_used = False
        self._listened_to = 0
        self.moved = 0

    def turn(self, now_ms: int) -> None:
        """Move what waits, if it is time."""
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
