"""The graph of a workflow: which call follows from which. Pure; kept in Redis as the fields of one hash.

A workflow is put together from leaves (calls), series (chains) and parallels (groups). Laid out, it is a
graph of numbered nodes: calls, and joins that collect the outcomes of a group in order. A call has at most
one predecessor, so a group of thousands after a group of thousands costs their sum, not their product.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar, assert_never

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


Part = Leaf[CallT] | Series[CallT] | Parallel[CallT]


@dataclass(frozen=True, slots=True)
class CallNode(Generic[CallT]):
    """A call, the node whose outcome is its first argument (None: none), and what its failure means."""

    call: CallT
    input_from: int | None
    collects: bool


@dataclass(slots=True)
class Graph(Generic[CallT]):
    """A workflow, laid out."""

    calls: dict[int, CallNode[CallT]] = field(default_factory=dict)
    inputs_by_join: dict[int, list[int]] = field(default_factory=dict)
    followers: dict[int | str, list[int]] = field(default_factory=dict)
    end: int = 0

    def fields(self) -> dict[str, str]:
        """What tasks/workflows/scripts/advance_workflow.lua reads of it."""
        fields = {"state": "running", "end": str(self.end)}
        for node, followers in self.followers.items():
            fields[f"f{node}"] = " ".join(map(str, followers))
        for join, inputs in self.inputs_by_join.items():
            fields[f"l{join}"] = str(max(1, len(inputs)))  # one without members waits for its predecessor
            fields[f"i{join}"] = " ".join(map(str, inputs))
        fields |= {f"c{node}": "1" for node, call in self.calls.items() if call.collects}
        return fields


def lay_out(whole: Part[CallT]) -> Graph[CallT]:
    """The graph of a workflow."""
    layout: _Layout[CallT] = _Layout()
    layout.graph.end = layout.lay(whole, None, collects=False)
    return layout.graph


class _Layout(Generic[CallT]):
    def __init__(self) -> None:
        self.graph: Graph[CallT] = Graph()
        self._count = 0

    def lay(self, part: Part[CallT], source: int | None, *, collects: bool) -> int:
        """Add a part that follows from `source`; the node whose outcome is the part's."""
        match part:
            case Leaf(call, takes_input):
                node = self._number()
                self._follow(source, node)
                self.graph.calls[node] = CallNode(call, source if takes_input else None, collects)
                return node
            case Series(parts, own):
                if not parts:
                    raise InvalidArgument("a chain has no members; accepted is at least one")
                for each in parts:
                    source = self.lay(each, source, collects=collects or own)
                return self._last(source)
            case Parallel(parts, own):
                outcomes = [self.lay(each, source, collects=collects or own) for each in parts]
                return self._join(outcomes, source)
            case _:
                assert_never(part)

    def _join(self, outcomes: list[int], source: int | None) -> int:
        join = self._number()
        self.graph.inputs_by_join[join] = outcomes
        for outcome in outcomes:
            self._follow(outcome, join)
        if not outcomes:
            self._follow(source, join)
        return join

    def _follow(self, source: int | None, node: int) -> None:
        self.graph.followers.setdefault(START if source is None else source, []).append(node)

    def _number(self) -> int:
        self._count += 1
        return self._count - 1

    @staticmethod
    def _last(node: int | None) -> int:
        if node is None:
            raise AssertionError("unreachable: a series has parts")
        return node
