"""The plan of a workflow as its handle needs it: which member calls what, whose outcomes make the result."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from mqworker.model.annotation import Rebuild
from mqworker.model.names import QueueName, TaskName
from mqworker.model.workflow_graph import Graph
from mqworker.store.store import Store

if TYPE_CHECKING:
    from mqworker.tasks.signature import Signature

LONGEST_RUN_MS = 400 * 24 * 3600 * 1000
"""A workflow that made no end by then is forgotten; a call may be delayed by a year."""
BATCH = 500
NO_NODE = -1
"""The end of a tree, which has no result of its own."""

RebuildOf = Callable[[TaskName], Rebuild | None]


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """One call of a workflow."""

    task: TaskName
    queue: QueueName
    rebuild: Rebuild | None = None


@dataclass(frozen=True, slots=True)
class WorkflowPlan:
    """All calls by their node, what the joins collect, and the node whose outcome is the result."""

    calls: dict[int, PlannedCall] = field(default_factory=dict)
    inputs_by_join: dict[int, list[int]] = field(default_factory=dict)
    end: int = 0

    def calls_below(self, node: int) -> list[int]:
        """The calls whose outcomes a node's is made of, in order."""
        if node in self.calls:
            return [node]
        return [call for each in self.inputs_by_join.get(node, ()) for call in self.calls_below(each)]


def plan_of_graph(graph: Graph[Signature[Any]]) -> WorkflowPlan:
    """The plan of a workflow that was just laid out."""
    calls = {
        node: PlannedCall(it.call.task, it.call.plan.queue, it.call.call.definition.rebuild_result)
        for node, it in graph.calls.items()
    }
    return WorkflowPlan(calls, dict(graph.inputs_by_join), graph.end)


def stored_plan(store: Store, key: str, rebuild_of: RebuildOf) -> WorkflowPlan:
    """The plan of a workflow that somebody enqueued; one without calls when nothing is known of it."""
    names, end = cast("Any", store.send([("HKEYS", key), ("HGET", key, "end")], key))  # what they answer
    fields = dict(_read(store, key, sorted(name for name in names if name[:1] in {b"t", b"i"})))
    calls = {int(name[1:]): _call(text, rebuild_of) for name, text in fields.items() if name.startswith(b"t")}
    joins = {
        int(name[1:]): [int(node) for node in text.split()]
        for name, text in fields.items()
        if name.startswith(b"i")
    }
    return WorkflowPlan(calls, joins, int(end) if (end or b"").isdigit() else NO_NODE)


def _read(store: Store, key: str, names: list[bytes]) -> Iterator[tuple[bytes, bytes]]:
    for start in range(0, len(names), BATCH):
        some = names[start : start + BATCH]
        values = cast("list[bytes | None]", store.send([("HMGET", key, *some)], key)[0])
        # One that is gone by now went with the whole workflow, whose time was over.
        yield from ((name, value) for name, value in zip(some, values, strict=True) if value is not None)


def _call(text: bytes, rebuild_of: RebuildOf) -> PlannedCall:
    fields = json.loads(text)
    task = TaskName(fields["task"])
    return PlannedCall(task, QueueName(fields["queue"]), rebuild_of(task))
