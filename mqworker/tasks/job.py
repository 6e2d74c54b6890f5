"""Job: the handle of one message. Look at it, wait for it, cancel it, put it back in line."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import Generic, TypeVar, cast

from mqworker.errors import ResultTimeout, StillRunning
from mqworker.model.clock import SystemClock
from mqworker.model.names import MessageId, QueueName
from mqworker.queues.work.steps import WorkQueueSteps
from mqworker.tasks.connections import Sender
from mqworker.tasks.context import current_context
from mqworker.tasks.foreign_queues import ModelSender
from mqworker.tasks.job_steps import Cancelling, JobSteps
from mqworker.tasks.outcome import Cancelled, JobStatus, Outcome, value_of
from mqworker.tasks.registry import TaskDefinition
from mqworker.tasks.running.progress import Progress

R = TypeVar("R")

CANCEL_TIMEOUT_S = 5.0
_ASK_AGAIN_S = 1.0
"""The wish to cancel travels as a wake-up, which may be lost: so it is told again."""


class Job(Generic[R]):
    """One message and what becomes of it."""

    __slots__ = ("_definition", "_outcome", "_sender", "id", "is_new")

    def __init__(
        self,
        message: MessageId,
        sender: Sender,
        definition: TaskDefinition | None = None,
        *,
        is_new: bool | None,
    ) -> None:
        self.id = message
        self.is_new = is_new
        """False when a message that was there already took the place of this call; None when unknown."""
        self._sender = sender
        self._definition = definition
        self._outcome: Outcome | None = None

    @property
    def queue(self) -> QueueName:
        """The queue it was put in."""
        return self._sender.work.name

    def status(self) -> JobStatus:
        """Where it is now. A message in the line is searched for from its newest end."""
        return self._sender.follow(self._sender.steps.status(self.id))

    async def astatus(self) -> JobStatus:
        """`status` for asyncio."""
        return await self._sender.afollow(self._sender.steps.status(self.id))

    def result(self, timeout: float | None = None) -> R:
        """Wait until the job ends and give what the task returned.

        Raises `TaskFailed`, `TaskCancelled`, `TaskExpired`, `ResultNotKept`; `ResultTimeout` after so many
        seconds, in which case the job goes on; 0 only looks whether it has ended.
        """
        if self._outcome is None and timeout == 0:
            self._outcome = self._sender.follow(self._sender.steps.outcome(self.id))
        if self._outcome is None:
            future = self.begin_wait()
            try:
                self._outcome = future.result(timeout)
            except TimeoutError as error:
                future.cancel()
                raise self._not_in_time(timeout) from error
        return self._value(self._outcome)

    async def aresult(self, timeout: float | None = None) -> R:  # noqa: ASYNC109 - the same as `result`
        """`result` for asyncio."""
        if self._outcome is None and timeout == 0:
            self._outcome = await self._sender.afollow(self._sender.steps.outcome(self.id))
        if self._outcome is None:
            future = self.begin_wait()
            try:
                async with asyncio.timeout(timeout):
                    self._outcome = await asyncio.wrap_future(future)
            except TimeoutError as error:
                raise self._not_in_time(timeout) from error
        return self._value(self._outcome)

    def cancel(self, *, kill: bool = False, timeout: float = CANCEL_TIMEOUT_S) -> bool:
        """Take it out while it waits; where it runs, stop it, and wait so many seconds until it has stopped.

        True when it is cancelled, False when it has ended otherwise; raises `StillRunning` when it was asked
        to stop and still runs. An async task is cancelled as asyncio does it; in a sync one `TaskCancelled`
        is raised, unless the worker has threads: there it has to look at `ctx.is_cancelled`. Whatever it does
        then, it is not retried. `kill` ends the worker instead; what else ran there runs again. A task that
        cancels itself is told True, and goes on until it stops.
        """
        steps, left_s = self._sender.steps, timeout
        state = self._sender.follow(steps.cancel(self.id, kill=kill))
        if state is Cancelling.ASKED and self._is_cancelled_by_itself():
            return True
        future = self.begin_wait() if state is Cancelling.ASKED else None
        while future is not None and state is Cancelling.ASKED:
            try:
                return isinstance(future.result(_next_look_s(left_s)), Cancelled)
            except TimeoutError as error:
                left_s -= _ASK_AGAIN_S
                if left_s <= 0:
                    future.cancel()
                    raise self._not_stopped(timeout) from error
            state = self._sender.follow(steps.cancel(self.id, kill=kill))
        return state is Cancelling.CANCELLED

    async def acancel(self, *, kill: bool = False, timeout: float = CANCEL_TIMEOUT_S) -> bool:  # noqa: ASYNC109
        """`cancel` for asyncio."""
        steps, left_s = self._sender.steps, timeout
        state = await self._sender.afollow(steps.cancel(self.id, kill=kill))
        if state is Cancelling.ASKED and self._is_cancelled_by_itself():
            return True
        future = self.begin_wait() if state is Cancelling.ASKED else None
        while future is not None and state is Cancelling.ASKED:
            ended, _ = await asyncio.wait([asyncio.wrap_future(future)], timeout=_next_look_s(left_s))
            if ended:
                return isinstance(ended.pop().result(), Cancelled)
            left_s -= _ASK_AGAIN_S
            if left_s <= 0:
                future.cancel()
                raise self._not_stopped(timeout)
            state = await self._sender.afollow(steps.cancel(self.id, kill=kill))
        return state is Cancelling.CANCELLED

    def retry(self) -> bool:
        """Put a failed job back in line, its counts beginning anew; False when it is no dead letter."""
        self._outcome = None
        return self._sender.follow(self._sender.steps.retry(self.id))

    async def aretry(self) -> bool:
        """`retry` for asyncio."""
        self._outcome = None
        return await self._sender.afollow(self._sender.steps.retry(self.id))

    def progress(self) -> Progress | None:
        """What the task last said about how far it has come; None when it said nothing."""
        return self._sender.follow(self._sender.steps.progress(self.id))

    async def aprogress(self) -> Progress | None:
        """`progress` for asyncio."""
        return await self._sender.afollow(self._sender.steps.progress(self.id))

    def begin_wait(self) -> Future[Outcome]:
        """The outcome to come, for those who wait for several jobs (joint_wait.py); this never blocks."""
        if self._outcome is not None:
            ended: Future[Outcome] = Future()
            ended.set_result(self._outcome)
            return ended
        future = self._sender.watch.watch(self.id, is_fresh=bool(self.is_new))
        future.add_done_callback(self._remember)
        context = current_context()
        if context is not None:  # a task waits: `status` shows for what, for it may wait for ever
            context.begin_wait(self.queue, self.id, SystemClock().monotonic_ms())
            future.add_done_callback(lambda _: context.end_wait(self.queue, self.id))
        return future

    def __repr__(self) -> str:
        """Id and queue: what `mqworker job show` asks for."""
        return f"<Job {self.id} in {self.queue}>"

    def _remember(self, future: Future[Outcome]) -> None:
        if not future.cancelled() and future.exception() is None:
            self._outcome = future.result()

    def _value(self, outcome: Outcome) -> R:
        rebuild = None if self._definition is None else self._definition.rebuild_result
        # The task's annotation says what it returns; the bytes cannot.
        return cast("R", value_of(self.id, outcome, rebuild))

    def _is_cancelled_by_itself(self) -> bool:
        """Whether it is the task that runs here: it knows now, and must not wait for its own end."""
        context = current_context()
        if context is None or context.id != self.id:
            return False
        context.request_cancel()
        return True

    def _not_stopped(self, timeout: float) -> StillRunning:
        return StillRunning(
            f"job {self.id} in {self.queue} was asked to stop and still runs after {timeout:g} s; "
            "it is not retried; cancel(kill=True) ends its worker"
        )

    def _not_in_time(self, timeout: float | None) -> ResultTimeout:
        return ResultTimeout(f"job {self.id} in {self.queue} did not end within {timeout:g} s")


def _next_look_s(left_s: float) -> float:
    return max(0.0, min(left_s, _ASK_AGAIN_S))


class ModelJob(Job[R]):
    """One message, by the id that its queue gave it. Results are not kept: waiting for one is refused."""

    __slots__ = ("_model_sender",)

    # Not the constructor of Job: that wants the sender of a work queue.
    def __init__(self, message: MessageId, sender: ModelSender, *, is_new: bool | None) -> None:
        self.id = message
        self.is_new = is_new
        self._outcome = None
        self._definition = None
        self._model_sender = sender

    @property
    def queue(self) -> QueueName:
        """The queue it was put in."""
        return self._model_sender.name

    def status(self) -> JobStatus:
        """Where it is now. RSMQ deletes what is done, and then it is unknown; gq remembers for a day."""
        return self._model_sender.status(self.id)

    async def astatus(self) -> JobStatus:
        """`status` for asyncio."""
        return await asyncio.to_thread(self.status)

    def result(self, timeout: float | None = None) -> R:
        """Refused with `NotSupported`: the model keeps no results."""
        raise self._model_sender.refusal(f"result(timeout={timeout})")

    async def aresult(self, timeout: float | None = None) -> R:  # noqa: ASYNC109 - the same as `result`
        """Refused with `NotSupported`: the model keeps no results."""
        return self.result(timeout)

    def begin_wait(self) -> Future[Outcome]:
        """Refused with `NotSupported`: the model tells nobody when a message ends."""
        raise self._model_sender.refusal("waiting for a job")

    def cancel(self, *, kill: bool = False, timeout: float = 0) -> bool:  # noqa: ARG002 - as `Job.cancel`
        """Refused with `NotSupported`: the model has no way to take a message out."""
        raise self._model_sender.refusal("cancel")

    async def acancel(self, *, kill: bool = False, timeout: float = 0) -> bool:  # noqa: ASYNC109
        """Refused with `NotSupported`: the model has no way to take a message out."""
        return self.cancel(kill=kill, timeout=timeout)

    def retry(self) -> bool:
        """Put a failed job back in line; False when it is no dead letter. On gq: `NotSupported`."""
        return self._model_sender.retry(self.id)

    async def aretry(self) -> bool:
        """`retry` for asyncio."""
        return await asyncio.to_thread(self.retry)

    def progress(self) -> Progress | None:
        """What the task last said about how far it has come; None when it said nothing."""
        beside = self._model_sender.beside
        steps = JobSteps(WorkQueueSteps(beside.calls, beside.calls.keys.prefix.partition(":{")[0]))
        return beside.store.follow(steps.progress(self.id))

    async def aprogress(self) -> Progress | None:
        """`progress` for asyncio."""
        return await asyncio.to_thread(self.progress)
