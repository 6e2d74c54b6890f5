"""Signature: a call that was not made yet, as a value. Workflows are put together from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from mqworker.errors import InvalidArgument
from mqworker.model.assembled_call import Origin
from mqworker.model.call_template import CallTemplate
from mqworker.model.envelope import CallOptions
from mqworker.model.names import MessageId, TaskName
from mqworker.model.rate import argument_names
from mqworker.model.workflow_graph import Leaf, Part
from mqworker.tasks.options import CallPlan

if TYPE_CHECKING:  # tasks make signatures, signatures make workflows: at run time only in this direction
    from mqworker.tasks.task import Task
    from mqworker.tasks.workflows.workflow import Workflow

R_co = TypeVar("R_co", covariant=True)
NextT = TypeVar("NextT")


class Step(Generic[R_co]):
    """What workflows are put together from: a call, or a workflow."""

    __slots__ = ()

    def as_part(self) -> Part[Signature[Any]]:
        """The step as a part of a graph."""
        raise NotImplementedError

    def __or__(self, following: Step[NextT]) -> Workflow[NextT]:
        """`first | second`: the outcome of the first is the first argument of the second."""
        from mqworker.tasks.workflows.workflow import chain  # noqa: PLC0415 - see above

        return chain(self, following)


@dataclass(frozen=True, slots=True)
class Signature(Step[R_co]):
    """A task with its arguments, and where and when it is to run."""

    # Any: the user's own values, which were checked against the task where the signature was made.
    call: Task[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    is_immutable: bool = False
    """Whether it takes no input: `.si(...)`."""

    @property
    def task(self) -> TaskName:
        """The name of the task."""
        return self.call.name

    @property
    def plan(self) -> CallPlan:
        """Where and when it is to run."""
        return self.call.plan

    def as_part(self) -> Part[Signature[Any]]:
        """One call of a graph."""
        return Leaf(self, takes_input=not self.is_immutable)

    def template(
        self,
        workflow: MessageId,
        *,
        has_input: bool,
        headers: Mapping[str, str] | None = None,
        origin: Origin | None = None,
    ) -> CallTemplate:
        """The call as it is kept until it is made; raises `InvalidArgument` where it cannot be a member."""
        task, plan = self.call, self.plan
        self._refuse_what_workflows_lack(has_input=has_input)
        extra = replace(plan.extra or CallOptions(), workflow=workflow)
        # None holds the place of the input, which is not there yet.
        args = (None, *self.args) if has_input else self.args
        sender = task.connections.sender(plan.queue)
        planned = task.planned(replace(plan, extra=extra))
        message = planned.wrapped_message(args, self.kwargs, sender, headers, origin=origin)
        return CallTemplate(plan.queue, message)

    def _refuse_what_workflows_lack(self, *, has_input: bool) -> None:
        plan, definition = self.plan, self.call.definition
        if plan.id is not None or plan.unique is not None:
            raise InvalidArgument(
                f"{self.task} in a workflow: the workflow chooses ids, and unique does not apply; "
                "accepted is a call without both, such as task.using(unique=False).s()"
            )
        if definition.options.delivery == "at_most_once":
            raise InvalidArgument(
                f"{self.task} in a workflow: delivery is at_most_once, so its end may stay unknown; accepted "
                "are at_least_once tasks"
            )
        keys = definition.options.limited_keys
        first = definition.binding.parameters[:1]
        is_row = definition.options.batch is not None  # of which any key is made
        if has_input and any(is_row or first[0] in argument_names(key) for key in keys if first):
            raise InvalidArgument(
                f"{self.task} in a workflow: its rate, share or batch goes by {first[0]!r}, "
                "which is its input, not known yet"
            )
