"""Signature: a call that was not made yet, as a value. Workflows are put together from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypedDict, TypeVar, Unpack

from mqworker.errors import InvalidArgument
from mqworker.model.assembled_call import Origin
from mqworker.model.call_template import CallTemplate
from mqworker.model.envelope import CallOptions
from mqworker.model.names import MessageId, TaskName
from mqworker.model.rate import argument_names
from mqworker.model.workflow_graph import Leaf, Part
from mqworker.tasks.options import CallPlan, Seconds

if TYPE_CHECKING:  # tasks make signatures, signatures make workflows: at run time only in this direction
    from mqworker.tasks.task import Task
    from mqworker.tasks.workflows.workflow import Workflow


class SetOptions(TypedDict, total=False):
    """Options of `task.using` that make sense for a call of a workflow."""

    delay: Seconds | datetime
    deadline: Seconds | datetime
    priority: int
    queue: str
    headers: Mapping[str, str]
    timeout: Seconds
    tags: Iterable[str]


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

    def link(self, *callbacks: Step[Any]) -> Workflow[R_co]:
        """With calls that follow from its result; the outcome stays its own."""
        return self._branched(links=callbacks)

    def on_error(self, *callbacks: Step[Any]) -> Workflow[R_co]:
        """With calls that are made once if it is given up; they get the failure, a `MemberFailure`.

        The workflow has failed all the same. Of a workflow it is any failure in it; the calls are made when
        all of it has ended.
        """
        return self._branched(on_error=callbacks)

    def link_error(self, *callbacks: Step[Any]) -> Workflow[R_co]:
        """`on_error` by the name that Celery has for it."""
        return self.on_error(*callbacks)

    def _branched(
        self, *, links: tuple[Step[Any], ...] = (), on_error: tuple[Step[Any], ...] = ()
    ) -> Workflow[R_co]:
        from mqworker.tasks.workflows.workflow import branched  # noqa: PLC0415 - see above

        return branched(self, links, on_error)


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

    def set(
        self,
        *,
        countdown: Seconds | datetime | None = None,
        eta: datetime | None = None,
        expires: Seconds | datetime | None = None,
        immutable: bool | None = None,
        **options: Unpack[SetOptions],
    ) -> Signature[R_co]:
        """The same call with other options, those of `task.using(...)` or by their names in Celery.

        Celery changes the signature in its place; here it is a value, and `set` gives another one.
        """
        for name, celery, value in (
            ("delay", "countdown", countdown),
            ("delay", "eta", eta),
            ("deadline", "expires", expires),
        ):
            if value is not None and options.get(name) is not None:
                raise InvalidArgument(f"{name} and {celery} are both given; accepted is one of them")
            if value is not None:
                options[name] = value  # type: ignore[literal-required] # one of the two above
        is_immutable = self.is_immutable if immutable is None else immutable
        return replace(self, call=self.call.using(**options), is_immutable=is_immutable)

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
        inputs: int,
        headers: Mapping[str, str] | None = None,
        origin: Origin | None = None,
    ) -> CallTemplate:
        """The call as it is kept until it is made, with so many arguments to come before its own.

        Raises `InvalidArgument` where it cannot be a member.
        """
        task, plan = self.call, self.plan
        self._refuse_what_workflows_lack(inputs)
        extra = replace(plan.extra or CallOptions(), workflow=workflow)
        # None holds the place of each input, which is not there yet.
        args = (*[None] * inputs, *self.args)
        sender = task.connections.sender(plan.queue)
        planned = task.planned(replace(plan, extra=extra))
        message = planned.wrapped_message(args, self.kwargs, sender, headers, origin=origin)
        return CallTemplate(plan.queue, message)

    def _refuse_what_workflows_lack(self, inputs: int) -> None:
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
        is_row = definition.options.batch is not None  # of which any key is made
        for name in definition.binding.parameters[:inputs]:
            if any(is_row or name in argument_names(key) for key in keys):
                raise InvalidArgument(
                    f"{self.task} in a workflow: its rate, share or batch goes by {name!r}, which is its "
                    "input, not known yet"
                )
