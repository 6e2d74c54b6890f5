"""Results: records and states of jobs as Django's `TaskResult`, and priorities as ours."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.utils import timezone

from mqworker.contrib.django.records import Record
from mqworker.contrib.django.tasks_api import Task, TaskError, TaskResult, TaskResultStatus
from mqworker.errors import TaskCancelled, TaskExpired
from mqworker.model.names import HIGHEST_PRIORITY
from mqworker.tasks.outcome import JobStatus

_MOST_URGENT = 100
_ERROR_BY_STATUS = {JobStatus.CANCELLED: TaskCancelled, JobStatus.EXPIRED: TaskExpired}
"""What ended without a run has raised nothing; Django's users look for the reason among the errors."""


# Any: classes of Django, which has no types.
def result_of(task: Any, result: str, record: Record, status: Any, value: object = None) -> Any:  # noqa: ANN401
    """The result as Django has it."""
    made = TaskResult(
        task=task,
        id=result,
        status=status,
        enqueued_at=moment(record.enqueued_at_ms),
        started_at=moment(record.started_at_ms),
        finished_at=moment(record.finished_at_ms),
        last_attempted_at=moment(record.attempted_at_ms),
        args=record.args,
        kwargs=record.kwargs,
        backend=record.backend,
        errors=[TaskError(exception_class_path=path, traceback=text) for path, text in record.errors],
        worker_ids=list(record.worker_ids),
    )
    object.__setattr__(made, "_return_value", value)  # frozen; every backend of Django does it so
    return made


def status_of(status: JobStatus, record: Record) -> Any:  # noqa: ANN401 - as above
    """Django's word for the state of a job that the server knows."""
    match status:
        case JobStatus.SUCCEEDED:
            return TaskResultStatus.SUCCESSFUL
        case JobStatus.FAILED | JobStatus.CANCELLED | JobStatus.EXPIRED:
            return TaskResultStatus.FAILED
        case JobStatus.RUNNING if record.attempted_at_ms is not None:
            return TaskResultStatus.RUNNING
        case _:  # a worker may hold it that has not begun
            return TaskResultStatus.READY


def explained(status: JobStatus, record: Record) -> Record:
    """The record with the reason of an end that no run has noted."""
    kind = _ERROR_BY_STATUS.get(status)
    if kind is None:
        return record
    path = f"{kind.__module__}.{kind.__qualname__}"
    return record.failed(0, (path, f"{path}: the task was {status.value}\n"), record.finished_at_ms)


def task_of(known: Any, record: Record) -> Any:  # noqa: ANN401 - as above
    """The task with what that call had said of it."""
    return Task(
        func=known.func,
        priority=record.priority,
        backend=record.backend,
        queue_name=record.queue,
        run_after=moment(record.run_after_ms),
        takes_context=known.takes_context,
    )


def moment(at_ms: int | None) -> datetime | None:
    """An instant as the project's other times are: aware, or in local time without USE_TZ."""
    if at_ms is None:
        return None
    aware = datetime.fromtimestamp(at_ms / 1000, UTC)
    return aware if settings.USE_TZ else timezone.make_naive(aware)


def aware(at: datetime) -> datetime:
    """What a project without USE_TZ means by a time."""
    return at if timezone.is_aware(at) else timezone.make_aware(at)


def own_priority(priority: int) -> int:
    """From -100…100 to 0…9, in order; both times the highest is the most urgent."""
    return (priority + _MOST_URGENT) * HIGHEST_PRIORITY // (2 * _MOST_URGENT)
