"""Attachments: what `@app.schedule` and `@app.subscribe` put on a task beside its options."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar, overload

from mqworker.tasks.decorator import Registration, TaskHome
from mqworker.tasks.options import TaskOptions
from mqworker.tasks.task import AsyncTask, Task

P = ParamSpec("P")
R = TypeVar("R")
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
