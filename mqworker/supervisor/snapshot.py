"""The snapshot of a node: what `status` and `health` show of it. Plain values only."""

from __future__ import annotations

from typing import Any

from mqworker.settings import ChosenDrain
from mqworker.supervisor.children import ChildRecord, Children, State
from mqworker.supervisor.node import Node
from mqworker.supervisor.status_socket import Snapshot


def node_snapshot(
    children: Children,
    node: Node,
    *,
    pid: int,
    started_at_ms: int,
    is_draining: bool,
    problem: str | None,
    is_ready: bool,
    drain: ChosenDrain,
    now_ms: int,
) -> Snapshot:
    """How the node is, now. `started_at_ms` is wall time, `now_ms` monotonic.

    `is_ready`: whether it was complete once, and `status` could see that.
    """
    return {
        "node": node.name,
        "app": node.app,
        "pid": pid,
        "started_at_ms": started_at_ms,
        "draining": is_draining,
        "complete": children.is_complete and is_ready,
        "problem": problem,
        "drain": {"s": drain.seconds, "why": drain.why},
        "children": [_child_snapshot(record, now_ms) for record in children],
    }


def _child_snapshot(record: ChildRecord, now_ms: int) -> dict[str, Any]:
    ponged_at_ms = record.vitals.ponged_at_ms
    return {
        "name": record.name,
        "role": record.role.name.lower(),
        "generation": record.generation,
        "pid": None if record.child is None else record.child.process.pid,
        "state": record.state.value,
        "restarts": record.restarts,
        "retry_in_ms": max(0, record.restart_at_ms - now_ms) if record.state is State.PARKED else None,
        "last_exit": record.last_exit,
        "silent_ms": None if ponged_at_ms is None else now_ms - ponged_at_ms,
        "progress": record.progress,
        "facts": record.facts,
        "totals": record.totals,
        "restarts_by_cause": dict(record.restarts_by_cause),
    }
