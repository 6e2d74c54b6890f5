"""The broker of a bench: schedules tick as its clock moves, events reach subscribers, workflows go on.

Everything is done by the code that real brokers run, on the server in memory. What an app has is published
again whenever it changed, for tests declare tasks while the bench is open.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from mqworker.errors import MqworkerError
from mqworker.log import get_logger
from mqworker.model.clock import ManualClock
from mqworker.model.names import QueueName
from mqworker.queues.work.queue import WorkQueue
from mqworker.store.store import Store
from mqworker.tasks.app import App
from mqworker.tasks.events.delivery import EventDelivery
from mqworker.tasks.events.subscription import Subscriptions, register_subscriptions
from mqworker.tasks.schedules.book import ScheduleState
from mqworker.tasks.schedules.firing import ScheduleFiring
from mqworker.tasks.schedules.schedule import Schedule, publish_schedules
from mqworker.tasks.workflows.outbox import OutboxDrain

MOST_TICKS = 1_000
"""That many at once are rather a mistake: a tick costs some ten milliseconds here."""


class BenchBroker:
    """Carries out what is due by the clock, when asked."""

    def __init__(self, app: App, store: Store, clock: ManualClock) -> None:
        self._app = app
        self._store = store
        self._clock = clock
        self._published: dict[str, Schedule] = {}
        self._registered: Subscriptions = {}

    def announce(self) -> None:
        """Publish schedules and subscriptions, as a worker does that starts with the app as it is now."""
        if self._app.schedules.declared != self._published:
            publish_schedules(self._app)
            self._published = dict(self._app.schedules.declared)
        if self._app.subscriptions != self._registered:
            register_subscriptions(self._app)
            self._registered = {topic: dict(tasks) for topic, tasks in self._app.subscriptions.items()}

    def tend(self) -> None:
        """Enqueue what follows from ticks, events and ends of workflow members."""
        self.announce()
        self._firing.fire()
        self._events.deliver()

    def drain(self, queue: WorkQueue) -> None:
        """Carry on the workflows whose members ended in this queue."""
        self._outbox.drain(queue)

    def pass_time(self, ms: int) -> None:
        """Move the clock from tick to tick, as it passes a broker that never sleeps."""
        self.announce()
        until_ms = self._clock.now_ms() + ms
        self._refuse_a_flood(until_ms)
        next_in_ms = self._firing.fire()
        while next_in_ms is not None and self._clock.now_ms() + next_in_ms <= until_ms:
            self._clock.advance(ms=next_in_ms)
            next_in_ms = self._firing.fire()
        self._clock.advance(ms=until_ms - self._clock.now_ms())

    def _refuse_a_flood(self, until_ms: int) -> None:
        ticks = 0
        for schedule in self._schedules():
            for tick_ms in () if schedule.is_paused else schedule.timing.ticks_after(self._clock.now_ms()):
                if tick_ms > until_ms:
                    break
                ticks += 1
                if ticks > MOST_TICKS:
                    raise MqworkerError(
                        f"more than {MOST_TICKS:,} ticks of schedules fall into that time; advance by less, "
                        "or use bench.pass_over(...): it skips them, as when all nodes are down"
                    )

    def _schedules(self) -> Iterator[ScheduleState]:
        page = self._app.schedules.list()
        while page:
            yield from page
            page = self._app.schedules.list(after=page[-1].name)

    def _queue(self, name: QueueName) -> WorkQueue:
        return self._app.work_queue(name)

    @cached_property
    def _firing(self) -> ScheduleFiring:
        return ScheduleFiring(
            self._store, self._app.settings.namespace, self._queue, get_logger(part="bench"), self._clock
        )

    @cached_property
    def _events(self) -> EventDelivery:
        return EventDelivery(
            self._store,
            self._app.settings.namespace,
            self._queue,
            get_logger(part="bench"),
            publisher_ms=0,  # nobody is in the middle of publishing here
        )

    @cached_property
    def _outbox(self) -> OutboxDrain:
        settings = self._app.settings
        return OutboxDrain(
            self._store,
            settings.namespace,
            self._queue,
            max_message_bytes=settings.max_message_bytes,
            log=get_logger(part="bench"),
        )
