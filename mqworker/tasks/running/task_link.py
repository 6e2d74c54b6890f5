"""How running tasks reach the server: they report progress, ask whether to stop, and say that they start.

A report may be lost, work may not: nothing is sent twice, and most reports are not sent at all. In a thread a
report costs one round trip now and then. On an event loop nothing is waited for: what is to be sent goes out
beside the task, one report of a delivery at a time, and of those that came meanwhile only the newest.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from mqworker.errors import StoreFull, StoreRefused, StoreUnavailable
from mqworker.log import get_logger
from mqworker.model.clock import Clock
from mqworker.model.delivery import Delivery
from mqworker.model.names import ConsumerName, QueueName, queue_name
from mqworker.model.settlement import Ack, Settlement
from mqworker.queues.work.async_queue import AsyncWorkQueue
from mqworker.queues.work.calls import WorkQueueCalls
from mqworker.queues.work.keys import WorkQueueKeys
from mqworker.queues.work.queue import WorkQueue
from mqworker.store.command import Command, Reply
from mqworker.store.script import Call
from mqworker.tasks.context import State
from mqworker.tasks.payloads import Payloads
from mqworker.tasks.registry import Registry
from mqworker.tasks.running.limit_reports import LimitReports
from mqworker.tasks.running.progress import progress_call
from mqworker.tasks.workflows.spawning import Spawner, not_spawning

if TYPE_CHECKING:
    from mqworker.tasks.job import Job
    from mqworker.tasks.signature import Signature

REPORT_EVERY_MS = 200
ASK_EVERY_MS = 500
MOST_REMEMBERED = 10_000
LONGEST_START_MS = 30_000
"""How long a worker waits for permission to begin a task that runs at most once."""
RETRY_START_S = 0.2

_STOP_REQUESTED = b"X"

AsyncQueueOf = Callable[[QueueName], AsyncWorkQueue]
Held = tuple[str, int]
"""Queue and fence: fences are unique within a queue only."""


class StoreTaskLink:
    """Stores progress on the server and asks it about cancellations and leases."""

    def __init__(
        self,
        queue_of: Callable[[str], WorkQueue],
        clock: Clock,
        async_queue_of: AsyncQueueOf | None = None,
        *,
        consumer: ConsumerName | None = None,
        registry: Registry | None = None,
        other_models: Collection[str] = (),
        payloads: Payloads | None = None,
        state: State | None = None,
        acks_starts: bool = False,
    ) -> None:
        """`async_queue_of` is for tasks on an event loop; without it they wait in place, like any others.

        `consumer` holds what runs here, as a rule. Of queues of `other_models` it is not known here who does.
        `acks_starts`: what runs at most once is acknowledged here; if not, somebody else has done that.
        """
        self._payloads = payloads
        self.state = state or State()
        """What the app keeps open here, for whoever has the context of a run."""
        self._acks_starts = acks_starts
        self._consumer = consumer
        self.limits = None if registry is None else LimitReports(queue_of, registry, consumer)
        """What tasks say about their limits; None where nobody asked for it."""
        self._spawner: Spawner | None = None
        self._other_models = other_models
        self._queue_of = queue_of
        self._async_queue_of = async_queue_of
        self._clock = clock
        self._reported_ms: dict[Held, int] = {}
        self._asked_ms: dict[Held, int] = {}
        self._stopped: set[Held] = set()
        self._lost: set[Held] = set()
        self._in_question: set[Held] = set()
        self._unsent: dict[Held, Call[int]] = {}
        self._beside: set[asyncio.Task[None]] = set()
        self._log = get_logger(part="progress")

    # Any: each child returns what its own task does.
    def spawn(
        self,
        queue: str,
        delivery: Delivery,
        key: str,
        calls: Sequence[Signature[Any]],
        then: Signature[Any] | None,
    ) -> list[Job[Any]]:
        """Add calls to the workflow of the delivery, or begin its tree; waits for the server."""
        if queue in self._other_models:
            raise not_spawning(f"queue {queue} is of another model")
        if self._spawner is None:
            namespace = self._keys(queue).prefix.partition(":{")[0]
            self._spawner = Spawner(self._queue_of, namespace, self._consumer)
        return self._spawner.spawn(queue, delivery, key, calls, then)

    def start(self, queue: str, delivery: Delivery) -> bool:
        """Acknowledge what runs at most once: not before its start, for then it could be lost unbegun.

        The same call is sent until it is answered, so that an answer that was lost costs no message. Without
        one for long enough it does not begin: then it is released, or was acknowledged and is lost.
        """
        if not self._acks_starts or queue in self._other_models:
            return True
        work = self._queue_of(queue)
        exchange = work.store.begin([self._ack(work.calls, delivery)])
        ends_at_ms = self._clock.monotonic_ms() + LONGEST_START_MS
        while True:
            try:
                return self._is_started(delivery, work.store.attempt(exchange))
            except (StoreRefused, StoreFull) as error:
                self._log.warning("start_refused", task_id=delivery.id, problem=str(error))
                return False
            except StoreUnavailable:
                if self._clock.monotonic_ms() >= ends_at_ms:
                    return False
                time.sleep(RETRY_START_S)

    async def astart(self, queue: str, delivery: Delivery) -> bool:
        """The same; other tasks of this event loop go on meanwhile."""
        async_queue = self._on_a_loop(queue)
        if async_queue is None or not self._acks_starts or queue in self._other_models:
            return self.start(queue, delivery)
        exchange = async_queue.store.begin([self._ack(async_queue.calls, delivery)])
        ends_at_ms = self._clock.monotonic_ms() + LONGEST_START_MS
        while True:
            try:
                return self._is_started(delivery, await async_queue.store.attempt(exchange))
            except (StoreRefused, StoreFull) as error:
                self._log.warning("start_refused", task_id=delivery.id, problem=str(error))
                return False
            except StoreUnavailable:
                if self._clock.monotonic_ms() >= ends_at_ms:
                    return False
                await asyncio.sleep(RETRY_START_S)

    def _is_started(self, delivery: Delivery, answer: Sequence[Sequence[Settlement]]) -> bool:
        """Whether nothing of it was refused: somebody else may have it by now."""
        (lost,) = answer
        if lost:
            self._log.warning("delivery_lost", task=delivery.task, task_id=delivery.id, settlement="start")
        return not lost

    def _ack(self, calls: WorkQueueCalls, delivery: Delivery) -> Call[list[Settlement]]:
        return calls.settle([Ack(delivery)], self._consumer)

    def report_progress(self, queue: str, delivery: Delivery, done: float, total: float | None) -> None:
        """Send it when the last report is a while ago, or when it is the end."""
        held = (queue, delivery.fence)
        if not self._is_report_due(held, done, total):
            return
        call = progress_call(self._keys(queue), delivery, done, total, self._payloads)
        if (async_queue := self._on_a_loop(queue)) is None:
            self._report(queue, delivery, call)
            return
        is_under_way = held in self._unsent
        self._unsent[held] = call
        if not is_under_way:
            self._start(self._report_newest(async_queue, delivery))

    async def areport_progress(
        self, queue: str, delivery: Delivery, done: float, total: float | None
    ) -> None:
        """The same, over when it was sent."""
        if not self._is_report_due((queue, delivery.fence), done, total):
            return
        call = progress_call(self._keys(queue), delivery, done, total, self._payloads)
        if (async_queue := self._on_a_loop(queue)) is None:
            self._report(queue, delivery, call)
        else:
            await self._areport(async_queue, delivery, call)

    def is_cancelled(self, queue: str, delivery: Delivery) -> bool:
        """Ask the server, unless it was asked a moment ago; on an event loop the next look knows more."""
        held = (queue, delivery.fence)
        if held not in self._stopped and self._is_time(self._asked_ms, held, ASK_EVERY_MS):
            if (async_queue := self._on_a_loop(queue)) is None:
                self._ask(queue, delivery)
            else:
                self._start(self._aask(async_queue, delivery))
        return held in self._stopped

    async def ais_cancelled(self, queue: str, delivery: Delivery) -> bool:
        """The same, with the answer."""
        held = (queue, delivery.fence)
        if held not in self._stopped and self._is_time(self._asked_ms, held, ASK_EVERY_MS):
            if (async_queue := self._on_a_loop(queue)) is None:
                self._ask(queue, delivery)
            else:
                await self._aask(async_queue, delivery)
        return held in self._stopped

    def is_mine(self, queue: str, delivery: Delivery) -> bool:
        """Ask the server; on an event loop the next look knows the answer."""
        held = (queue, delivery.fence)
        if held not in self._lost and queue not in self._other_models:
            if (async_queue := self._on_a_loop(queue)) is None:
                self._look_for_lease(self._queue_of(queue), delivery)
            elif held not in self._in_question:
                self._in_question.add(held)
                self._start(self._alook_for_lease(async_queue, delivery))
        return held not in self._lost

    async def ais_mine(self, queue: str, delivery: Delivery) -> bool:
        """The same, with the answer."""
        held = (queue, delivery.fence)
        if held not in self._lost and queue not in self._other_models:
            if (async_queue := self._on_a_loop(queue)) is None:
                self._look_for_lease(self._queue_of(queue), delivery)
            else:
                await self._alook_for_lease(async_queue, delivery)
        return held not in self._lost

    def _look_for_lease(self, queue: WorkQueue, delivery: Delivery) -> None:
        keys, execute = queue.calls.keys, queue.store.connection.execute
        with suppress(StoreUnavailable):
            if any(execute(_looks(keys, delivery, [self._consumer]), keys.meta)):
                return
            # Whoever took over for that consumer holds it by the same fence.
            if not any(execute(_looks(keys, delivery, [None, *queue.consumers()]), keys.meta)):
                self._note_lost((queue.name, delivery.fence))

    async def _alook_for_lease(self, queue: AsyncWorkQueue, delivery: Delivery) -> None:
        keys, execute = queue.calls.keys, queue.store.connection.execute
        try:
            with suppress(StoreUnavailable):
                if any(await execute(_looks(keys, delivery, [self._consumer]), keys.meta)):
                    return
                everybody = [None, *await queue.consumers()]
                if not any(await execute(_looks(keys, delivery, everybody), keys.meta)):
                    self._note_lost((queue.name, delivery.fence))
        finally:
            self._in_question.discard((queue.name, delivery.fence))

    def _note_lost(self, held: Held) -> None:
        _make_room(self._lost)
        self._lost.add(held)

    def _on_a_loop(self, queue: str) -> AsyncWorkQueue | None:
        if self._async_queue_of is None:
            return None
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return None
        return self._async_queue_of(queue_name(queue))

    def _start(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._beside.add(task)  # the loop itself holds on to no task
        task.add_done_callback(self._beside.discard)

    def _report(self, queue: str, delivery: Delivery, call: Call[int]) -> None:
        store = self._queue_of(queue).store
        try:
            # Once, not again and again: a task must not stand still because a report cannot be sent.
            store.attempt(store.begin([call]))
        except (StoreUnavailable, StoreFull) as error:
            self._log.warning("progress_lost", task_id=delivery.id, problem=str(error))

    async def _areport(self, queue: AsyncWorkQueue, delivery: Delivery, call: Call[int]) -> None:
        try:
            await queue.store.attempt(queue.store.begin([call]))
        except (StoreUnavailable, StoreFull) as error:
            self._log.warning("progress_lost", task_id=delivery.id, problem=str(error))

    async def _report_newest(self, queue: AsyncWorkQueue, delivery: Delivery) -> None:
        """Until nothing newer came while the last report was on its way: an older one never comes later."""
        held, sent = (queue.name, delivery.fence), None
        try:
            while (newest := self._unsent[held]) is not sent:
                await self._areport(queue, delivery, newest)
                sent = newest
        finally:
            del self._unsent[held]

    def _ask(self, queue: str, delivery: Delivery) -> None:
        keys = self._keys(queue)
        with suppress(StoreUnavailable):
            asked = self._queue_of(queue).store.connection.execute(_question(keys, delivery), keys.meta)
            self._note_answer((queue, delivery.fence), asked)

    async def _aask(self, queue: AsyncWorkQueue, delivery: Delivery) -> None:
        keys = queue.calls.keys
        with suppress(StoreUnavailable):
            asked = await queue.store.connection.execute(_question(keys, delivery), keys.meta)
            self._note_answer((queue.name, delivery.fence), asked)

    def _note_answer(self, held: Held, replies: list[Reply]) -> None:
        if _STOP_REQUESTED in replies:
            _make_room(self._stopped)
            self._stopped.add(held)

    def _keys(self, queue: str) -> WorkQueueKeys:
        return self._queue_of(queue).calls.keys

    def _is_report_due(self, held: Held, done: float, total: float | None) -> bool:
        is_time = self._is_time(self._reported_ms, held, REPORT_EVERY_MS)
        return is_time or (total is not None and done >= total)

    def _is_time(self, last_ms: dict[Held, int], held: Held, every_ms: int) -> bool:
        now_ms = self._clock.monotonic_ms()
        if held in last_ms and now_ms - last_ms[held] < every_ms:
            return False
        _make_room(last_ms)
        last_ms[held] = now_ms
        return True


def _make_room(remembered: dict[Held, int] | set[Held]) -> None:
    if len(remembered) >= MOST_REMEMBERED:
        remembered.clear()  # forgetting costs one report or question too many


def _question(keys: WorkQueueKeys, delivery: Delivery) -> list[Command]:
    return [("HGET", keys.named(each), delivery.id) for each in ("results", "results:old")]


def _looks(
    keys: WorkQueueKeys, delivery: Delivery, consumers: Iterable[ConsumerName | None]
) -> list[Command]:
    return [("HEXISTS", keys.held(each), delivery.fence) for each in consumers]
