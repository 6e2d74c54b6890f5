"""The way into a queue of another model than the work queue, and what a job can learn there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from mqworker.errors import NotSupported
from mqworker.model.message import Message
from mqworker.model.names import MessageId, QueueName, TaskName
from mqworker.queues.catalogue import Gq, Model, OpenQueue, Rsmq
from mqworker.queues.work.queue import WorkQueue
from mqworker.settings import Settings
from mqworker.tasks.options import AS_SET, CallPlan, TaskOptions, plan_of
from mqworker.tasks.outcome import JobStatus

if TYPE_CHECKING:
    from mqworker.queues.gq.queue import GqQueue
    from mqworker.queues.rsmq.queue import RsmqQueue

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
_PASSED = "deadline"


class ModelSender:
    """Sends to one queue. Safe between threads."""

    def __init__(
        self, name: QueueName, model: Model, opened: OpenQueue, beside: WorkQueue, settings: Settings
    ) -> None:
        """`beside` is where we keep what the model has no place for: the progress of running tasks."""
        self.name = name
        self.model = model
        self.beside = beside
        self.max_message_bytes = settings.max_message_bytes
        self.max_crashes = settings.max_crashes
        self._opened = opened

    def send(self, messages: Sequence[Message], connection: object | None) -> list[MessageId]:
        """Store messages; in the caller's transaction, if there is a connection. The ids the queue gave."""
        if connection is not None and isinstance(self.model, Gq):
            return cast("GqQueue", self._opened).send_within(connection, *messages)
        return self._opened.send(*messages)

    def status(self, message: MessageId) -> JobStatus:
        """Where a message is, as far as the model tells."""
        if isinstance(self.model, Rsmq):
            return _STATUS_BY_RSMQ[cast("RsmqQueue", self._opened).find(message).name]
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


def check_task(task: TaskName, options: TaskOptions, model: Model) -> None:
    """Refuse a task whose own options its queue cannot honour."""
    check_call(task, plan_of(options), options, model)
    for wish, is_wanted in (
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
