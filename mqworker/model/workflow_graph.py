"""The graph of a workflow: which call follows from which. Pure; kept in Redis as the fields of one hash.

A workflow is put together from leaves (calls), series (chains), parallels (groups), vertices (any graph),
and branches (what runs beside it, or after a failure). Laid out, it is a graph of numbered nodes: calls, and
joins that collect the outcomes of several in order. A call has at most one predecessor, so a group of
thousands after a group of thousands costs their sum, not their product. Numbers grow from predecessors to
followers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, Literal, TypeVar, assert_never

from mqworker.errors import InvalidArgument

START = "start"

CallT = TypeVar("CallT")


@dataclass(frozen=True, slots=True)
class Leaf(Generic[CallT]):
    """One call. Unless it takes no input, the outcome of its predecessor becomes its first argument."""

    call: CallT
    takes_input: bool = True


@dataclass(frozen=True, slots=True)
class Series(Generic[CallT]):
    """One part after the other."""

    parts: tuple[Part[CallT], ...]
    collects: bool = False
    """Whether failures of its calls are handed on as values instead of ending the workflow."""


@dataclass(frozen=True, slots=True)
class Parallel(Generic[CallT]):
    """All parts at once; its outcome is the list of theirs, in order."""

    parts: tuple[Part[CallT], ...]
    collects: bool = False


@dataclass(frozen=True, slots=True)
class Branched(Generic[CallT]):
    """A part whose outcome is its own, and what follows beside: after its success, or a failure in it."""

    part: Part[CallT]
    links: tuple[Part[CallT], ...] = ()
    on_error: tuple[Part[CallT], ...] = ()


@dataclass(frozen=True, slots=True)
class Vertex(Generic[CallT]):
    """A part that follows from others, named by their places, all smaller than its own."""

    part: Part[CallT]
    after: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Vertices(Generic[CallT]):
    """Any graph. Its outcome is that of the vertex from which none follows; of several, a list of theirs."""

    vertices: tuple[Vertex[CallT], ...]


Part = Leaf[CallT] | Series[CallT] | Parallel[CallT] | Branched[CallT] | Vertices[CallT]

Takes = Literal["outcome", "each", "failure"]
"""What a call gets of the node before it: its outcome; each outcome that it collected, as an argument of its
own; or the failure by which it failed."""


@dataclass(frozen=True, slots=True)
class CallNode(Generic[CallT]):
    """A call, the node whose outcome is its first argument (None: none), and what its failure means."""

    call: CallT
    input_from: int | None
    collects: bool
    takes: Takes = "outcome"


@dataclass(slots=True)
class Graph(Generic[CallT]):
    """A workflow, laid out."""

    calls: dict[int, CallNode[CallT]] = field(default_factory=dict)
    inputs_by_join: dict[int, list[int]] = field(default_factory=dict)
    followers: dict[int | str, list[int]] = field(default_factory=dict)
    error_followers: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    """By the last node of a part: its first node, and a call that is made after a failure in between."""
    end: int = 0
    goes_on: bool = False
    """Whether a failure leaves out only what follows from it; else nothing follows any more at all."""

    def count_of_inputs(self, node: CallNode[CallT]) -> int:
        """How many arguments of a call come from the nodes before it."""
        if node.input_from is None:
            return 0
        return len(self.inputs_by_join[node.input_from]) if node.takes == "each" else 1

    def fields(self) -> dict[str, str]:
        """What tasks/workflows/scripts/advance_workflow.lua reads of it."""
        fields = {"state": "running", "end": str(self.end), "open": str(len(self.calls))}
        fields["next"] = str(len(self.calls) + len(self.inputs_by_join))
        if self.goes_on:
            fields["goes_on"] = "1"
        for node, followers in self.followers.items():
            fields[f"f{node}"] = " ".join(map(str, followers))
        for join, inputs in self.inputs_by_join.items():
            fields[f"l{join}"] = str(max(1, len(inputs)))  # one without members waits for its predecessor
            fields[f"i{join}"] = " ".join(map(str, inputs))
        for last, branches in self.error_followers.items():
            fields[f"x{last}"] = " ".join(f"{first}:{call}" for first, call in branches)
        fields |= {f"c{node}": "1" for node, call in self.calls.items() if call.collects}
        return fields


def lay_out(whole: Part[CallT]) -> Graph[CallT]:
    """The graph of a workflow."""
    layout: _Layout[CallT] = _Layout()
    layout.graph.end = layout.lay(whole, None, collects=False)
    return layout.graph


@dataclass(frozen=True, slots=True)
class _Source:
    """The node that something follows from, and what it gets of it."""

    node: int
    takes: Takes = "outcome"
    first: int = 0
    """Of a failure: the first node of the part in which it is to be."""


class _Layout(Generic[CallT]):
    def __init__(self) -> None:
        self.graph: Graph[CallT] = Graph()
        self._count = 0

    def lay(self, part: Part[CallT], source: _Source | None, *, collects: bool) -> int:
        """Add a part that follows from `source`; the node whose outcome is the part's."""
        match part:
            case Leaf(call, takes_input):
                return self._call(call, source, takes_input=takes_input, collects=collects)
            case Series(parts, own):
                if not parts:
                    raise InvalidArgument("a chain has no members; accepted is at least one")
                for each in parts:
                    source = _Source(self.lay(each, source, collects=collects or own))
                return self._last(source)
            case Parallel(parts, own):
                outcomes = [self.lay(each, source, collects=collects or own) for each in parts]
                return self._join(outcomes, source)
            case Branched():
                return self._branched(part, source, collects=collects)
            case Vertices(vertices):
                return self._vertices(vertices, source, collects=collects)
            case _:
                assert_never(part)

    def _call(self, call: CallT, source: _Source | None, *, takes_input: bool, collects: bool) -> int:
        node = self._number()
        self._follow(source, node)
        if source is None or not takes_input:
            self.graph.calls[node] = CallNode(call, None, collects)
        else:
            self.graph.calls[node] = CallNode(call, source.node, collects, source.takes)
        return node

    def _branched(self, part: Branched[CallT], source: _Source | None, *, collects: bool) -> int:
        self.graph.goes_on = True
        first = self._count
        outcome = self.lay(part.part, source, collects=collects)
        for link in part.links:
            self.lay(link, _Source(outcome), collects=collects)
        for branch in part.on_error:
            self.lay(branch, _Source(outcome, "failure", first), collects=collects)
        return outcome

    def _vertices(
        self, vertices: tuple[Vertex[CallT], ...], source: _Source | None, *, collects: bool
    ) -> int:
        if not vertices:
            raise InvalidArgument("a graph has no steps; accepted is at least one: graph.step(task.s(...))")
        self.graph.goes_on = True
        outcomes: list[int] = []
        for vertex in vertices:
            before = [outcomes[each] for each in vertex.after]
            own_source = source if not before else _Source(before[0])
            if len(before) > 1:
                own_source = _Source(self._join(before, None), "each")
            outcomes.append(self.lay(vertex.part, own_source, collects=collects))
        followed = {each for vertex in vertices for each in vertex.after}
        sinks = [outcome for place, outcome in enumerate(outcomes) if place not in followed]
        return sinks[0] if len(sinks) == 1 else self._join(sinks, None)

    def _join(self, outcomes: list[int], source: _Source | None) -> int:
        join = self._number()
        self.graph.inputs_by_join[join] = outcomes
        for outcome in outcomes:
            self._follow(_Source(outcome), join)
        if not outcomes:
            if source is not None and source.takes == "failure":
                raise InvalidArgument("on_error is a group without members; accepted is one with a call")
            self._follow(source, join)
        return join

    def _follow(self, source: _Source | None, node: int) -> None:
        if source is not None and source.takes == "failure":
            self.graph.error_followers.setdefault(source.node, []).append((source.first, node))
        else:
            self.graph.followers.setdefault(START if source is None else source.node, []).append(node)

    def _number(self) -> int:
        self._count += 1
        return self._count - 1

    @staticmethod
    def _last(source: _Source | None) -> int:
        if source is None:
            raise AssertionError("unreachable: a series has parts")
        return source.node
