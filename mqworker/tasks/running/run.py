"""Running: a delivery in, a settlement out. The bridge between the worker and the tasks of an app.

What can be worked out once per task is (`PreparedTask`); what is left per delivery is decoding, the
call itself and the settlement. Nothing is logged for a task that succeeds; what becomes of one that failed is
decided in failure.py.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress

from mqworker.errors import (
    PayloadUnavailable,
    RateLimited,
    TaskFailed,
)
from mqworker.log import get_logger
from mqworker.model.clock import Clock
from mqworker.model.delivery import Delivery
from mqworker.model.envelope import Envelope
from mqworker.model.instant import After
from mqworker.model.keyring import SEALED
from mqworker.model.message import LARGEST_BODY_BYTES
from mqworker.model.names import MessageId, TaskName
from mqworker.model.settlement import (
    UNKNOWN_TASK,
    Ack,
    Bury,
    Failure,
    Park,
    Release,
    RetryAt,
    Run,
    Settlement,
)
from mqworker.model.strike import ERROR as STRIKE_ERROR
from mqworker.model.strike import STRUCK, Strike
from mqworker.model.value_codec import Value
from mqworker.tasks.batch_context import MemberContext
from mqworker.tasks.context import Context, TaskLink, current, trace_facts
from mqworker.tasks.hooks import Hooks
from mqworker.tasks.payloads import Payloads, without_keys
from mqworker.tasks.registry import Registry
from mqworker.tasks.running.batch_run import (
    BatchRunner,
    End,
    Member,
    Returned,
    StartedBatch,
    is_about_another,
)
from mqworker.tasks.running.failure import (
    cancelled,
    facts_of_failure,
    is_being_cancelled,
    secrets_of,
    settle_failure,
)
from mqworker.tasks.running.prepared_task import CallRefused, PreparedTask
from mqworker.tasks.running.resources import WorkerResources
from mqworker.tasks.running.result import ResultRefused, encode_result
from mqworker.tasks.running.unopened import UNOPENED, Unopened, settle_unopened

MOST_WAITS = 8
UNKNOWN_TASK_MS = 30_000
"""A message whose task is unknown here is parked for so long; by then a worker that knows it may be there."""


class TaskRunner:
    """Runs deliveries of registered tasks, in this thread or on this event loop."""

    def __init__(
        self,
        registry: Registry,
        *,
        worker: str,
        node: str,
        clock: Clock,
        max_message_bytes: int = LARGEST_BODY_BYTES,
        hooks: Hooks | None = None,
        link: TaskLink | None = None,
        chance: random.Random | None = None,
        passes: tuple[type[BaseException], ...] = (),
        logs_successes: bool = False,
        payloads: Payloads | None = None,
        other_models: Collection[str] = (),
        resources: WorkerResources | None = None,
    ) -> None:
        """`link` keeps progress and knows of cancellations; exceptions of the types `passes` go through.

        `other_models` are queues other than work queues, which give messages ids of their own.
        """
        self._payloads = payloads
        self._other_models = other_models
        self.resources = resources or WorkerResources()
        self._logs_successes = logs_successes
        self._registry = registry
        self._worker = worker
        self._node = node
        self._now_ms = clock.now_ms
        self.monotonic_s = clock.monotonic_s
        self._monotonic_ms = clock.monotonic_ms
        self._max_bytes = max_message_bytes
        self._hooks = hooks or Hooks()
        self.link = link
        self._chance = chance or random.SystemRandom()
        self.passes = passes
        self._prepared: dict[TaskName, PreparedTask] = {}
        self._batches = BatchRunner(self)
        self._running: set[Context] = set()
        """A message that was lost and came back may run here twice at a time."""
        self.interruptible: Context | None = None
        """Whose task is under way in the main thread, so that a signal may raise in it."""
        self._log = get_logger(part="tasks", worker=worker).without_repetition()
        self._strikes: tuple[Strike, ...] = ()
        """Calls that are not to be run."""
        self.unpermitted = 0
        """How many deliveries came to their start after their permit had ended."""

    def run(self, delivery: Delivery, queue: str) -> Settlement:
        """Run a delivery to its end in this thread."""
        task = self._prepared.get(delivery.task) or self._prepare(delivery.task)
        if task is None:
            return self._unknown(delivery)
        if not task.is_usual:
            return self._run_unusual(task, delivery, queue)
        try:
            if self._payloads is not None:
                self._payloads.open_delivery(queue, delivery, has_own_id=queue not in self._other_models)
            envelope = task.open(delivery.body)
        except CallRefused as error:
            return self._refused(delivery, task, error)
        except UNOPENED as error:
            return self._unopened(delivery, queue, error)
        may_be_kept = delivery.start_by_ms or self._strikes
        if may_be_kept and (kept := self._kept_from_starting(task, delivery, envelope)) is not None:
            return kept
        if not (task.has_lease or self.link is None or self.link.start(queue, delivery)):
            return Release(delivery)
        context = self._enter(task, delivery, queue, envelope)
        run, began_s = Run(self._worker, self._node, self._now_ms()), self.monotonic_s()
        token = current.set(context)
        try:
            # Two blocks: what a signal raises while the inner one ends is still caught by the outer one.
            try:
                self.interruptible = context
                if context.is_stop_requested:
                    context.stop_if_requested()
                value = task.call(envelope, context)
            finally:
                self.interruptible = None
            run.run_ms = (self.monotonic_s() - began_s) * 1000
        except self.passes:
            raise
        except BaseException as error:  # noqa: BLE001 - SystemExit and the like end the task, not the worker
            run.run_ms = (self.monotonic_s() - began_s) * 1000
            return self._failed(task, delivery, context, error, run)
        finally:
            current.reset(token)
            self._running.discard(context)
        return self._succeeded(task, delivery, context, envelope, value=value, run=run)

    # Written out beside `run` on purpose: a generator that both follow costs a third more CPU per task, two
    # halves called by both a tenth.
    async def arun(self, delivery: Delivery, queue: str) -> Settlement:
        """Run a delivery of an async task to its end on this event loop."""
        task = self._prepared.get(delivery.task) or self._prepare(delivery.task)
        if task is None:
            return self._unknown(delivery)
        if task.takes_batches:
            return (await self.arun_together([delivery], queue))[0]
        try:
            if self._payloads is not None:
                await self._aopen(delivery, queue)
            envelope = task.open(delivery.body)
        except CallRefused as error:
            return self._refused(delivery, task, error)
        except UNOPENED as error:
            return self._unopened(delivery, queue, error)
        may_be_kept = delivery.start_by_ms or self._strikes
        if may_be_kept and (kept := self._kept_from_starting(task, delivery, envelope)) is not None:
            return kept
        if not (task.has_lease or self.link is None or await self.link.astart(queue, delivery)):
            return Release(delivery)
        context = self._enter(task, delivery, queue, envelope)
        run, began_s = Run(self._worker, self._node, self._now_ms()), self.monotonic_s()
        token = current.set(context)
        try:
            value = await task.acall(envelope, context)
            run.run_ms = (self.monotonic_s() - began_s) * 1000
        except self.passes:
            raise
        except BaseException as error:
            if is_being_cancelled(error):
                if not context.is_stop_requested:
                    raise  # the worker stops this run; the delivery is its to release
                error = cancelled(context)
            run.run_ms = (self.monotonic_s() - began_s) * 1000
            return self._failed(task, delivery, context, error, run)
        finally:
            current.reset(token)
            self._running.discard(context)
        return self._succeeded(task, delivery, context, envelope, value=value, run=run)

    def run_together(self, deliveries: Sequence[Delivery], queue: str) -> list[Settlement]:
        """Run deliveries of one task in one call, if it takes batches; a settlement for each of them."""
        task = self._prepared.get(deliveries[0].task) or self._prepare(deliveries[0].task)
        if task is None or not task.takes_batches:
            return [self.run(each, queue) for each in deliveries]
        if task.is_async:
            return self.resources.loop.wait_for(self.arun_together(deliveries, queue))
        return self._batches.run(task, deliveries, queue)

    async def arun_together(self, deliveries: Sequence[Delivery], queue: str) -> list[Settlement]:
        """The same on this event loop."""
        task = self._prepared.get(deliveries[0].task) or self._prepare(deliveries[0].task)
        if task is None or not task.takes_batches:
            return [await self.arun(each, queue) for each in deliveries]
        return await self._batches.arun(task, deliveries, queue)

    def open_member(self, task: PreparedTask, delivery: Delivery, queue: str) -> Member | Settlement:
        """One of a batch, ready to run; or what becomes of it, because it cannot be."""
        try:
            if self._payloads is not None:
                self._payloads.open_delivery(queue, delivery, has_own_id=queue not in self._other_models)
            envelope = task.open(delivery.body)
        except CallRefused as error:
            return self._refused(delivery, task, error)
        except UNOPENED as error:
            return self._unopened(delivery, queue, error)
        may_be_kept = delivery.start_by_ms or self._strikes
        if may_be_kept and (kept := self._kept_from_starting(task, delivery, envelope)) is not None:
            return kept
        run = Run(self._worker, self._node, self._now_ms())
        return Member(delivery, envelope, self._enter(task, delivery, queue, envelope), run)

    @property
    def may_fetch(self) -> bool:
        """Whether opening a delivery may have to wait for arguments that are kept elsewhere."""
        return self._payloads is not None and self._payloads.place is not None

    def leave(self, batch: StartedBatch) -> None:
        """None of its members runs any more."""
        self._running.difference_update(batch.context.members)

    def end_members(
        self, task: PreparedTask, batch: StartedBatch, ends: Sequence[End], began_s: float
    ) -> Iterator[Settlement]:
        """What becomes of each; it took its part of the time."""
        run_ms = (self.monotonic_s() - began_s) * 1000 / batch.size
        for (delivery, envelope, context, run), end in zip(batch.members, ends, strict=True):
            run.run_ms = run_ms
            match end:
                case Returned(value):
                    yield self._succeeded(task, delivery, context, envelope, value=value, run=run)
                case ResultRefused():
                    yield self._without_result(delivery, context, end, run)
                case _ if is_about_another(end, context, batch.context):
                    yield Release(delivery)
                case _:
                    yield self._failed(task, delivery, context, end, run)

    def takes_batches(self, task: TaskName) -> bool:
        """Whether its function takes many calls at once."""
        prepared = self._prepared.get(task) or self._prepare(task)
        return prepared is not None and prepared.takes_batches

    def is_async(self, task: TaskName) -> bool:
        """Whether deliveries of this task want an event loop."""
        prepared = self._prepared.get(task) or self._prepare(task)
        return prepared is not None and prepared.is_async

    def hard_timeout_ms(self, task: TaskName) -> int | None:
        """After how long a worker that still runs it must be killed."""
        prepared = self._prepared.get(task) or self._prepare(task)
        return None if prepared is None else prepared.hard_timeout_ms

    def strike(self, strikes: Iterable[Strike]) -> None:
        """Calls that are not to be run from now on; those of before are forgotten."""
        self._strikes = tuple(strikes)

    def cancel(self, message: MessageId) -> bool:
        """Let the task that runs this message see that it is to stop; False when it does not run here."""
        contexts = [each for each in list(self._running) if each.id == message]
        for context in contexts:
            context.request_cancel()
        return bool(contexts)

    def note_lost(self, queue: str, fence: int) -> None:
        """Let the task that runs this delivery see that somebody else has it."""
        for context in list(self._running):
            if context.fence == fence and context.queue == queue:
                context.note_lost()

    def waits(self, now_ms: int) -> Sequence[tuple[str, str, str, str, int]]:
        """The longest waits of running tasks for the results of others, for the status screen.

        Task and id, queue and id of what it waits for, and for how many ms by the monotonic clock.
        """
        found = [
            (context.task, context.id, queue, message, now_ms - since_ms)
            for context in list(self._running)
            for (queue, message), since_ms in context.waits.items()
        ]
        return sorted(found, key=lambda wait: -wait[-1])[:MOST_WAITS]

    def tell_buried(self, delivery: Delivery, queue: str, error: TaskFailed) -> None:
        """Call the hooks for a message that was given up after its worker died."""
        self._open_for_hooks(delivery, queue)
        self._hooks.run(self._hooks.failing, Context(delivery, queue, link=self.link), error)

    def tell_crashed(self, delivery: Delivery, queue: str, error: TaskFailed) -> None:
        """Call the hooks for a message that is run again after its worker died."""
        self._open_for_hooks(delivery, queue)
        self._hooks.run(self._hooks.crashing, Context(delivery, queue, link=self.link), error)

    def interrupt_if_cancelled(self) -> None:
        """Raise `TaskCancelled`, once, if the task that runs in this thread was asked to stop.

        For a signal handler in the main thread; what it raises comes out of the task.
        """
        context = self.interruptible
        if context is not None and context.is_stop_requested and not getattr(context, "is_closing", False):
            self.interruptible = None
            context.stop_if_requested()

    def _run_unusual(self, task: PreparedTask, delivery: Delivery, queue: str) -> Settlement:
        if task.takes_batches:
            return self.run_together([delivery], queue)[0]
        return self.resources.loop.wait_for(self.arun(delivery, queue))

    async def _aopen(self, delivery: Delivery, queue: str) -> None:
        """Open a body beside the event loop, if it may have to be fetched."""
        assert self._payloads is not None  # noqa: S101 - the caller has looked
        has_own_id = queue not in self._other_models
        if self._payloads.place is None:
            self._payloads.open_delivery(queue, delivery, has_own_id=has_own_id)
        else:
            await asyncio.to_thread(self._payloads.open_delivery, queue, delivery, has_own_id=has_own_id)

    def _open_for_hooks(self, delivery: Delivery, queue: str) -> None:
        if self._payloads is not None:
            with suppress(*UNOPENED):  # a hook that asks for the arguments is told so
                self._payloads.open_delivery(queue, delivery, has_own_id=queue not in self._other_models)

    def _prepare(self, name: TaskName) -> PreparedTask | None:
        definition = self._registry.get(name)
        if definition is None:
            return None
        task = PreparedTask(definition, self._registry.result_ttl_ms(name))
        if definition.binding.injected or self.resources.injection.middleware:
            # Decided once per task: those that use nothing of it do not even ask.
            from mqworker.tasks.running.injected_task import InjectedTask  # noqa: PLC0415 - most apps need none

            task = InjectedTask(definition, self._registry.result_ttl_ms(name), self.resources)
        self._prepared[name] = task
        return task

    def _enter(self, task: PreparedTask, delivery: Delivery, queue: str, envelope: Envelope) -> Context:
        if envelope.tags:
            delivery.tags = envelope.tags  # for the events about it
        kind = MemberContext if task.takes_batches else Context
        context = kind(delivery, queue, envelope.headers, self.link, task.has_lease)
        self._running.add(context)
        if self._hooks.starting:
            self._hooks.run(self._hooks.starting, context)
        return context

    def _succeeded(
        self,
        task: PreparedTask,
        delivery: Delivery,
        context: Context,
        envelope: Envelope,
        *,
        value: Value,
        run: Run,
    ) -> Settlement:
        result = b""
        if task.keeps_result or envelope.workflow is not None:  # which waits for it, whatever the task says
            try:
                result = self._encoded(value, context.queue, delivery.id)
            except ResultRefused as refused:
                return self._without_result(delivery, context, refused, run)
        if context.is_stop_requested:
            self._log.warning(
                "cancel_missed", task=delivery.task, task_id=delivery.id, run_ms=round(run.run_ms)
            )
        if self._hooks.succeeding:
            self._hooks.run(self._hooks.succeeding, context, value)
        if self._logs_successes:
            facts = {"task": delivery.task, "task_id": delivery.id, "attempt": delivery.attempt}
            self._log.info("delivery_succeeded", **facts, run_ms=round(run.run_ms, 3))
        return Ack(delivery, result, run)

    def _encoded(self, value: Value, queue: str, message: MessageId) -> bytes:
        # In queues of other models a result is not stored by us: who reads it knows neither keys nor places.
        if self._payloads is None or queue in self._other_models:
            return encode_result(value, self._max_bytes)
        result = encode_result(value, self._payloads.most_bytes(self._max_bytes))
        try:
            return self._payloads.close_result(queue, message, result)
        except PayloadUnavailable as error:
            raise ResultRefused("result_not_stored", str(error)) from error

    def _without_result(
        self, delivery: Delivery, context: Context, refused: ResultRefused, run: Run
    ) -> Settlement:
        """Not tried again: the task did its work, and would return the same once more."""
        self._hooks.run(self._hooks.failing, context, refused)
        facts = {"task": delivery.task, "task_id": delivery.id, "attempt": delivery.attempt}
        self._log.error("delivery_buried", **facts, reason=refused.reason, error_msg=str(refused))
        return Bury(delivery, refused.reason, Failure("InvalidResult", str(refused)), run=run)

    def _failed(
        self, task: PreparedTask, delivery: Delivery, context: Context, error: BaseException, run: Run
    ) -> Settlement:
        policy = task.definition.options.retry
        secrets = secrets_of(task, delivery)
        settlement = settle_failure(
            policy, delivery, context, error, run=run, chance=self._chance, secrets=secrets
        )
        facts = {"task": delivery.task, "task_id": delivery.id, "attempt": delivery.attempt, **trace_facts()}
        match settlement:
            case RetryAt(due=After(ms), failure=Failure() as failure):
                told = facts_of_failure(failure, error, secrets)
                self._log.warning("delivery_retried", **facts, **told, in_ms=ms)
                self._hooks.run(self._hooks.retrying, context, error, ms)
            case Bury(reason=reason, failure=Failure() as failure):
                told = facts_of_failure(failure, error, secrets)
                self._log.error("delivery_buried", **facts, **told, reason=reason)
                self._hooks.run(self._hooks.failing, context, error)
            case _ if isinstance(error, RateLimited):
                self._log.warning("delivery_rate_limited", **facts, retry_after_s=error.retry_after)
            case _:
                self._log.info("delivery_cancelled", **facts)
        return settlement

    def _unknown(self, delivery: Delivery) -> Settlement:
        self._log.warning("task_unknown", task=delivery.task, task_id=delivery.id)
        hint = "; tasks of a script need name=..." if delivery.task.startswith("__main__.") else ""
        failure = Failure("UnknownTask", f"no task is named {delivery.task!r} on worker {self._worker}{hint}")
        return Park(delivery, After(UNKNOWN_TASK_MS), failure, UNKNOWN_TASK)

    def _kept_from_starting(
        self, task: PreparedTask, delivery: Delivery, envelope: Envelope
    ) -> Settlement | None:
        if delivery.start_by_ms and self._monotonic_ms() >= delivery.start_by_ms:
            return self._unpermitted(delivery)
        strike = self._strike(task, delivery, envelope) if self._strikes else None
        return None if strike is None else self._struck(delivery, strike)

    def _unpermitted(self, delivery: Delivery) -> Settlement:
        """Its permit was for a start at another time: so it waits for the next one."""
        self.unpermitted += 1
        return Release(delivery)

    def _strike(self, task: PreparedTask, delivery: Delivery, envelope: Envelope) -> Strike | None:
        meant = [strike for strike in self._strikes if strike.means(delivery.task)]
        if not meant:
            return None
        args, named = envelope.args, task.definition.binding.by_name(envelope.args, envelope.kwargs)
        return next((strike for strike in meant if strike.hits(args, named, envelope.tags)), None)

    def _struck(self, delivery: Delivery, strike: Strike) -> Settlement:
        """Kept as a dead letter: whoever struck it may want it back."""
        facts = {"task": delivery.task, "task_id": delivery.id, "attempt": delivery.attempt}
        self._log.warning("delivery_struck", **facts, strike=strike.id)
        note = f": {strike.note}" if strike.note else ""
        failure = Failure(STRIKE_ERROR, f"strike {strike.id} of {strike.by or '?'}, {strike.told}{note}")
        return Bury(delivery, STRUCK, failure, evidence={"strike": strike.id})

    def _refused(self, delivery: Delivery, task: PreparedTask, error: CallRefused) -> Settlement:
        """Kept, not buried: in a rolling deployment another node has the version that it was made for."""
        facts = {"task": delivery.task, "task_id": delivery.id, "attempt": delivery.attempt}
        self._log.warning("call_refused", **facts, problem=str(error))
        failure = Failure("CallRefused", str(error))
        return Park(delivery, After(UNKNOWN_TASK_MS), failure, task.definition.binding.version)

    def _unopened(self, delivery: Delivery, queue: str, error: Unopened) -> Settlement:
        if self._payloads is None and delivery.body[:1] == SEALED:
            error = without_keys("the call")
        facts = {"task": delivery.task, "task_id": delivery.id, "attempt": delivery.attempt}
        settlement = settle_unopened(delivery, error)
        if isinstance(settlement, Bury):
            self._log.error("delivery_buried", **facts, reason=settlement.reason, error_msg=str(error))
            self._hooks.run(self._hooks.failing, Context(delivery, queue, link=self.link), error)
        else:
            self._log.warning("call_not_opened", **facts, problem=str(error))
        return settlement
