"""Children: what the supervisor knows about each child, across its restarts; the snapshot of all.

Touches no process.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from mqworker.actors.cpu_wait import CpuWait
from mqworker.model.figures import Figures, Plain
from mqworker.settings import ChosenDrain
from mqworker.supervisor.child import Child
from mqworker.supervisor.child_plan import ChildPlan, Role, Topology
from mqworker.supervisor.liveness import Vitals
from mqworker.supervisor.node import Node
from mqworker.supervisor.plain_reasons import Cause
from mqworker.supervisor.restart_policy import Fault, RestartHistory
from mqworker.supervisor.status_socket import Snapshot


class State(Enum):
    """Where a child is in its life."""

    PLANNED = "planned"
    STARTING = "starting"
    LIVE = "live"
    WAITING = "waiting"
    """Dead, and to be started again."""
    PARKED = "parked"
    """Dead again and again: left alone for a while, or until its source changes."""
    ENDED = "ended"


@dataclass(slots=True)
class ChildRecord:
    """One child of the topology."""

    plan: ChildPlan
    step: int
    state: State = State.PLANNED
    generation: int = 0
    child: Child | None = None
    vitals: Vitals = field(default_factory=lambda: Vitals(0))
    cpu_wait: CpuWait | None = None
    """Since it was started, or since it was last sent a ping."""
    history: RestartHistory = field(default_factory=RestartHistory)
    restart_at_ms: int = 0
    has_been_ready: bool = False
    kill_reason: str | None = None
    kill_fault: Fault = Fault.COUNTED
    deaf_since_ms: int | None = None
    """When it closed its control pipe, though it lives."""
    last_exit: str | None = None
    cause: Cause | None = None
    """Why its last process ended, in one word."""
    restarts_by_cause: Counter[Cause] = field(default_factory=Counter)
    carried: Counter[str] = field(default_factory=Counter)
    """What its processes before this one had counted; see `TOTALS`."""
    figures: list[Plain] = field(default_factory=list)
    """What its process counted of tasks, as far as it is told (model/figures.py)."""
    carried_figures: Figures = field(default_factory=Figures)
    """The same of its processes before this one."""
    progress: int = 0
    facts: dict[str, Any] = field(default_factory=dict)  # Any: plain values, as they came with a Pong

    @property
    def name(self) -> str:
        """As in the topology."""
        return self.plan.name

    @property
    def role(self) -> Role:
        """As in the topology."""
        return self.plan.role

    @property
    def restarts(self) -> int:
        """How often it was started again."""
        return max(0, self.generation - 1)

    @property
    def totals(self) -> dict[str, int]:
        """What all its processes counted together: never less than before."""
        now = _counted(self.facts)
        return {name: self.carried[name] + now.get(name, 0) for name in self.carried.keys() | now.keys()}

    def note(self, progress: int, facts: dict[str, Any]) -> None:
        """What its process says of itself."""
        self.figures = facts.pop("figures", [])  # apart: too much for the status screen
        self.progress, self.facts = progress, facts

    def begin_anew(self) -> None:
        """Another process takes the place of the one before: it counts from 0, the totals do not."""
        self.carried.update(_counted(self.facts))
        self.carried_figures.add(self.figures)
        self.facts, self.progress, self.figures = {}, 0, []
        if self.cause is not None:
            self.restarts_by_cause[self.cause] += 1


TOTALS = frozenset({"settled", "lost_leases", "admitted", "released", "in", "out", "refused"})
"""Facts of actors that only grow while their process lives."""


def _counted(facts: Mapping[str, object]) -> dict[str, int]:
    return {name: count for name in TOTALS if isinstance(count := facts.get(name), int)}


class Children:
    """All children, in start order."""

    def __init__(self, topology: Topology) -> None:
        self._records = [ChildRecord(plan, step) for step, plans in enumerate(topology) for plan in plans]
        self._record_by_name = {record.name: record for record in self._records}
        self._needed = [record for record in self._records if record.role is not Role.MONITOR]
        # The last one counts where there are many, and is asked for only where there is one.
        self._record_by_role = {record.role: record for record in self._records}

    def __iter__(self) -> Iterator[ChildRecord]:
        return iter(self._records)

    def get(self, name: str) -> ChildRecord | None:
        """A child by its name; None when it is unknown."""
        return self._record_by_name.get(name)

    def of_role(self, role: Role) -> list[ChildRecord]:
        """All children of this role."""
        return [record for record in self if record.role is role]

    def the(self, role: Role) -> ChildRecord | None:
        """The one child of this role, None in a topology without it."""
        return self._record_by_role.get(role)

    @property
    def is_complete(self) -> bool:
        """Whether every child is live."""
        return all(record.state is State.LIVE for record in self._needed)

    @property
    def is_settled(self) -> bool:
        """Whether every child is live or parked."""
        return all(record.state in {State.LIVE, State.PARKED} for record in self._needed)

    @property
    def has_workers(self) -> bool:
        """Whether a worker's process lives, or was not collected yet."""
        return bool(self.living_workers)

    @property
    def living_workers(self) -> tuple[str, ...]:
        """The names of the workers whose process lives, or was not collected yet."""
        return tuple(record.name for record in self.of_role(Role.WORKER) if record.child is not None)

    def peers_of(self, record: ChildRecord) -> list[ChildRecord]:
        """Those that have a pipe to it and are running."""
        return [
            other
            for other in self
            if other.child is not None
            and (other.name in record.plan.peers or record.name in other.plan.peers)
        ]

    def may_start(self, record: ChildRecord, now_ms: int) -> bool:
        """Whether it is this child's turn."""
        if record.state not in {State.PLANNED, State.WAITING, State.PARKED}:
            return False
        if record.role is Role.WORKER:
            dispatcher = self.the(Role.DISPATCHER)
            if dispatcher is not None and dispatcher.state is not State.LIVE:
                return False
        if record.state is not State.PLANNED:
            return now_ms >= record.restart_at_ms
        # One that cannot live does not keep the others from it.
        return all(
            other.has_been_ready or other.state is State.PARKED
            for other in self._needed
            if other.step < record.step
        )


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
