"""The way into a queue of another model than the work queue, its jobs, its mark."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, cast

from mqworker.errors import NotSupported
from mqworker.model.message import Message
from mqworker.model.names import MessageId, QueueName, TaskName
from mqworker.queues.catalogue import Gq, Model, OpenQueue, Rsmq
from mqworker.queues.celery.model import CeleryQueue
from mqworker.queues.work.keys import WorkQueueKeys
from mqworker.queues.work.queue import WorkQueue
from mqworker.queues.work.steps import WorkQueueSteps
from mqworker.settings import Settings
from mqworker.tasks.job import Job, R
from mqworker.tasks.job_steps import JobSteps
from mqworker.tasks.options import AS_SET, CallPlan, TaskOptions, plan_of
from mqworker.tasks.outcome import JobStatus, Outcome
from mqworker.tasks.payloads import Payloads, check_size
from mqworker.tasks.running.progress import Progress

if TYPE_CHECKING:
    from mqworker.queues.celery.queue import CeleryTaskQueue
    from mqworker.queues.gq.queue import GqQueue
    from mqworker.queues.rsmq.queue import RsmqQueue
    from mqworker.tasks.app import App

_STATUS_BY_RSMQ = {
    "VISIBLE": JobStatus.WAITING,
    "DELAYED": JobStatus.DELAYED,
    "HIDDEN": JobStatus.RUNNING,
    "DEAD": JobStatus.FAILED,
    "GONE": JobStatus.UNKNOWN,
}
_STATUS_BY_GQ = {
    "QUEUED": JobStatus.WAITING,
    "CONSUMED": JobStatus.RUNNING,
    "PROCESSED": JobStatus.SUCCEEDED,
    "FAILED": JobStatus.FAILED,
}
_STATUS_BY_CELERY = {
    "SUCCEEDED": JobStatus.SUCCEEDED,
    "DEAD": JobStatus.FAILED,
    "RETRIED": JobStatus.DELAYED,
    "UNKNOWN": JobStatus.UNKNOWN,
}
_PASSED = "deadline"
_MARK = "model"


class ModelSender:
    """Sends to one queue. Safe between threads."""

    is_cluster = False
    """What a cluster does not offer these models do not offer either."""

    def __init__(
        self,
        name: QueueName,
        model: Model,
        opened: OpenQueue,
        beside: WorkQueue,
        settings: Settings,
        *,
        payloads: Payloads | None = None,
    ) -> None:
        """`beside` is where we keep what the model has no place for: the progress of running tasks."""
        self.name = name
        self.model = model
        self.beside = beside
        self.max_message_bytes = settings.max_message_bytes
        self.max_crashes = settings.max_crashes
        self.payloads = None if payloads is None else payloads.without_ids()
        self._opened = opened

    def check_size(self, task: str, size: int) -> None:
        """Refuse arguments that are too large."""
        check_size(task, size, self.max_message_bytes, None)

    def send(self, messages: Sequence[Message], connection: object | None) -> list[MessageId]:
        """Store messages; in the caller's transaction, if there is a connection. The ids the queue gave."""
        if connection is not None and isinstance(self.model, Gq):
            return cast("GqQueue", self._opened).send_within(connection, *messages)
        return self._opened.send(*messages)

    def status(self, message: MessageId) -> JobStatus:
        """Where a message is, as far as the model tells."""
        if isinstance(self.model, Rsmq):
            return _STATUS_BY_RSMQ[cast("RsmqQueue", self._opened).find(message).name]
        if isinstance(self.model, CeleryQueue):
            return _STATUS_BY_CELERY[cast("CeleryTaskQueue", self._opened).find(message).name]
        record = cast("GqQueue", self._opened).find(message)
        if record is None:
            return JobStatus.UNKNOWN
        status = _STATUS_BY_GQ[record.status.name]
        is_expired = status is JobStatus.FAILED and record.reason == _PASSED and not record.attempts
        return JobStatus.EXPIRED if is_expired else status

    def retry(self, message: MessageId) -> bool:
        """Enqueue a dead letter again; False when there is no such dead letter."""
        if isinstance(self.model, Rsmq):
            return cast("RsmqQueue", self._opened).revive(message) == [True]
        if isinstance(self.model, CeleryQueue):
            return cast("CeleryTaskQueue", self._opened).revive(message) == [True]
        raise self.refusal("retry")

    def refusal(self, what: str) -> NotSupported:
        """The error for what the model does not offer."""
        return NotSupported(
            f"{what}: queue {self.name} is {self.model.title}, which offers none; use a work queue for that"
        )

    def close(self) -> None:
        """Close what was opened for this queue alone."""
        if isinstance(self.model, Gq):
            cast("GqQueue", self._opened).close()


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
        """Put a failed job back in line; False when it is not a dead letter. On gq: `NotSupported`."""
        return self._model_sender.retry(self.id)

    async def aretry(self) -> bool:
        """`retry` for asyncio."""
        return await asyncio.to_thread(self.retry)

    def progress(self) -> Progress | None:
        """What the task last said about how far it has come; None when it said nothing."""
        beside = self._model_sender.beside
        work = WorkQueueSteps(beside.calls, beside.calls.keys.prefix.partition(":{")[0])
        steps = JobSteps(work, self._model_sender.payloads)
        return beside.store.follow(steps.progress(self.id))

    async def aprogress(self) -> Progress | None:
        """`progress` for asyncio."""
        return await asyncio.to_thread(self.progress)


