"""A task called like the function that it is, where something is injected: opened for the call alone.

What the caller gives by name is taken as it is, so that a test can hand over a double.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mqworker.tasks.context import Context
from mqworker.tasks.registry import TaskDefinition
from mqworker.tasks.running.loop_thread import OwnLoop
from mqworker.tasks.running.resources import WorkerResources
from mqworker.tasks.running.run_scope import RunScope


# Any: the user's own values.
def call_here(task: TaskDefinition, args: Sequence[Any], kwargs: Mapping[str, Any], context: Context) -> Any:  # noqa: ANN401 - see above
    """What the function returns; for a coroutine function, the coroutine."""
    positional = [value for value in args if not isinstance(value, Context)]
    named = {name: value for name, value in kwargs.items() if not isinstance(value, Context)}
    given = {name: named.pop(name) for name in task.dependencies if name in named}
    run = _acall if task.is_async else _call
    return run(task, positional, named, given, context)


def _call(
    task: TaskDefinition, args: list[Any], kwargs: dict[str, Any], given: dict[str, Any], context: Context
) -> Any:  # noqa: ANN401 - see above
    loop = OwnLoop()
    worker = WorkerResources(task.injection, loop)
    scope = RunScope(worker, context)
    try:
        values = {
            name: given[name] if name in given else scope.resolve(dependency)
            for name, dependency in task.dependencies.items()
        }
        task.binding.fill_in(args, kwargs, context, values)
        result = task.function(*args, **kwargs)
    except BaseException as error:
        scope.close(None, error)
        raise
    else:
        scope.close(result, None)
        return result
    finally:
        worker.close()
        loop.close()


async def _acall(
    task: TaskDefinition, args: list[Any], kwargs: dict[str, Any], given: dict[str, Any], context: Context
) -> Any:  # noqa: ANN401 - see above
    worker = WorkerResources(task.injection)
    scope = RunScope(worker, context)
    try:
        values = {
            name: given[name] if name in given else await scope.aresolve(dependency)
            for name, dependency in task.dependencies.items()
        }
        task.binding.fill_in(args, kwargs, context, values)
        result = await task.function(*args, **kwargs)
    except BaseException as error:
        await scope.aclose(None, error)
        raise
    else:
        await scope.aclose(result, None)
        return result
    finally:
        await worker.aclose()
