"""Job: the handle of one message. Look at it, wait for it, cancel it, put it back in line."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar, cast

from mqworker.errors import ResultTimeout
from mqworker.model.clock import Clock, SystemClock
from mqworker.model.names import MessageId, QueueName
from mqworker.tasks.connections import Sender
from mqworker.tasks.outcome import JobStatus, Outcome, decode_outcome, value_of
from mqworker.tasks.progress import Progress, decode_progress, progress_key
from mqworker.tasks.registry import TaskDefinition

R = TypeVar("R")
JobT = TypeVar("JobT", bound="Job[Any]")

_STATUS_BY_STATE = {
    "ready": JobStatus.WAITING,
    "delayed": JobStatus.DELAYED,
    "leased": JobStatus.RUNNING,
    "delivered": JobStatus.RUNNING,
    "succeeded": JobStatus.SUCCEEDED,
    "cancelled": JobStatus.CANCELLED,
    "expired": JobStatus.EXPIRED,
    "dead": JobStatus.FAILED,
}
_CANCEL_TRIES = 3


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
        state = self._sender.work.find(self.id).state
        return _STATUS_BY_STATE.get(state, JobStatus.UNKNOWN)

    def result(self, timeout: float | None = None) -> R:
        """Wait until the job ends and give what the task returned.

        Raises `TaskFailed`, `TaskCancelled`, `TaskExpired`, `ResultNotKept`; `ResultTimeout` after so many
        seconds, in which case the job goes on; 0 only looks whether it has ended.
        """
        if self._outcome is None and timeout == 0:
            self._outcome = self._outcome_now()
        if self._outcome is None:
            future = self._future()
            try:
                self._outcome = future.result(timeout)
            except TimeoutError as error:
                future.cancel()
                raise self._not_in_time(timeout) from error
        return self._value(self._outcome)

    async def aresult(self, timeout: float | None = None) -> R:  # noqa: ASYNC109 - the same as `result`
        """`result` for asyncio."""
        if self._outcome is None:
            future = self._future()
            try:
                async with asyncio.timeout(timeout):
                    self._outcome = await asyncio.wrap_future(future)
            except TimeoutError as error:
                raise self._not_in_time(timeout) from error
        return self._value(self._outcome)

    def cancel(self) -> bool:
        """Take it out while it waits; ask the task to stop where it runs already. False when it has ended.

        A task that was asked to stop sees `ctx.is_cancelled`; whatever it does then, it is not retried.
        """
        work = self._sender.work
        for _ in range(_CANCEL_TRIES):  # it may change hands between two looks
            state = work.find(self.id).state
            if state == "leased":
                work.store.run(work.calls.request_cancel(self.id))
                return True
            if state not in {"ready", "delayed"}:
                return False
            if work.cancel(self.id):
                return True
        return False

    def retry(self) -> bool:
        """Put a failed job back in line, its counts beginning anew; False when it is no dead letter."""
        self._outcome = None
        return self._sender.work.revive(self.id) == [self.id]

    def progress(self) -> Progress | None:
        """What the task last said about how far it has come; None when it said nothing."""
        work = self._sender.work
        text = work.store.read([("GET", progress_key(work, self.id))], work.calls.keys.meta)[0]
        return decode_progress(text) if isinstance(text, bytes) else None

    def __repr__(self) -> str:
        """Id and queue: what `mqworker job show` asks for."""
        return f"<Job {self.id} in {self.queue}>"

    def _outcome_now(self) -> Outcome | None:
        work = self._sender.work
        reply = work.store.run(work.calls.wait([self.id]))[0]
        return None if reply is None else decode_outcome(self.id, reply)

    def _future(self) -> Future[Outcome]:
        return self._sender.watch.watch(self.id, is_fresh=bool(self.is_new))

    def _value(self, outcome: Outcome) -> R:
        rebuild = None if self._definition is None else self._definition.rebuild_result
        # The task's annotation says what it returns; the bytes cannot.
        return cast("R", value_of(self.id, outcome, rebuild))

    def _not_in_time(self, timeout: float | None) -> ResultTimeout:
        return ResultTimeout(f"job {self.id} in {self.queue} did not end within {timeout:g} s")


def as_completed(
    jobs: Iterable[JobT], timeout: float | None = None, *, clock: Clock | None = None
) -> Iterator[JobT]:
    """The jobs in the order in which they end; all are waited for at once. `job.result()` is then there.

    Raises `ResultTimeout` when some did not end in the time given.
    """
    clock = clock or SystemClock()
    ends_at_ms = None if timeout is None else clock.monotonic_ms() + timeout * 1000
    jobs_by_future: dict[Future[Outcome], JobT] = {}
    for job in jobs:
        if job._outcome is None:  # noqa: SLF001 - jobs and their joint wait are one thing
            jobs_by_future[job._future()] = job  # noqa: SLF001 - same
        else:
            yield job
    ended: SimpleQueue[Future[Outcome]] = SimpleQueue()
    for future in jobs_by_future:
        future.add_done_callback(ended.put)
    for left in range(len(jobs_by_future), 0, -1):
        try:
            future = ended.get(
                timeout=None if ends_at_ms is None else max(0.0, (ends_at_ms - clock.monotonic_ms()) / 1000)
            )
        except Empty as error:
            for future in jobs_by_future:
                future.cancel()
            raise ResultTimeout(
                f"{left} of {len(jobs_by_future)} jobs did not end in {timeout:g} s"
            ) from error
        job = jobs_by_future[future]
        job._outcome = future.result()  # noqa: SLF001 - same
        yield job


def wait_all(jobs: Iterable[Job[Any]], timeout: float | None = None) -> None:
    """Wait until all jobs have ended, however; afterwards `result()` of each is there at once."""
    for _ in as_completed(jobs, timeout):
        pass