def check_task(task: TaskName, options: TaskOptions, model: Model) -> None:
    """Refuse a task whose own options its queue cannot honour."""
    check_call(task, plan_of(options), options, model)
    for wish, is_wanted in (
        ("batch", options.batch is not None),
        ("result_ttl", bool(options.result_ttl_ms)),
        ("max_crashes", options.max_crashes != AS_SET),
        ("max_losses", options.max_losses != AS_SET),
    ):
        if is_wanted:
            raise _refusal(task, wish, options.queue, model)


def check_call(task: TaskName, plan: CallPlan, options: TaskOptions, model: Model) -> None:
    """Refuse a call that its queue cannot honour."""
    for wish, is_wanted in (
        ("priority", plan.priority != 0),
        ("delay", plan.due is not None),
        ("deadline", plan.deadline is not None),
        ("unique", plan.unique is not None),
        ("id", plan.id is not None),
        ("rate", bool(options.rates)),
        ("max_running", bool(options.running)),
        ("breaker", options.breaker is not None),
        ("batch", options.batch is not None),
        ("fair_by", options.fair is not None),
        ("delivery", options.delivery == "at_most_once"),
        ("connection", plan.connection is not None),
        ("max_crashes", plan.max_crashes != AS_SET),
    ):
        if is_wanted and wish not in model.wishes:
            raise _refusal(task, wish, plan.queue, model)


def _refusal(task: TaskName, wish: str, queue: QueueName, model: Model) -> NotSupported:
    accepted = ", ".join(sorted(model.wishes))
    return NotSupported(
        f"{task}: {wish} has no place in queue {queue}, which is {model.title}; accepted there: {accepted}"
    )


def publish_models(app: App) -> int:
    """Mark the queues of other models, and take the mark off those that are work queues; how many.

    RSMQ and gq keep their messages elsewhere: what RedisMQ's `push` puts into a work queue of the same name
    would wait there for ever, so whoever pushes into a marked queue is refused. Workers, which alone know the
    declarations of an app, call this when they start.
    """
    store, namespace = app.connections.store, app.connections.namespace
    names = {task.options.queue for task in app.registry} | set(app.queues)
    for name in sorted(names):
        model = app.connections.models.get(name)
        meta = WorkQueueKeys.of(namespace, QueueName(name)).meta
        command = ("HDEL", meta, _MARK) if model is None else ("HSET", meta, _MARK, model.title)
        # Once, without patience: the caller has other things to do while Redis is away.
        store.connection.execute([command], meta)
    return len(app.connections.models)
