"""Running: a delivery in, a settlement out. The bridge between the worker and the tasks of an app.

What can be worked out once per task is (`PreparedTask`); what is left per delivery is decoding, the
call itself and the settlement. Nothing is logged for a task that succeeds; what becomes of one that failed is
decided in failure.py.
"""

from __future__ import annotations

import asyncio
import random
import signal
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from types import FrameType
from typing import Any

from mqworker.errors import InvalidMessage, TaskCancelled, TaskFailed, TaskTimeout
from mqworker.log import get_logger
from mqworker.model.clock import Clock
from mqworker.model.delivery import Delivery
from mqworker.model.envelope import Envelope, decode_call
from mqworker.model.instant import After
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
from mqworker.model.value_codec import PACKED_NONE, NotAccepted, Value, pack
from mqworker.model.value_problem import problem_with
from mqworker.tasks.context import Context, TaskLink, current, trace_facts
from mqworker.tasks.hooks import Hooks
from mqworker.tasks.registry import Registry, TaskDefinition
from mqworker.tasks.running.failure import failure_of, settle_failure

MOST_WAITS = 8
UNKNOWN_TASK_MS = 30_000
"""A message whose task is unknown here is parked for so long; by then a worker that knows it may be there."""


class CallRefused(InvalidMessage):
    """The call was made for another version of the task; somebody else may know that one."""


class ResultRefused(Exception):
    """What a task returned cannot be kept. Tells the reason as it stands in the dead letter."""

    def __init__(self, reason: str, problem: str) -> None:
        super().__init__(problem)
        self.reason = reason


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
    ) -> None:
        """`link` keeps progress and knows of cancellations; exceptions of the types `passes` go through."""
        self._logs_successes = logs_successes
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
        self._running: set[Context] = set()
        """A message that was lost and came back may run here twice at a time."""
        self._interruptible: Context | None = None
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
        if self._strikes and (strike := self._strike(task, delivery, envelope)) is not None:
            return self._struck(delivery, strike)
        context = self._enter(task, delivery, queue, envelope)
        run, began_s = Run(self._worker, self._node, self._now_ms()), self._monotonic_s()
        token = current.set(context)
        try:
            # Two blocks: what a signal raises while the inner one ends is still caught by the outer one.
            try:
                self._interruptible = context
                if context.is_stop_requested:
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
            self._running.discard(context)
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
        if self._strikes and (strike := self._strike(task, delivery, envelope)) is not None:
            return self._struck(delivery, strike)
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
            self._running.discard(context)
        return self._succeeded(task, delivery, context, envelope, value=value, run=run)

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
        if envelope.tags:
            delivery.tags = envelope.tags  # for the events about it
        context = Context(delivery, queue, envelope.headers, self._link, task.has_lease)
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
        if self._logs_successes:
            facts = {"task": delivery.task, "task_id": delivery.id, "attempt": delivery.attempt}
            self._log.info("delivery_succeeded", **facts, run_ms=round(run.run_ms, 3))
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
        secrets = _secrets_of(task, delivery)
        settlement = settle_failure(
            policy, delivery, context, error, run=run, chance=self._chance, secrets=secrets
        )
        facts = {"task": delivery.task, "task_id": delivery.id, "attempt": delivery.attempt, **trace_facts()}
        match settlement:
            case RetryAt(due=After(ms), failure=Failure() as failure):
                told = _told(failure, error, secrets)
                self._log.warning("delivery_retried", **facts, **told, in_ms=ms)
                self._hooks.run(self._hooks.retrying, context, error, ms)
            case Bury(reason=reason, failure=Failure() as failure):
                told = _told(failure, error, secrets)
                self._log.error("delivery_buried", **facts, **told, reason=reason)
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

    def _undecodable(self, delivery: Delivery, queue: str, error: InvalidMessage) -> Settlement:
        facts = {"task": delivery.task, "task_id": delivery.id, "attempt": delivery.attempt}
        self._log.error("delivery_buried", **facts, reason="undecodable", error_msg=str(error))
        self._hooks.run(self._hooks.failing, Context(delivery, queue, link=self._link), error)
        return Bury(delivery, "undecodable", failure_of(error))


def _secrets_of(task: PreparedTask, delivery: Delivery) -> list[str]:
    """What is not to be seen in an error of this run; from the body, for a task may change its arguments."""
    try:
        call = decode_call(delivery.body)
    except InvalidMessage:
        return []
    return task.definition.binding.secrets.values(call.args, call.kwargs)


