"""Names that people know from Celery and that are another thing here: each with what it is here.

Options of a task, attributes of an app, a task and a context, keywords of a call. `mqworker migrate celery`
goes by the same tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NoReturn

from mqworker.errors import ConfigurationError, InvalidArgument

OPTIONS: Mapping[str, str] = {
    "bind": "a parameter `ctx: Context` in place of `self`",
    "autoretry_for": "retry=Retry(on=(ConnectionError,))",
    "dont_autoretry_for": "retry=Retry(never=(ValueError,))",
    "max_retries": "retry=Retry(max=5)",
    "default_retry_delay": "retry=Retry(first=180, backoff=1)",
    "retry_backoff": "retry=Retry(first=1, backoff=2)",
    "retry_backoff_max": "retry=Retry(cap=600)",
    "retry_jitter": "retry=Retry(jitter=0.2)",
    "retry_kwargs": "retry=Retry(max=..., first=...)",
    "rate_limit": 'rate="10/m", which holds over all nodes',
    "acks_late": 'nothing: a task is acknowledged after it ran; delivery="at_most_once" for before',
    "acks_on_failure_or_timeout": "nothing: what fails is tried again, and then kept as a dead letter",
    "reject_on_worker_lost": "nothing: what a dead worker held runs again",
    "ignore_result": "result_ttl=0",
    "store_errors_even_if_ignored": "nothing: errors are kept as dead letters",
    "time_limit": "hard_timeout=60",
    "soft_time_limit": "timeout=60",
    "expires": "deadline=3600",
    "track_started": "nothing: `job.status()` tells what runs",
    "throws": "retry=Retry(never=(KeyError,))",
    "serializer": "nothing: arguments are msgpack, with dates, Decimal, UUID and sets; never pickle",
    "compression": "nothing: large arguments can be kept elsewhere, App(offload=...)",
    "base": "@app.middleware, hooks and `Depends`, in place of a class of tasks",
    "pydantic": "nothing: annotate the parameter with the model",
    "typing": "nothing: calls are always checked against the function",
    "routing_key": 'queue="mail"',
    "exchange": 'queue="mail"',
    "shared": "nothing: tasks belong to one App",
    "lazy": "nothing: tasks are registered at once",
    "trail": "nothing: a workflow knows its members",
    "send_events": "nothing: events are always written, mqworker.events reads them",
    "resultrepr_maxsize": "nothing: results are not logged",
}

OF_APP: Mapping[str, str] = {
    "conf": "settings: MQWORKER_* variables, [tool.mqworker] in pyproject.toml, or App(settings=...)",
    "config_from_object": "settings: MQWORKER_* variables or [tool.mqworker] in pyproject.toml",
    "autodiscover_tasks": "imports of the modules with tasks; mqworker.contrib.django finds tasks.py",
    "signature": "app.named(name).s(...)",
    "subtask": "app.named(name).s(...)",
    "AsyncResult": "app.job(id), and app.job(id, queue)",
    "GroupResult": "app.workflow(id)",
    "Task": "@app.middleware, hooks and `Depends`, in place of a class of tasks",
    "control": "mqworker status, mqworker job cancel, mqworker queue pause",
    "events": "mqworker.events",
    "add_periodic_task": '@app.schedule("*/5 * * * *")',
    "on_after_configure": '@app.schedule("*/5 * * * *")',
    "start": "mqworker run shop:app",
    "worker_main": "mqworker run shop:app",
    "tasks": "app.registry",
    "backend": "app.job(id), for one result",
    "set_default": "nothing: an app is named where it is used",
    "finalize": "nothing: tasks are registered at once",
}

OF_TASK: Mapping[str, str] = {
    "retry": "raise Retry(in_=60)",
    "request": "a parameter `ctx: Context`: ctx.id, ctx.attempt, ctx.failures, ctx.headers, ctx.queue",
    "apply": "a plain call runs it here: task(...)",
    "run": "a plain call runs it here: task(...)",
    "signature": "task.s(...)",
    "subtask": "task.s(...)",
    "update_state": "ctx.progress(done, total)",
    "AsyncResult": "app.job(id), and app.job(id, queue)",
    "chunks": "task.enqueue_many([...])",
    "starmap": "task.enqueue_many([...])",
    "replace": "enqueue the other task, and return its id",
    "max_retries": "task.definition.options.retry.max",
    "backend": "app.job(id)",
    "rate_limit": "task.definition.options.rates",
}

OF_CALL: Mapping[str, str] = {
    "link": "chain(task.s(...), other.s())",
    "link_error": "a hook, @app.hooks.on_failure, or other.s() behind the call in a workflow",
    "serializer": OPTIONS["serializer"],
    "compression": OPTIONS["compression"],
    "routing_key": 'queue="mail"',
    "exchange": 'queue="mail"',
    "soft_time_limit": "task.using(timeout=60).enqueue(...)",
    "time_limit": "task.using(timeout=60).enqueue(...), and hard_timeout of the task",
    "retry": "nothing: storing a call is tried again by itself",
    "retry_policy": "nothing: storing a call is tried again by itself",
    "ignore_result": "result_ttl=0 of the task",
    "shadow": "task.using(tags=[...]).enqueue(...)",
    "connection": "nothing: the app has its connections",
    "producer": "app.producer(), for batches",
    "add_to_parent": "nothing: a workflow knows its members",
    "reply_to": "nothing: results are read by `job.result()`",
    "root_id": "headers of the call",
    "parent_id": "headers of the call",
    "group_id": "group(...)",
    "chord": "chord([...], ...)",
}

OF_MODULE: Mapping[str, str] = {
    "Celery": "App",
    "shared_task": "task, of the default app, or @app.task",
    "signature": "task.s(...)",
    "subtask": "task.s(...)",
    "crontab": '@app.schedule("0 3 * * *")',
    "AsyncResult": "app.job(id)",
    "xmap": "task.map([...])",
    "chunks": "task.enqueue_many([...])",
}


def refuse_options(options: Mapping[str, object], task_name: object = None) -> None:
    """Raise `ConfigurationError` for the first option that is Celery's."""
    for name in options:
        if name in OPTIONS:
            where = f"task {task_name}: " if task_name else ""
            raise ConfigurationError(f"{where}{_sentence(name, OPTIONS[name])}")


