"""What a task or a call wants of its queue, compared with what the queue's model offers. Pure.

Nothing is ignored silently: a wish that a model has no place for is refused by name, where the task or the
queue is declared if it can be known there, and with the call otherwise.
"""

from __future__ import annotations

from mqworker.errors import NotSupported
from mqworker.model.names import QueueName, TaskName
from mqworker.queues.catalogue import Model
from mqworker.tasks.options import AS_SET, CallPlan, TaskOptions, plan_of


def check_task(task: TaskName, options: TaskOptions, model: Model) -> None:
    """Refuse a task whose own options its queue cannot honour."""
    check_call(task, plan_of(options), options, model)
    for wish, is_wanted in (
        ("result_ttl", bool(options.result_ttl_ms)),
        ("max_crashes", options.max_crashes != AS_SET),
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
    ):
        if is_wanted and wish not in model.wishes:
            raise _refusal(task, wish, plan.queue, model)


def _refusal(task: TaskName, wish: str, queue: QueueName, model: Model) -> NotSupported:
    accepted = ", ".join(sorted(model.wishes))
    return NotSupported(
        f"{task}: {wish} has no place in queue {queue}, which is {model.title}; accepted there: {accepted}"
    )
