"""Runs of Django's tasks in a worker: records, signals, the context, and connections to databases.

A task is registered with the app by a function that stands for it. Whatever happens beside the task (a
receiver of a signal that raises, a record that cannot be stored) is logged and does not change its outcome.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import random
import socket
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from asgiref.sync import sync_to_async

from mqworker.contrib.django.database import close_stale_connections
from mqworker.contrib.django.records import MONTH_MS, Record, Records
from mqworker.contrib.django.results import result_of, task_of
from mqworker.contrib.django.tasks_api import (
    InvalidTask,
    TaskContext,
    TaskResultStatus,
    normalize_json,
    task_finished,
    task_started,
)
from mqworker.errors import LeaseLost, MqworkerError, RateLimited, TaskCancelled, TaskFailed
from mqworker.log import get_logger
from mqworker.model.retry_policy import GiveUp, decide
from mqworker.tasks.app import App
from mqworker.tasks.context import Context, current_context

LONGEST_TRACEBACK = 16_000
GRACE_MS = 60_000
"""A record outlives the result that it belongs to."""
_NO_FAILURE = (TaskCancelled, RateLimited, LeaseLost, asyncio.CancelledError)
"""What ends a run without a failure of its task."""


class Runs:
    """The runs of all Django tasks of an app."""

    # Any here and below: classes of Django, which has no types, and values of users.
    def __init__(self, app: App, sender: type[Any]) -> None:
        """`sender` is what receivers of signals are told: the class of the backend."""
        self._app = app
        self._sender = sender
        self.records = Records(app)
        self.tasks: dict[str, Any] = {}
        """Django's tasks by their paths."""
        self._chance = random.SystemRandom()
        self._log = get_logger(part="django")
        app.hooks.on_start(_look_after_connections)
        app.hooks.on_success(_look_after_connections)
        app.hooks.on_retry(_look_after_connections)
        app.hooks.on_failure(self._note_given_up)

    def register(self, task: Any, options: dict[str, Any]) -> None:  # noqa: ANN401
        """Make a task of Django's one of the app's, under its path."""
        name = task.module_path
        stand_in = (
            self._async_stand_in(name) if inspect.iscoroutinefunction(task.func) else self._stand_in(name)
        )
        for attribute in ("__module__", "__name__", "__qualname__", "__doc__"):
            setattr(stand_in, attribute, getattr(task.func, attribute))
        self.tasks[name] = task
        self._app.task(name=name, queue=task.queue_name, **options)(stand_in)

    def _stand_in(self, name: str) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            attempt = self._begin(name, args, kwargs)
            try:
                value = normalize_json(attempt.task.func(*attempt.context(), *args, **kwargs))
            except BaseException as error:
                attempt.fail(error)
                raise
            attempt.succeed(value)
            return value

        return run

    def _async_stand_in(self, name: str) -> Callable[..., Any]:
        async def run(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            # Records, receivers and connections belong to the thread in which the ORM works.
            await sync_to_async(close_stale_connections)()
            attempt = await sync_to_async(self._begin)(name, args, kwargs)
            try:
                value = normalize_json(await attempt.task.func(*attempt.context(), *args, **kwargs))
            except asyncio.CancelledError:
                raise  # what that means is decided outside
            except BaseException as error:
                await sync_to_async(attempt.fail)(error)
                raise
            else:
                await sync_to_async(attempt.succeed)(value)
                return value
            finally:
                with suppress(asyncio.CancelledError):
                    await asyncio.shield(sync_to_async(close_stale_connections)())

        return run

    def _begin(self, name: str, args: Any, kwargs: Any) -> Attempt:  # noqa: ANN401
        context, task = current_context(), self.tasks[name]
        if context is None:  # called here, by hand
            raise InvalidTask(
                f"{name} is a task of Django's; accepted is {name}.call(...) outside of a worker"
            )
        record = self._loaded(context)
        if record is None:  # it waited for longer than its record was kept
            record = Record(
                name,
                task.backend,
                context.queue,
                task.priority,
                None,
                list(args),
                dict(kwargs),
                context.enqueued_at_ms,
            )
        attempt = Attempt(self, task, context, record.begun(_worker_id(), self.now_ms()))
        attempt.save(MONTH_MS)
        self.tell(task_started, attempt.result(TaskResultStatus.RUNNING))
        return attempt

    def now_ms(self) -> int:
        """The time."""
        return self._app.clock.now_ms()

    def is_last_try(self, name: str, failures: int, error: BaseException) -> bool:
        """Whether the task is given up after this error."""
        definition = self._app.registry.named(name)
        return isinstance(decide(definition.options.retry, failures, error, self._chance), GiveUp)

    def result_ttl_ms(self, name: str) -> int:
        """How long a result of the task is kept."""
        return self._app.registry.result_ttl_ms(self._app.registry.named(name).name)

    def keep(self, context: Context, record: Record, ttl_ms: int) -> None:
        """Store a record; what is in the way of that is logged."""
        try:
            self.records.save(context.id, record, ttl_ms=ttl_ms)
        except MqworkerError as error:
            self._log.warning("django_record_not_stored", task_id=context.id, problem=str(error))

    def tell(self, signal: Any, result: Any) -> None:  # noqa: ANN401
        """Send a signal; Django logs what its receivers raise."""
        signal.send_robust(sender=self._sender, task_result=result)

    def _loaded(self, context: Context) -> Record | None:
        try:
            found = self.records.load(context.id)
        except MqworkerError as error:
            self._log.warning("django_record_not_read", task_id=context.id, problem=str(error))
            return None
        return None if found is None else found[1]

    def _note_given_up(self, context: Context, error: BaseException) -> None:
        """A message was given up: by its run, which has noted it, or because its worker died."""
        _look_after_connections()
        task = self.tasks.get(context.task)
        record = None if task is None else self._loaded(context)
        if task is None or record is None or record.failed_attempt == context.attempt:
            return
        Attempt(self, task, context, record).end_failed(error)


class Attempt:
    """One run of one call, and what is noted of it."""

    def __init__(self, runs: Runs, task: Any, context: Context, record: Record) -> None:  # noqa: ANN401
        self._runs = runs
        self._context = context
        self._record = record
        self.task = task

    def context(self) -> tuple[Any, ...]:
        """What the task is given in front of its arguments."""
        if not self.task.takes_context:
            return ()
        return (TaskContext(task_result=self.result(TaskResultStatus.RUNNING)),)

    def result(self, status: Any, value: object = None) -> Any:  # noqa: ANN401
        """The result as it is now."""
        try:
            task = task_of(self.task, self._record)
        except InvalidTask:  # its queue is no longer among those of the backend
            task = self.task
        return result_of(task, self._context.id, self._record, status, value)

    def save(self, ttl_ms: int) -> None:
        """Store what is known."""
        self._runs.keep(self._context, self._record, ttl_ms)

    def succeed(self, value: object) -> None:
        """The task returned."""
        self._record = self._record.succeeded(self._runs.now_ms())
        self.save(self._runs.result_ttl_ms(self.task.module_path) + GRACE_MS)
        self._runs.tell(task_finished, self.result(TaskResultStatus.SUCCESSFUL, value))

    def fail(self, error: BaseException) -> None:
        """The task raised; it may be tried again."""
        if isinstance(error, _NO_FAILURE):
            return
        if self._runs.is_last_try(self.task.module_path, self._context.failures, error):
            self.end_failed(error)
            return
        self._record = self._record.failed(self._context.attempt, _told(error), None)
        self.save(MONTH_MS)

    def end_failed(self, error: BaseException) -> None:
        """The task failed for good."""
        self._record = self._record.failed(self._context.attempt, _told(error), self._runs.now_ms())
        self.save(MONTH_MS)
        self._runs.tell(task_finished, self.result(TaskResultStatus.FAILED))


def _told(error: BaseException) -> tuple[str, str]:
    """The error as Django stores it: the path of its class, and the traceback."""
    kind = type(error)
    trace = error.traceback if isinstance(error, TaskFailed) else ""
    try:
        trace = trace or "".join(traceback.format_exception(error))
    except Exception:  # noqa: BLE001 - code of the error's class; the failure must be told in any case
        trace = "".join(traceback.format_tb(error.__traceback__))
    return f"{kind.__module__}.{kind.__qualname__}", trace[-LONGEST_TRACEBACK:]


def _worker_id() -> str:
    return f"{socket.gethostname()[:40]}:{os.getpid()}"


def _look_after_connections(*_about: object) -> None:
    """Before and after each task that runs in a thread; those of async tasks are in another one."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        close_stale_connections()
