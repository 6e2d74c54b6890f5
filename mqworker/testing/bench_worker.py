"""The worker of a bench: the duties of a node's actors, done one at a time and only when asked.

The verbs are those that the actors use, on the same scripts: promote and expire (broker), reclaim and reap
(recovery scanner, heartbeat reaper), admit (rate limiter), claim and settle (dispatcher), and the TaskRunner.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import takewhile
from typing import Any, Literal, cast

from mqworker.errors import MqworkerError
from mqworker.model.batch import half_of
from mqworker.model.clock import Clock, SystemClock
from mqworker.model.crash_limit import after_crash
from mqworker.model.delivery import Delivery
from mqworker.model.names import LONGEST_HORIZON_MS, QueueName, TaskName, consumer_name
from mqworker.model.record import batch_key_of, most_together, task_of
from mqworker.model.settlement import Ack, Release, Settlement, Suspect
from mqworker.queues.work.keys import queues_key
from mqworker.queues.work.queue import WorkQueue
from mqworker.queues.work.steps import LARGEST_BATCH
from mqworker.store.store import Store
from mqworker.tasks.app import App
from mqworker.tasks.running.loop_thread import OwnLoop, is_loop_running
from mqworker.tasks.running.resources import WorkerResources
from mqworker.tasks.running.run import TaskRunner
from mqworker.tasks.running.task_link import StoreTaskLink
from mqworker.testing.bench_broker import BenchBroker
from mqworker.testing.summary import Tally

CrashMoment = Literal["before", "after"]

_CONSUMER = consumer_name("bench")


class BenchWorker:
    """Finds what is due, runs it, settles it."""

    def __init__(self, app: App, store: Store, clock: Clock, broker: BenchBroker) -> None:
        self._app = app
        self._broker = broker
        self._store = store
        self._crashes: dict[TaskName, list[CrashMoment]] = defaultdict(list)
        self._losses: Counter[TaskName] = Counter()
        self._silent_ms = round(app.settings.heartbeat_timeout_s * 1000)
        self._loop = OwnLoop()
        self._resources = WorkerResources(app.injection, self._loop)
        self._is_started = False
        self._runner = TaskRunner(
            app.registry,
            worker="bench",
            node="bench",
            clock=clock,
            max_message_bytes=app.settings.max_message_bytes,
            hooks=app.hooks,
            payloads=app.connections.payloads,
            link=StoreTaskLink(
                app.work_queue,
                _HurriedClock(),
                consumer=_CONSUMER,
                registry=app.registry,
                state=app.state,
                payloads=app.connections.payloads,
            ),
            chance=random.Random(0),  # noqa: S311 - the jitter of retries is the same in every run
            passes=(KeyboardInterrupt,),  # whoever stops the tests means the tests
            resources=self._resources,
        )

    def plan_crash(self, task: TaskName, moment: CrashMoment) -> None:
        """Let a later delivery of this task crash: the next one that is not yet to."""
        self._crashes[task].append(moment)

    def plan_loss(self, task: TaskName) -> None:
        """Let a later delivery of this task lose its lease as it begins: the next one that is not yet to."""
        self._losses[task] += 1

    def queues(self) -> list[WorkQueue]:
        """All queues in which anything was ever stored, by name."""
        key = queues_key(self._app.settings.namespace)
        names = self._store.send([("SMEMBERS", key)], key)[0]
        known = (
            [name.decode() for name in names if isinstance(name, bytes)] if isinstance(names, list) else []
        )
        return [self._app.work_queue(name) for name in sorted(known)]

    def tend(self, tally: Tally) -> int | None:
        """Make ready what is due by now; milliseconds until more will be, None when nothing waits for it."""
        soonest: list[int] = []
        self._broker.tend()
        for queue in self.queues():
            self._broker.drain(queue)
            next_due_ms = queue.promote()
            tally.add("expired", queue.expire())
            tally.add("dead", queue.reclaim()[1])
            for consumer in queue.silent_consumers(self._silent_ms):
                if consumer != _CONSUMER:  # it lives as long as the bench
                    queue.reap(consumer, silent_ms=self._silent_ms)
            queue.rotate_results()
            next_token_ms = queue.admit(LARGEST_BATCH)[1]
            # One that waits for a permit counts as due at the end of all days.
            soonest += [ms for ms in (next_due_ms, next_token_ms) if 0 <= ms <= LONGEST_HORIZON_MS]
        return min(soonest, default=None)

    def take(self) -> tuple[WorkQueue, Delivery] | None:
        """The next delivery: the queues by name, each in its own order."""
        for queue in self.queues():
            claimed = queue.claim(1, consumer=_CONSUMER)
            if claimed:
                return queue, claimed[0]
        return None

    def run(self, queue: WorkQueue, delivery: Delivery, tally: Tally) -> None:
        """Run a delivery and settle it; the first one starts the lifespans of the app."""
        if not self._is_started:
            self._is_started = True
            self._resources.start(self._app)
            self._app.hooks.run(self._app.hooks.worker_starting)
        moment, together = self._begin(queue, delivery), self._with_its_batch(queue, delivery)
        settlements: Sequence[Settlement] = ()
        if moment != "before":
            settlements = self._runner.run_together(together, queue.name)
        self._end(queue, together, () if moment else settlements, tally)

    async def arun(self, queue: WorkQueue, delivery: Delivery, tally: Tally) -> None:
        """The same on this event loop; tasks that are not coroutines block it, as they do in a test."""
        if not self._is_started:
            self._is_started = True
            await self._resources.astart(self._app)
            self._app.hooks.run(self._app.hooks.worker_starting)
        moment, together = self._begin(queue, delivery), self._with_its_batch(queue, delivery)
        settlements: Sequence[Settlement] = ()
        if moment != "before":
            settlements = await self._arun(together, queue.name)
        self._end(queue, together, () if moment else settlements, tally)

    def close(self) -> None:
        """End what the app opened, as a worker does that drains."""
        if self._resources.has_async and is_loop_running():
            raise MqworkerError(
                "the app holds something async open, which a bench cannot close while an event loop runs "
                "here; accepted is `async with Bench(app) as bench:`, or `await bench.aclose()`"
            )
        self._stop_hooks()
        self._resources.close()
        self._loop.close()

    async def aclose(self) -> None:
        """The same on the event loop of the test."""
        self._stop_hooks()
        await self._resources.aclose()

    def _stop_hooks(self) -> None:
        if self._is_started:
            self._app.hooks.run(self._app.hooks.worker_stopping)
        self._is_started = False

    def give_back(self, queue: WorkQueue, delivery: Delivery) -> None:
        """Put a delivery that will not be run back to the front of its line."""
        queue.settle(Release(delivery), consumer=_CONSUMER)

    def is_async(self, task: TaskName) -> bool:
        """Whether the task wants an event loop."""
        return self._runner.is_async(task)

    async def _arun(self, together: Sequence[Delivery], queue: QueueName) -> list[Settlement]:
        if self.is_async(together[0].task):
            return await self._runner.arun_together(together, queue)
        return self._runner.run_together(together, queue)

    def _with_its_batch(self, queue: WorkQueue, first: Delivery) -> list[Delivery]:
        """What runs in one call with a delivery: what stands behind it in its line, as far as it is alike."""
        definition = self._app.registry.get(first.task)
        batch = None if definition is None else definition.options.batch
        if batch is None or batch.size == 1:
            return [first]
        keys = queue.calls.keys
        commands = [
            ("HGET", keys.held(_CONSUMER), first.fence),
            ("ZCARD", keys.named("urgent")),
            ("LRANGE", keys.named("ready"), 0, batch.size - 2),
        ]
        record, urgent, line = cast("Any", self._store.send(commands, keys.meta))  # Any: as they answer
        if urgent or not record or (batch.by is not None and batch_key_of(record) is None):
            return [first]
        alike = takewhile(lambda each: _company(each) == _company(record), line)
        count = min(len(list(alike)), (most_together(record) or batch.size) - 1)
        others = queue.claim(count, consumer=_CONSUMER) if count else []
        return [first, *others]

    def _begin(self, queue: WorkQueue, delivery: Delivery) -> CrashMoment | None:
        if self._app.registry.delivery_of(delivery.task) == "at_most_once":
            queue.settle(Ack(delivery), consumer=_CONSUMER)
        if self._losses[delivery.task]:
            self._losses[delivery.task] -= 1
            self.give_back(queue, delivery)  # as a reaper would, to whom this node was silent
        planned = self._crashes[delivery.task]
        return planned.pop(0) if planned else None

    def _end(
        self, queue: WorkQueue, together: Sequence[Delivery], settlements: Sequence[Settlement], tally: Tally
    ) -> None:
        """Without settlements: the worker died."""
        registry, task = self._app.registry, together[0].task
        longest_ms = max((registry.result_ttl_ms(task.name) for task in registry), default=0)
        kept_ms = registry.result_ttl_ms(task) or longest_ms  # a workflow asks for it in any case
        endings = settlements or [_crash(each, len(together)) for each in together]
        lost = queue.store.run(queue.calls.settle(endings, _CONSUMER, kept_ms, longest_ms))
        for ending in endings:
            tally.add_run(ending, was_settled=ending not in lost)


def _company(record: bytes) -> tuple[bytes, bytes | None, int]:
    """What is the same for those that may run together."""
    return task_of(record), batch_key_of(record), most_together(record)


def _crash(delivery: Delivery, together: int) -> Settlement:
    """As the dispatcher settles what a worker took with it."""
    cause = "killed by the bench"
    return after_crash(delivery, cause) if together == 1 else Suspect(delivery, cause, half_of(together))


class _HurriedClock(SystemClock):
    """For the link, which asks and reports sparingly: every look is an hour later, so nothing is skipped."""

    def __init__(self) -> None:
        self._looks = 0

    def monotonic_ms(self) -> int:
        self._looks += 1
        return self._looks * 3_600_000
