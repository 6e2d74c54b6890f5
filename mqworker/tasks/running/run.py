"""Running: a delivery in, a settlement out. The bridge between the worker and the tasks of an app.

Everything that can be worked out once per task is (prepared.py); what is left per delivery is decoding, the
call itself and the settlement. Nothing is logged for a task that succeeds.
"""

from __future__ import annotations

import asyncio
import random
import traceback
from typing import assert_never

from mqworker.errors import InvalidMessage, LeaseLost, TaskCancelled, TaskFailed
from mqworker.log import get_logger
from mqworker.model.clock import Clock
from mqworker.model.delivery import Delivery
from mqworker.model.envelope import Envelope
from mqworker.model.instant import After
from mqworker.model.message import LARGEST_BODY_BYTES
from mqworker.model.names import MessageId, TaskName
from mqworker.model.retry_policy import GiveUp, Retry, RetryIn, decide
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
from mqworker.model.value_codec import Value
from mqworker.tasks.context import Context, TaskLink, current, trace_facts
from mqworker.tasks.hooks import Hooks
from mqworker.tasks.registry import Registry
from mqworker.tasks.running.prepared import CallRefused, PreparedTask, ResultRefused, encode_result

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
    ) -> None:
        """`link` keeps progress and knows of cancellations; exceptions of the types `passes` go through."""
        self._registry = registry
        self._worker = worker
        self._node = node
        self._now_ms = clock.now_ms
        self._monotonic_s = clock.monotonic_s
        self._monotonic_ms = clock.monotonic_ms
        self._max_bytes = max_message_bytes
        self._hooks = hooks or Hooks()
        self._link = link
        self._chance = chance or random.SystemRandom()
        self._passes = passes
        self._prepared: dict[TaskName, PreparedTask] = {}
        self._running: dict[tuple[str, int], Context] = {}
        """By queue and fence: a message that was lost and came back may run here twice at a time."""
        self._interruptible: Context | None = None
        """Whose task is under way in the main thread, so that a signal may raise in it."""
        self._log = get_logger(part="tasks", worker=worker)
        self.unpermitted = 0
        """How many deliveries came to their start after their permit had ended."""

    def run(self, delivery: Delivery, queue: str) -> Settlement:
        """Run a delivery to its end in this thread."""
        task = self._prepared.get(delivery.task) or self._prepare(delivery.task)
        if task is None:
            return self._unknown(delivery)
        if task.is_async:
            return asyncio.run(self.arun(delivery, queue))
        try:
            envelope = task.open(delivery.body)
        except CallRefused as error:
            return self._refused(delivery, task, error)
        except InvalidMessage as error:
            return self._undecodable(delivery, queue, error)
        if delivery.start_by_ms and self._monotonic_ms() >= delivery.start_by_ms:
            return self._unpermitted(delivery)
        context = self._enter(task, delivery, queue, envelope)
        run, began_s = Run(self._worker, self._node, self._now_ms()), self._monotonic_s()
        token = current.set(context)
        try:
            # Two blocks: what a signal raises while the inner one ends is still caught by the outer one.
            try:
                self._interruptible = context
                context.stop_if_requested()
                value = task.call(envelope, context)
            finally:
                self._interruptible = None
            run.run_ms = (self._monotonic_s() - began_s) * 1000
        except self._passes:
            raise
        except BaseException as error:  # noqa: BLE001 - SystemExit and the like end the task, not the worker
            run.run_ms = (self._monotonic_s() - began_s) * 1000
            return self._failed(task, delivery, context, error, run)
        finally:
            current.reset(token)
            self._running.pop((queue, delivery.fence), None)
        return self._succeeded(task, delivery, context, envelope, value=value, run=run)

    # Written out beside `run` on purpose: a generator that both follow costs a third more CPU per task, two
    # halves called by both a tenth.
    async def arun(self, delivery: Delivery, queue: str) -> Settlement:
        """Run a delivery of an async task to its end on this event loop."""
        task = self._prepared.get(delivery.task) or self._prepare(delivery.task)
        if task is None:
            return self._unknown(delivery)
        try:
            envelope = task.open(delivery.body)
        except CallRefused as error:
            return self._refused(delivery, task, error)
        except InvalidMessage as error:
            return self._undecodable(delivery, queue, error)
        if delivery.start_by_ms and self._monotonic_ms() >= delivery.start_by_ms:
            return self._unpermitted(delivery)
        context = self._enter(task, delivery, queue, envelope)
        run, began_s = Run(self._worker, self._node, self._now_ms()), self._monotonic_s()
        token = current.set(context)
        try:
            value = await task.acall(envelope, context)
            run.run_ms = (self._monotonic_s() - began_s) * 1000
        except self._passes:
            raise
        except BaseException as error:
            if _is_being_cancelled(error):
                if not context.is_stop_requested:
                    raise  # the worker stops this run; the delivery is its to release
                error = _cancelled(context)
            run.run_ms = (self._monotonic_s() - began_s) * 1000
            return self._failed(task, delivery, context, error, run)
        finally:
            current.reset(token)
            self._running.pop((queue, delivery.fence), None)
        return self._succeeded(task, delivery, context, envelope, value=value, run=run)

    def is_async(self, task: TaskName) -> bool:
        """Whether deliveries of this task want an event loop."""
        prepared = self._prepared.get(task) or self._prepare(task)
        return prepared is not None and prepared.is_async

    def hard_timeout_ms(self, task: TaskName) -> int | None:
        """After how long a worker that still runs it must be killed."""
        prepared = self._prepared.get(task) or self._prepare(task)
        return None if prepared is None else prepared.hard_timeout_ms

    def cancel(self, message: MessageId) -> bool:
        """Let the task that runs this message see that it is to stop; False when it does not run here."""
        contexts = [each for each in list(self._running.values()) if each.id == message]
        for context in contexts:
            context.request_cancel()
        return bool(contexts)

    def note_lost(self, queue: str, fence: int) -> None:
        """Let the task that runs this delivery see that somebody else has it."""
        context = self._running.get((queue, fence))
        if context is not None:
            context.note_lost()

    def tell_buried(self, delivery: Delivery, queue: str, error: TaskFailed) -> None:
        """Call the hooks for a message that was given up after its worker died."""
        self._hooks.run(self._hooks.failing, Context(delivery, queue, link=self._link), error)

    def tell_crashed(self, delivery: Delivery, queue: str, error: TaskFailed) -> None:
        """Call the hooks for a message that is run again after its worker died."""
        self._hooks.run(self._hooks.crashing, Context(delivery, queue, link=self._link), error)

    def interrupt_if_cancelled(self) -> None:
        """Raise `TaskCancelled`, once, if the task that runs in this thread was asked to stop.

        For a signal handler in the main thread; what it raises comes out of the task.
        """
        context = self._interruptible
        if context is not None and context.is_stop_requested:
            self._interruptible = None
            context.stop_if_requested()

    def _prepare(self, name: TaskName) -> PreparedTask | None:
        definition = self._registry.get(name)
        if definition is None:
            return None
        task = self._prepared[name] = PreparedTask(definition, self._registry.result_ttl_ms(name))
        return task

    def _enter(self, task: PreparedTask, delivery: Delivery, queue: str, envelope: Envelope) -> Context:
        context = self._running[queue, delivery.fence] = Context(
            delivery, queue, envelope.headers, self._link, has_lease=task.has_lease
        )
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
        if (
            task.keeps_result or envelope.workflow is not None
        ):  # a workflow waits for it, whatever the task says
            try:
                result = encode_result(value, self._max_bytes)
            except ResultRefused as refused:
                return self._without_result(delivery, context, refused, run)
        if context.is_stop_requested:
            self._log.warning(
                "cancel_missed", task=delivery.task, task_id=delivery.id, run_ms=round(run.run_ms)
            )
        if self._hooks.succeeding:
            self._hooks.run(self._hooks.succeeding, context, value)
        return Ack(delivery, result, run)

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
        settlement = settle_failure(policy, delivery, context, error, run=run, chance=self._chance)
        facts = {"task": delivery.task, "task_id": delivery.id, "attempt": delivery.attempt, **trace_facts()}
        match settlement:
            case RetryAt(due=After(ms), failure=Failure() as failure):
                self._log.warning("delivery_retried", **facts, **_told(failure), in_ms=ms, exc_info=error)
                self._hooks.run(self._hooks.retrying, context, error, ms)
            case Bury(reason=reason, failure=Failure() as failure):
                self._log.error("delivery_buried", **facts, **_told(failure), reason=reason, exc_info=error)
                self._hooks.run(self._hooks.failing, context, error)
            case _:
                self._log.info("delivery_cancelled", **facts)
        return settlement

    def _unknown(self, delivery: Delivery) -> Settlement:
        self._log.warning("task_unknown", task=delivery.task, task_id=delivery.id)
        hint = "; tasks of a script need name=..." if delivery.task.startswith("__main__.") else ""
        failure = Failure("UnknownTask", f"no task is named {delivery.task!r} on worker {self._worker}{hint}")
        return Park(delivery, After(UNKNOWN_TASK_MS), failure, UNKNOWN_TASK)

    def _unpermitted(self, delivery: Delivery) -> Settlement:
        """Its permit was for a start at another time: back to its gate, to wait for the next one."""
        self.unpermitted += 1
        return Release(delivery)

    def _refused(self, delivery: Delivery, task: PreparedTask, error: CallRefused) -> Settlement:
        """Kept, not buried: in a rolling deployment another node has the version that it was made for."""
        facts = {"task": delivery.task, "task_id": delivery.id, "attempt": delivery.attempt}
        self._log.warning("call_refused", **facts, problem=str(error))
        failure = Failure("CallRefused", str(error))
        return Park(delivery, After(UNKNOWN_TASK_MS), failure, task.definition.binding.version)

    def _undecodable(self, delivery: Delivery, queue: str, error: InvalidMessage) -> Settlement:
        facts = {"task": delivery.task, "task_id": delivery.id, "attempt": delivery.attempt}
        self._log.error("delivery_buried", **facts, reason="undecodable", error_msg=str(error))
        self._hooks.run(self._hooks.failing, Context(delivery, queue, link=self._link), error)
        return Bury(delivery, "undecodable", failure_of(error))


