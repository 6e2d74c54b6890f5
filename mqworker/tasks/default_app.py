"""The default app: for scripts that have just one, behind the module-level `@task`. Made at first use."""

from __future__ import annotations

from functools import cache

from mqworker.tasks.app import App
from mqworker.tasks.decorator import TaskDecorator


@cache
def default_app() -> App:
    """The app of all tasks that were decorated with the module-level `@task`."""
    return App("default")


task = TaskDecorator(default_app)
