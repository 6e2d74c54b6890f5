"""The job of a message in a queue of another model: it tells as much as the model does."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import TypeVar

from mqworker.model.names import MessageId, QueueName
from mqworker.queues.work.steps import WorkQueueSteps
from mqworker.tasks.job import Job
from mqworker.tasks.job_steps import JobSteps
from mqworker.tasks.outcome import JobStatus, Outcome
from mqworker.tasks.queue_sender import ModelSender
from mqworker.tasks.running.progress import Progress

R = TypeVar("R")


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

    def cancel(self) -> bool:
        """Refused with `NotSupported`: the model has no way to take a message out."""
        raise self._model_sender.refusal("cancel")

    async def acancel(self) -> bool:
        """Refused with `NotSupported`: the model has no way to take a message out."""
        return self.cancel()

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