def _told(failure: Failure) -> dict[str, str]:
    return {"error": failure.error, "error_msg": failure.message}


def _cancelled(context: Context) -> TaskCancelled:
    task = asyncio.current_task()
    if task is not None:
        task.uncancel()
    return TaskCancelled(f"{context.task} {context.id} was cancelled while it ran")


def _is_being_cancelled(error: BaseException) -> bool:
    """Whether somebody outside cancels the run; a task that raises CancelledError itself has failed."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0


LONGEST_MESSAGE = 4_000
LONGEST_TRACEBACK = 16_000
MOST_FRAMES = 50
OWN_FRAMES = 2


def settle_failure(
    policy: Retry,
    delivery: Delivery,
    context: Context,
    error: BaseException,
    *,
    run: Run,
    chance: random.Random,
) -> Settlement:
    """How a delivery ends whose task raised this."""
    if isinstance(error, TaskCancelled):
        if context.is_cancelled:
            return Release(delivery)  # the queue knows that it was cancelled, and does not take it back
        return Bury(delivery, "cancelled", failure_of(error), run=run)
    if isinstance(error, LeaseLost) and context.is_known_lost:
        return Release(delivery)  # refused, as everything that this run could say
    match decide(policy, delivery.failures, error, chance):
        case RetryIn(ms):
            return RetryAt(delivery, After(ms), failure_of(error), run)
        case GiveUp(reason):
            return Bury(delivery, reason, failure_of(error), run=run)
        case other:
            assert_never(other)


def failure_of(error: BaseException) -> Failure:
    """The error as data: looking at it runs code of its class, which may fail too."""
    try:
        message = str(error)
    except Exception as trouble:  # noqa: BLE001 - foreign code; the failure must be told in any case
        message = f"<its text cannot be had: {type(trouble).__name__}>"
    return Failure(type(error).__qualname__, message[:LONGEST_MESSAGE], _traceback_of(error))


def _traceback_of(error: BaseException) -> str:
    # Without our own frames (run, call): the first line is the user's.
    trace = error.__traceback__
    for _ in range(OWN_FRAMES):
        trace = trace.tb_next if trace is not None and trace.tb_next is not None else trace
    try:
        lines = traceback.format_exception(type(error), error, trace, limit=-MOST_FRAMES)
    except Exception:  # noqa: BLE001 - as above
        lines = traceback.format_tb(trace, limit=-MOST_FRAMES)
    return "".join(lines)[-LONGEST_TRACEBACK:]