def check_call(countdown: object, eta: object, others: Mapping[str, object]) -> None:
    """Raise for keywords of `apply_async` that exclude one another, and for those that are not here."""
    if countdown is not None and eta is not None:
        raise InvalidArgument("countdown and eta are both given; accepted is one of them")
    for name in others:
        if name in OF_CALL:
            raise InvalidArgument(_sentence(name, OF_CALL[name]))
        raise TypeError(f"apply_async() got an unexpected keyword argument {name!r}")


class NamesOfCelery:
    """Explains missing attributes that Celery has. Type checkers see nothing of it."""

    __slots__ = ()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            """Only what is not there comes here."""
            kind = type(self).__name__
            ours = _OURS_BY_CLASS.get(kind, OF_TASK).get(name)
            if ours is None:
                raise AttributeError(f"{kind!r} object has no attribute {name!r}", name=name, obj=self)
            raise AttributeError(_sentence(f"{kind}.{name}", ours), name=name, obj=self)


_OURS_BY_CLASS = {"App": OF_APP, "Context": {**OF_TASK, **OF_APP}}


def explain_import(name: str) -> None:
    """Raise `ImportError` where a name of Celery is imported from here."""
    if OF_MODULE.get(name):
        raise ImportError(_sentence(name, OF_MODULE[name]), name="mqworker")


def _sentence(name: str, ours: str) -> str:
    told = ours.replace("nothing: ", "not needed: ", 1) if ours.startswith("nothing: ") else ours
    return f"{name} is a name of Celery; here it is {told}"
