"""StepGraph: a workflow of any shape. Each step names those that it follows from.

whole = graph()
a, b = whole.step(fetch.s(1)), whole.step(fetch.s(2))
whole.step(merge.s(), after=(a, b))      # merge(result of a, result of b)
job = whole.enqueue()
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Iterable, Iterator
from typing import Any, Generic, TypeVar, assert_never

from mqworker.errors import InvalidArgument
from mqworker.model.names import shown
from mqworker.model.workflow_graph import Branched, Leaf, Parallel, Part, Series, Vertex, Vertices
from mqworker.tasks.options import Seconds
from mqworker.tasks.signature import Signature, Step
from mqworker.tasks.workflows.job import WorkflowJob
from mqworker.tasks.workflows.workflow import DAY_S, Workflow, branched

R = TypeVar("R")


class GraphStep(Generic[R]):
    """One step of a graph: a call, or a whole workflow."""

    def __init__(self, owner: StepGraph, place: int, step: Step[R]) -> None:
        """Made by `graph.step(...)`."""
        self._owner = owner
        self.place = place
        """Its number, in the order in which steps were added."""
        self.step = step
        self.predecessors: list[GraphStep[Any]] = []

    def after(self, *steps: GraphStep[Any]) -> GraphStep[R]:
        """Let it follow from these too; their results are its first arguments, in this order."""
        for each in steps:
            self._owner.refuse_stranger(each)
            if each is self or each in self.predecessors:
                why = "itself" if each is self else "twice"
                raise InvalidArgument(
                    f"{self} follows from {each} {why}; accepted are other steps of its graph, each once"
                )
            self.predecessors.append(each)
        return self

    def on_error(self, *callbacks: Step[Any]) -> GraphStep[R]:
        """Let these calls be made once if it is given up; they get the failure, a `MemberFailure`."""
        self.step = branched(self.step, (), callbacks)
        return self

    def __str__(self) -> str:
        """Place and tasks, for errors."""
        names = list(dict.fromkeys(call.task for call in _calls(self.step.as_part())))
        return f"step {self.place} ({', '.join(names[:3])}{', …' if len(names) > 3 else ''})"  # noqa: PLR2004

    def __repr__(self) -> str:
        """The same."""
        return f"<{self}>"


class StepGraph(Step[Any]):
    """Steps, and which follows from which. Its result is that of the step from which none follows.

    Of several it is the list of theirs, in the order in which they were added. A failure leaves out the
    steps that follow from it; all others go on, and then the workflow has failed.
    """

    __slots__ = ("_steps",)

    def __init__(self) -> None:
        self._steps: list[GraphStep[Any]] = []

    def step(self, step: Step[R], *, after: GraphStep[Any] | Iterable[GraphStep[Any]] = ()) -> GraphStep[R]:
        """Add a call or a workflow, to be begun when the steps named in `after` have ended well."""
        if not isinstance(step, Step):
            raise InvalidArgument(
                f"{shown(step)} is not a step; accepted are task.s(...), chain, group, chord and graph"
            )
        added = GraphStep(self, len(self._steps), step)
        self._refuse_other_apps(added)
        added.after(*((after,) if isinstance(after, GraphStep) else after))
        self._steps.append(added)
        return added

    def as_part(self) -> Part[Signature[Any]]:
        """All its steps, each behind those that it follows from."""
        order = self._in_order()
        place_of = {id(step): place for place, step in enumerate(order)}
        return Vertices(
            tuple(
                Vertex(each.step.as_part(), tuple(place_of[id(one)] for one in each.predecessors))
                for each in order
            )
        )

    def enqueue(self, *, ttl: Seconds = DAY_S) -> WorkflowJob[Any]:
        """Store the workflow; workers and broker carry it on. A cycle is refused here."""
        whole: Workflow[Any] = Workflow(self.as_part())
        return whole.enqueue(ttl=ttl)

    async def aenqueue(self, *, ttl: Seconds = DAY_S) -> WorkflowJob[Any]:
        """`enqueue` for asyncio."""
        return await asyncio.to_thread(self.enqueue, ttl=ttl)

    def refuse_stranger(self, step: object) -> None:
        """Raise `InvalidArgument` for what is no step of this graph."""
        if not isinstance(step, GraphStep):
            raise InvalidArgument(
                f"after holds {shown(step)}; accepted are steps of this graph, as graph.step(...) gives them"
            )
        if step.place >= len(self._steps) or self._steps[step.place] is not step:
            raise InvalidArgument(f"{step} is of another graph; accepted are steps of this one")

    def _refuse_other_apps(self, added: GraphStep[Any]) -> None:
        steps = [*self._steps[:1], added]
        connections = {id(call.call.connections) for each in steps for call in _calls(each.step.as_part())}
        if len(connections) > 1:
            raise InvalidArgument(
                f"{added} is of another app than the steps before it; accepted are tasks of one app "
                "(app.named(...) gives one whose code is elsewhere)"
            )

    def _in_order(self) -> list[GraphStep[Any]]:
        missing = {step.place: len(step.predecessors) for step in self._steps}
        followers: dict[int, list[int]] = {place: [] for place in missing}
        for step in self._steps:
            for before in step.predecessors:
                followers[before.place].append(step.place)
        free = [place for place, count in missing.items() if not count]
        order: list[GraphStep[Any]] = []
        while free:  # of those that may come next, the one that was added first
            place = heapq.heappop(free)
            order.append(self._steps[place])
            for follower in followers[place]:
                missing[follower] -= 1
                if not missing[follower]:
                    heapq.heappush(free, follower)
        if len(order) < len(self._steps):
            left = [self._steps[place] for place, count in missing.items() if count]
            raise InvalidArgument(
                f"the graph has a cycle: {_cycle(left)}; accepted is one in which no step follows from itself"
            )
        return order


def graph() -> StepGraph:
    """A workflow of any shape: add steps, say which follows from which, enqueue it."""
    return StepGraph()


def _cycle(left: list[GraphStep[Any]]) -> str:
    """One cycle in words; each of the steps that are left follows from another one of them."""
    known, path, step = {id(each) for each in left}, list[GraphStep[Any]](), left[0]
    while step not in path:
        path.append(step)
        step = next(each for each in step.predecessors if id(each) in known)
    return " follows from ".join(str(each) for each in [*path[path.index(step) :], step])


def _calls(part: Part[Signature[Any]]) -> Iterator[Signature[Any]]:
    match part:
        case Leaf(call, _):
            yield call
        case Series(parts, _) | Parallel(parts, _):
            for each in parts:
                yield from _calls(each)
        case Branched(inner, links, on_error):
            for each in (inner, *links, *on_error):
                yield from _calls(each)
        case Vertices(vertices):
            for vertex in vertices:
                yield from _calls(vertex.part)
        case _:
            assert_never(part)