def _told(failure: Failure, error: BaseException, secrets: Sequence[str]) -> dict[str, Any]:
    trace = {"traceback": failure.traceback} if secrets else {"exc_info": error}
    return {"error": failure.error, "error_msg": failure.message, **trace}


def _cancelled(context: Context) -> TaskCancelled:
    task = asyncio.current_task()
    if task is not None:
        task.uncancel()
    return TaskCancelled(f"{context.task} {context.id} was cancelled while it ran")


def _is_being_cancelled(error: BaseException) -> bool:
    """Whether somebody outside cancels the run; a task that raises CancelledError itself has failed."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0


class PreparedTask:
    """One task, ready to run: everything that is the same for all its deliveries, worked out once."""

    __slots__ = (
        "_accepts",
        "_binding",
        "_function",
        "_has_rebuilds",
        "_takes_context",
        "_timeout_ms",
        "definition",
        "hard_timeout_ms",
        "has_lease",
        "is_async",
        "keeps_result",
    )

    def __init__(self, definition: TaskDefinition, result_ttl_ms: int) -> None:
        self.definition = definition
        self.is_async = definition.is_async
        self.hard_timeout_ms = definition.options.hard_timeout_ms
        self.has_lease = definition.options.delivery != "at_most_once"
        self.keeps_result = result_ttl_ms > 0
        self._function = definition.function
        self._binding = definition.binding
        self._accepts = definition.binding.positional_counts
        self._has_rebuilds = bool(definition.rebuilds)
        self._takes_context = definition.binding.takes_context
        self._timeout_ms = definition.options.timeout_ms

    def open(self, body: bytes) -> Envelope:
        """The call in a body, fit for the function. Raises `InvalidMessage`, `CallRefused`."""
        envelope = decode_call(body)
        try:
            if envelope.kwargs or len(envelope.args) not in self._accepts:
                self._binding.accept(envelope.args, envelope.kwargs)
            if self._has_rebuilds:
                self.definition.rebuild(envelope.args, envelope.kwargs)
        except InvalidMessage as error:
            raise CallRefused(str(error)) from error
        return envelope

    def call(self, envelope: Envelope, context: Context) -> Value:
        """Run the function in this thread, within its time; the context variables it sets end with it."""
        if self._takes_context:
            self._binding.inject(envelope.args, envelope.kwargs, context)
        timeout_ms = envelope.timeout_ms or self._timeout_ms
        if timeout_ms is None:
            return copy_context().run(self._function, *envelope.args, **envelope.kwargs)
        with alarm(timeout_ms, self.definition.name):
            return copy_context().run(self._function, *envelope.args, **envelope.kwargs)

    async def acall(self, envelope: Envelope, context: Context) -> Any:  # noqa: ANN401 - the user's value
        """Run the coroutine function on this event loop, within its time."""
        self._binding.inject(envelope.args, envelope.kwargs, context)
        timeout_ms = envelope.timeout_ms or self._timeout_ms
        if timeout_ms is None:
            return await self._function(*envelope.args, **envelope.kwargs)
        limit = asyncio.timeout(timeout_ms / 1000)
        try:
            async with limit:
                return await self._function(*envelope.args, **envelope.kwargs)
        except TimeoutError as error:
            if limit.expired():
                raise TaskTimeout(
                    f"{self.definition.name} ran longer than {timeout_ms / 1000:g} s"
                ) from error
            raise


def encode_result(value: Value, max_bytes: int) -> bytes:
    """The bytes that are kept of a result. Raises `ResultRefused`: a result is never silently dropped."""
    if value is None:  # of most tasks it is only asked whether they are done
        return PACKED_NONE
    try:
        result = pack(value)
    except NotAccepted as refused:
        problem = problem_with("the result", value) or f"the result cannot be kept: {refused}"
        raise ResultRefused("result_not_accepted", problem) from refused
    if len(result) > max_bytes:
        problem = f"the result is {len(result):,} bytes; accepted are up to {max_bytes:,}"
        raise ResultRefused("result_too_large", problem)
    return result


@contextmanager
def alarm(timeout_ms: int, task: str) -> Iterator[None]:
    """Raise `TaskTimeout` in the block when it takes longer."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    is_running = True

    def ring(_number: int, _frame: FrameType | None) -> None:
        if is_running:  # else it rang in the instant after the end
            raise TaskTimeout(f"{task} ran longer than {timeout_ms / 1000:g} s")

    previous = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, timeout_ms / 1000)
    try:
        yield
    finally:
        is_running = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
