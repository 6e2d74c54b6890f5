"""The backend of Django's tasks: calls become messages of mqworker, results are read from its queues.

TASKS = {"default": {"BACKEND": "mqworker.contrib.django.backend.TaskBackend", "QUEUES": ["default", "mail"]}}
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any

from django.core import checks
from django.db import connections, transaction

from mqworker.contrib.django.project import discover_tasks, project_app, project_settings
from mqworker.contrib.django.records import MONTH_MS, Record
from mqworker.contrib.django.results import aware, explained, own_priority, result_of, status_of, task_of
from mqworker.contrib.django.running import Runs
from mqworker.contrib.django.tasks_api import (
    BaseTaskBackend,
    InvalidTask,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
    task_enqueued,
)
from mqworker.errors import ConfigurationError, InvalidArgument, ResultNotKept, ResultTimeout
from mqworker.model.names import MessageId, queue_name
from mqworker.tasks.ids import next_id
from mqworker.tasks.options import task_options
from mqworker.tasks.outcome import JobStatus

RESULT_TTL_S = 86_400
TASK_OPTIONS = {"retry", "timeout", "hard_timeout", "result_ttl", "max_crashes", "max_losses", "delivery"}
"""What OPTIONS may say of all tasks of a backend, as `@app.task` has it."""


class TaskBackend(BaseTaskBackend):
    """Django's tasks on mqworker; stored when the transaction commits, unless ENQUEUE_ON_COMMIT is False."""

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    # Any here and below: classes of Django, which has no types, and values of users.
    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        """`params` are what TASKS says of this alias."""
        super().__init__(alias, params)
        self.enqueue_on_commit = bool(params.get("ENQUEUE_ON_COMMIT", True))
        self.database = str(self.options.get("database", "default"))
        # Not tried again unless somebody says so: to Django a task that raised has failed.
        given = {name: value for name, value in self.options.items() if name in TASK_OPTIONS}
        self.task_options = {"retry": 0, "result_ttl": RESULT_TTL_S} | given

    def validate_task(self, task: Any) -> None:  # noqa: ANN401
        """Raise `InvalidTask` for one that cannot run here. One that can is known from then on."""
        super().validate_task(task)
        try:
            queue_name(task.queue_name)
            if task.module_path not in _runs().tasks:
                _runs().register(task, self.task_options)
        except (InvalidArgument, ConfigurationError) as error:
            raise InvalidTask(str(error)) from error

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:  # noqa: ANN401
        """Store the call, now or when the transaction commits; the result says READY either way."""
        self.validate_task(task)
        result = TaskResult(
            task=task,
            id=next_id(),
            status=TaskResultStatus.READY,
            enqueued_at=None,
            started_at=None,
            finished_at=None,
            last_attempted_at=None,
            args=args,
            kwargs=kwargs,
            backend=self.alias,
            errors=[],
            worker_ids=[],
        )
        if self.enqueue_on_commit and _has_transaction(self.database):
            transaction.on_commit(partial(self._send, result), using=self.database)
        else:
            self._send(result)
        return result

    def get_result(self, result_id: str) -> Any:  # noqa: ANN401
        """The result of this id; raises `TaskResultDoesNotExist`."""
        found = _runs().records.load(str(result_id))
        if found is None or found[1].backend != self.alias:
            raise TaskResultDoesNotExist(result_id)
        message, record = found
        status = project_app().job(message, record.queue).status()
        if status is JobStatus.UNKNOWN:
            raise TaskResultDoesNotExist(result_id)
        if record.finished_at_ms is None:  # the run may have noted its end before the second look
            found = _runs().records.load(message)
            record = record if found is None else found[1]
        task = self._known_task(result_id, record)
        value = self._value(message, record) if status is JobStatus.SUCCEEDED else None
        return result_of(task, message, explained(status, record), status_of(status, record), value)

    def check(self, **_kwargs: object) -> list[Any]:
        """What `manage.py check` says of the settings."""
        found: list[Any] = []
        unknown = sorted(set(self.options) - TASK_OPTIONS - {"database"})
        if unknown:
            accepted = ", ".join(sorted({*TASK_OPTIONS, "database"}))
            found.append(self._error("E001", f"OPTIONS has {', '.join(unknown)}; accepted are {accepted}"))
        try:
            task_options(**self.task_options)
            for name in self.queues:
                queue_name(name)
        except (InvalidArgument, TypeError) as error:
            found.append(self._error("E002", str(error)))
        if self.database not in connections.settings:
            found.append(
                self._error("E003", f"OPTIONS has database {self.database!r}, which DATABASES has not")
            )
        try:
            redis_url = project_settings().redis_url
        except ConfigurationError as error:
            return [*found, self._error("E004", str(error))]
        if redis_url is None:
            text = "no Redis is configured: every directory has an embedded server of its own"
            hint = 'For more than development set MQWORKER = {"REDIS_URL": …} or MQWORKER_REDIS_URL.'
            found.append(checks.Warning(f"TASKS[{self.alias!r}]: {text}", hint=hint, id="mqworker.W001"))
        return found

    def _send(self, result: Any) -> None:  # noqa: ANN401
        task, app = result.task, project_app()
        due = None if task.run_after is None else aware(task.run_after)
        record = Record(
            task.module_path,
            self.alias,
            task.queue_name,
            task.priority,
            None if due is None else round(due.timestamp() * 1000),
            result.args,
            result.kwargs,
            app.clock.now_ms(),
        )
        wait_ms = 0 if record.run_after_ms is None else max(0, record.run_after_ms - record.enqueued_at_ms)
        # The record first: a worker may begin before the message's answer is here. One without its message is
        # not found by anybody.
        _runs().records.save(result.id, record, ttl_ms=wait_ms + MONTH_MS)
        # Known by its id: a call that is repeated because nobody answered is stored once.
        call = app.named(task.module_path).using(
            id=result.id, queue=task.queue_name, priority=own_priority(int(task.priority)), delay=due
        )
        call.enqueue(*result.args, **result.kwargs)
        sent = result_of(task, result.id, record, TaskResultStatus.READY)
        object.__setattr__(result, "enqueued_at", sent.enqueued_at)
        task_enqueued.send_robust(sender=type(self), task_result=result)

    def _known_task(self, result_id: str, record: Record) -> Any:  # noqa: ANN401
        """Never imported by the name in a record: it is among the project's tasks, or it is not known."""
        tasks = _runs().tasks
        if record.task not in tasks:
            discover_tasks()
        if record.task not in tasks:
            raise TaskResultDoesNotExist(f"{result_id}: its task {record.task} is not in this project")
        try:
            return task_of(tasks[record.task], record)
        except InvalidTask:  # its queue is no longer among those of the backend
            return tasks[record.task]

    def _value(self, message: MessageId, record: Record) -> Any:  # noqa: ANN401
        try:
            return project_app().job(message, record.queue).result(timeout=0)
        except (ResultNotKept, ResultTimeout) as error:
            raise TaskResultDoesNotExist(message) from error

    def _error(self, number: str, text: str) -> Any:  # noqa: ANN401
        return checks.Error(f"TASKS[{self.alias!r}]: {text}", id=f"mqworker.{number}")


@cache
def _runs() -> Runs:
    """Of this process: Django makes a backend for each thread."""
    return Runs(project_app(), TaskBackend)


def _has_transaction(database: str) -> bool:
    """Whether what is done now may still be rolled back; looks, and opens no connection."""
    connection = connections[database]
    has_manual_one = connection.connection is not None and not connection.autocommit
    return bool(connection.in_atomic_block or has_manual_one)
