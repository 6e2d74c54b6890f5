"""`@app.task` and `@task`: registers a function, bare or with options, and keeps its types.

A first parameter `ctx: Context` is filled in by the worker and vanishes from the type of calls. Elsewhere in
the signature it works too, but a type checker then wants it in calls unless it has a default. The same goes
for what is injected: `= Depends(...)` is such a default.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, overload

from mqworker.errors import ConfigurationError, InvalidArgument
from mqworker.model.batch import Batch
from mqworker.model.breaker import Breaker
from mqworker.model.fair import Fair
from mqworker.model.rate import Rate
from mqworker.model.retry_policy import Retry
from mqworker.model.running import MaxRunningOption
from mqworker.model.unique import Unique
from mqworker.tasks.batch_context import BatchContext
from mqworker.tasks.batch_task import AsyncBatchTask, BatchTask
from mqworker.tasks.celery_names import refuse_options
from mqworker.tasks.connections import Connections
from mqworker.tasks.context import Context
from mqworker.tasks.foreign_queues import check_task
from mqworker.tasks.hooks import Hooks
from mqworker.tasks.injection import Injection
from mqworker.tasks.options import DeliveryGuarantee, Seconds, TaskOptions, task_options
from mqworker.tasks.registry import Registry, TaskDefinition
from mqworker.tasks.rows import check_rows, names_for_keys, unknown_names
from mqworker.tasks.task import AsyncTask, Task

P = ParamSpec("P")
R = TypeVar("R")
A = TypeVar("A")


class TaskHome(Protocol):
    """What a task needs of its app."""

    @property
    def registry(self) -> Registry:
        """Where tasks are known by name."""

    @property
    def hooks(self) -> Hooks:
        """What runs around them."""

    @property
    def injection(self) -> Injection:
        """Who provides what they ask for."""

    @property
    def connections(self) -> Connections:
        """How they reach their queues."""


class Registration:
    """Turns functions into tasks with the options that were given."""

    def __init__(self, home: Callable[[], TaskHome], name: str | None, options: TaskOptions) -> None:
        self._home = home
        self._name = name
        self._options = options

    @overload
    def __call__(
        self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]]
    ) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]]) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], R]) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R]) -> Task[P, R]: ...
    # Any: the overloads say what comes out.
    def __call__(self, function: Callable[..., Any]) -> Task[..., Any]:
        """Register the function."""
        home, definition = self._define(function)
        kind = AsyncTask if definition.is_async else Task
        return kind(definition, home.connections, home.hooks)

    # Any: as above.
    def _define(self, function: Callable[..., Any]) -> tuple[TaskHome, TaskDefinition]:
        home = self._home()
        definition = TaskDefinition(self._name or name_of(function), function, self._options, home.injection)
        if self._options.batch is not None:
            check_rows(definition.name, function, definition.binding.own)
        elif definition.binding.takes_batch_context:
            raise ConfigurationError(
                f"{definition.name} takes a BatchContext and no batches; accepted is Context, or "
                "batch=Batch(...)"
            )
        _check_templates(definition)
        model = home.connections.models.get(definition.options.queue)
        if model is not None:
            check_task(definition.name, definition.options, model)
        _check_shared(definition, home.registry)
        home.registry.add(definition)
        return home, definition


class BatchRegistration(Registration):
    """The same for functions that take batches: a list in, a list or nothing out."""

    @overload  # type: ignore[override]
    def __call__(
        self, function: Callable[[BatchContext, list[A]], Coroutine[Any, Any, list[R]]]
    ) -> AsyncBatchTask[A, R]: ...
    @overload
    def __call__(
        self, function: Callable[[BatchContext, list[A]], Coroutine[Any, Any, None]]
    ) -> AsyncBatchTask[A, None]: ...
    @overload
    def __call__(
        self, function: Callable[[list[A]], Coroutine[Any, Any, list[R]]]
    ) -> AsyncBatchTask[A, R]: ...
    @overload
    def __call__(
        self, function: Callable[[list[A]], Coroutine[Any, Any, None]]
    ) -> AsyncBatchTask[A, None]: ...
    @overload
    def __call__(self, function: Callable[[BatchContext, list[A]], list[R]]) -> BatchTask[A, R]: ...
    @overload
    def __call__(self, function: Callable[[BatchContext, list[A]], None]) -> BatchTask[A, None]: ...
    @overload
    def __call__(self, function: Callable[[list[A]], list[R]]) -> BatchTask[A, R]: ...
    @overload
    def __call__(self, function: Callable[[list[A]], None]) -> BatchTask[A, None]: ...
    # Any: the overloads say what comes out.
    def __call__(self, function: Callable[..., Any]) -> Task[..., Any]:
        """Register the function."""
        home, definition = self._define(function)
        kind: type[Task[..., Any]] = AsyncBatchTask if definition.is_async else BatchTask
        return kind(definition, home.connections, home.hooks)


class TaskDecorator:
    """`@app.task` bare, or `@app.task(queue=..., ...)`."""

    def __init__(self, home: Callable[[], TaskHome]) -> None:
        self._home = home

    @overload
    def __call__(
        self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /
    ) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], R], /) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R]: ...
    @overload
    def __call__(
        self,
        *,
        batch: Batch,
        name: str | None = None,
        queue: str = ...,
        retry: Retry | int | None = None,
        timeout: Seconds | None = None,
        hard_timeout: Seconds | None = None,
        rate: Rate | str | Iterable[Rate] = ...,
        deadline: Seconds | None = None,
        delivery: DeliveryGuarantee = ...,
        unique: Unique | str | bool | None = None,
        priority: int = 0,
        result_ttl: Seconds | None = None,
        max_crashes: int | None = ...,
        max_losses: int | None = ...,
        fair_by: Fair | str | None = None,
        tags: Iterable[str] = (),
        max_running: MaxRunningOption | None = None,
        breaker: Breaker | None = None,
    ) -> BatchRegistration: ...
    @overload
    def __call__(
        self,
        *,
        name: str | None = None,
        queue: str = ...,
        retry: Retry | int | None = None,
        timeout: Seconds | None = None,
        hard_timeout: Seconds | None = None,
        rate: Rate | str | Iterable[Rate] = ...,
        deadline: Seconds | None = None,
        delivery: DeliveryGuarantee = ...,
        unique: Unique | str | bool | None = None,
        priority: int = 0,
        result_ttl: Seconds | None = None,
        max_crashes: int | None = ...,
        max_losses: int | None = ...,
        fair_by: Fair | str | None = None,
        tags: Iterable[str] = (),
        max_running: MaxRunningOption | None = None,
        breaker: Breaker | None = None,
    ) -> Registration: ...
    # Any: the overloads say what goes in and what comes out.
    def __call__(
        self,
        function: Callable[..., Any] | None = None,
        **options: Any,
    ) -> Task[..., Any] | Registration:
        """Register a function as a task; `task_options` explains the options."""
        name = options.pop("name", None)
        refuse_options(options, name)
        kind = Registration if options.get("batch") is None else BatchRegistration
        registration = kind(self._home, name, task_options(**options))
        return registration if function is None else registration(function)


def name_of(function: Callable[..., object]) -> str:
    """The name of a task that was given none: module and function, the same in producer and worker."""
    if not inspect.isfunction(function):
        raise ConfigurationError(
            f"the task is {function!r}, which has no name of its own; accepted are functions, and others "
            "with name=..., such as @app.task(name='shop.mail')"
        )
    if function.__name__ == "<lambda>":
        raise InvalidArgument(
            f"the task is a lambda in {function.__module__}, which has no name of its own; accepted are "
            "functions, and a lambda with name=..., such as app.task(name='shop.mail')(lambda: ...)"
        )
    module = function.__module__
    return (
        f"{_main_name() if module == '__main__' else module}.{function.__qualname__.replace('<locals>.', '')}"
    )


def _main_name() -> str:
    """By which name a worker would import the module that is being run as a script."""
    main = sys.modules["__main__"]
    if main.__spec__ is not None:
        return main.__spec__.name.removesuffix(".__main__")
    file = getattr(main, "__file__", None)
    return Path(file).stem if file else "__main__"


def _check_templates(definition: TaskDefinition) -> None:
    """Keys must name parameters: an error now is better than one at the first call."""
    templates = definition.options.limited_keys
    templates += [each.cost for each in definition.options.rates if each.cost is not None]
    unique = definition.options.unique
    if unique is not None and unique.key is not None:
        templates.append(unique.key)
    known: frozenset[str] | None = frozenset(definition.binding.parameters)
    told = f"its parameters {', '.join(definition.binding.parameters) or '(none)'}"
    if definition.options.batch is not None:
        known = names_for_keys(definition.function, definition.binding.own)
        told = f"its parameter and the fields of a row, {', '.join(sorted(known or ()))}"
    for template in templates:
        unknown = unknown_names(template, known)
        if unknown:
            raise ConfigurationError(
                f"{definition.name}: the key {template!r} names {', '.join(sorted(unknown))}; "
                f"accepted are {told}"
            )


def _check_shared(definition: TaskDefinition, registry: Registry) -> None:
    """A limit that several tasks share has one number."""
    own: dict[tuple[str | None, str | None], int] = {
        (each.name, each.key): each.count for each in definition.options.running if each.name is not None
    }
    for other in registry:
        for each in other.options.running:
            count = own.get((each.name, each.key), each.count)
            if count != each.count and other.name != definition.name:
                raise ConfigurationError(
                    f"max_running of the name {each.name} is {count} in {definition.name} and {each.count} "
                    f"in {other.name}; accepted is one number for one name"
                )


TaskT = TypeVar("TaskT", bound="Task[..., Any]")


class Attachment:
    """Attaches something to a task, or to a function, which becomes a task by that."""

    # Any: whatever the task takes and returns.
    def __init__(self, home: TaskHome, attach: Callable[[Task[..., Any]], object]) -> None:
        self._home = home
        self._attach = attach

    @overload
    def __call__(self, function: TaskT) -> TaskT: ...
    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]]) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R]) -> Task[P, R]: ...
    # Any: the overloads say what comes out.
    def __call__(self, function: Callable[..., Any]) -> Task[..., Any]:
        """Attach it; a plain function is registered as a task first."""
        if isinstance(function, Task):
            task: Task[..., Any] = function
        else:
            task = Registration(lambda: self._home, None, TaskOptions())(function)
        self._attach(task)
        return task
