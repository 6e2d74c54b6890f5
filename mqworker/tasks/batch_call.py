"""A call of a task that takes batches, as its producer makes it: with whose calls it runs together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mqworker.errors import InvalidArgument
from mqworker.tasks.batch_context import BatchContext, local_batch_context
from mqworker.tasks.context import Context, current_context, local_context
from mqworker.tasks.options import CallPlan
from mqworker.tasks.registry import TaskDefinition


# Any: the user's own values.
def batch_key_of(
    task: TaskDefinition, plan: CallPlan, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> str | None:
    """The key of a call, None where its task has none. Raises `InvalidArgument` for what is not its own."""
    if plan.extra is not None and plan.extra.timeout_ms is not None:
        raise InvalidArgument(
            f"{task.name} takes batches and a call has a timeout; accepted is the timeout of the task, "
            "which is that of a whole batch"
        )
    batch = task.options.batch
    if batch is None or batch.by is None:
        return None
    return batch.key_of(task.arguments_for_keys(args, kwargs))


def context_of_call(task: TaskDefinition, args: Sequence[Any]) -> Context:
    """What a task sees that is called like a function: the context around it, or one of nobody."""
    context, state = current_context(), task.injection.state
    if task.options.batch is None:
        return context or local_context(task.name, state)
    if isinstance(context, BatchContext):
        return context
    return local_batch_context(task.name, len(args[0]) if args else 0, state)
