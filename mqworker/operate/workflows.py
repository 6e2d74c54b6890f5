"""A workflow as people see it: its members, where each of them is, and what follows from what.

It is read in slices without arguments and results, which may be large. Of a workflow of many thousands only
the first nodes are looked at, and it is said so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from mqworker.errors import MqworkerError
from mqworker.model.clock import SystemClock
from mqworker.model.names import MessageId, QueueName, message_id, parse_message_id, parse_queue_name
from mqworker.operate.system import System
from mqworker.operate.wording import counted
from mqworker.queues.work.keys import workflow_key, workflows_key
from mqworker.store.script import Call, RawReply, scripts_of
from mqworker.tasks.connections import Connections
from mqworker.tasks.outcome import JobStatus
from mqworker.tasks.workflows.job import tree_of
from mqworker.tasks.workflows.members import status_of_end, statuses_in_queue
from mqworker.tasks.workflows.outcome import member_id

script = scripts_of(__package__)

SLICE = 200
MOST_NODES = 2_000
MOST_LISTED = 200
_ENDED = {"succeeded", "failed", "cancelled", "expired", "skipped"}
_STATE_BY_WORD = {"running": "running", "done": "succeeded", "failed": "failed", "cancelled": "cancelled"}


@dataclass(frozen=True, slots=True)
class Member:
    """One call of a workflow, or a join that collects the outcomes of a group (its task is empty)."""

    node: int
    task: str
    queue: str
    id: str
    status: str
    input_from: int | None
    followers: tuple[int, ...]
    inputs: tuple[int, ...]
    """What a join collects, in order."""
    is_collecting: bool
    """Whether its failure is handed on as a value instead of ending the workflow."""

    @property
    def is_join(self) -> bool:
        """Whether it only collects."""
        return not self.task


@dataclass(frozen=True, slots=True)
class WorkflowView:
    """One workflow, now."""

    id: str
    state: str
    failed_node: int | None
    end: int
    nodes: tuple[Member, ...]
    is_whole: bool
    """False where it has more nodes than are looked at."""
    kept_ms: int | None
    """For how long it is still kept."""

    @property
    def members(self) -> list[Member]:
        """The calls among the nodes."""
        return [node for node in self.nodes if not node.is_join]

    @property
    def counts(self) -> dict[str, int]:
        """How many members are in which state, the most first."""
        return dict(Counter(member.status for member in self.members).most_common())


@dataclass(frozen=True, slots=True)
class WorkflowLine:
    """One workflow in a list."""

    id: str
    state: str


def read_workflow(system: System, workflow: str) -> WorkflowView:
    """The workflow of this id; raises an error that says what may have become of it."""
    found = find_workflow(system, workflow)
    if found is None:
        raise MqworkerError(
            f"no workflow {message_id(workflow)}: it may have ended longer ago than its ttl, or the id is "
            "mistyped"
        )
    return found


def find_workflow(system: System, workflow: str) -> WorkflowView | None:
    """The same; None where there is none."""
    flow = message_id(workflow)
    slices = list(_slices(system, flow))
    state, end, kept_ms, *_ = slices[0]
    if not state:
        return None
    word, _, failed = state.decode(errors="replace").partition(" ")
    nodes = [node for each in slices for node in map(_member, each[3])]
    named = [replace(node, id=member_id(flow, node.node)) for node in nodes]
    return WorkflowView(
        id=flow,
        state=_STATE_BY_WORD.get(word, "unknown"),
        failed_node=int(failed) if failed.isdecimal() else None,
        end=int(end) if end.isdigit() else 0,
        nodes=tuple(_with_states(system, named, is_over=word == "cancelled")),
        is_whole=len(slices) * SLICE < MOST_NODES or not (slices[-1][3] or slices[-1][4]),
        kept_ms=kept_ms if kept_ms > 0 else None,
    )


def read_workflows(system: System) -> list[WorkflowLine]:
    """The newest workflows that were enqueued, the newest first; those that are no longer kept left out."""
    key = workflows_key(system.settings.namespace)
    raw: RawReply = system.store.send([("LRANGE", key, 0, MOST_LISTED - 1)], key)[0]
    ids = list(dict.fromkeys(found for each in raw if (found := parse_message_id(each)) is not None))
    keys = [workflow_key(system.settings.namespace, each) for each in ids]
    states = system.store.send_each([("HGET", each, "state") for each in keys], keys) if keys else []
    return [
        WorkflowLine(each, _STATE_BY_WORD.get(state.decode(errors="replace").partition(" ")[0], "unknown"))
        for each, state in zip(ids, states, strict=True)
        if isinstance(state, bytes)
    ]


def cancel_workflow(system: System, workflow: str) -> bool:
    """Cancel a workflow, or all that a job has spawned, with that job; False when there is none that runs."""
    connections = Connections(lambda: system.settings, SystemClock())
    try:
        return tree_of(message_id(workflow), connections).cancel()
    finally:
        connections.close()


def workflow_summary(view: WorkflowView) -> str:
    """In words."""
    parts = ", ".join(f"{count:,} {state}" for state, count in view.counts.items())
    more = "" if view.is_whole else f"; more than {MOST_NODES:,} nodes, only the first are looked at"
    return f"{counted(len(view.members), 'member')}: {parts}{more}"


def _slices(system: System, flow: MessageId) -> Iterator[RawReply]:
    key = workflow_key(system.settings.namespace, flow)
    for first in range(0, MOST_NODES, SLICE):
        reply: RawReply = system.store.run(
            Call(script("look_workflow"), (key,), (first, SLICE), lambda raw: raw)
        )
        yield reply
        if len(reply[3]) < SLICE and not reply[4]:  # numbers are given without gaps, but for spawned ones
            return


def _member(raw: RawReply) -> Member:
    node, task, queue, source, outcome, followers, inputs, collects = raw
    return Member(
        node=int(node),
        task=task.decode(errors="replace"),
        queue=queue.decode(errors="replace"),
        id="",
        status=str(status_of_end(outcome).value) if outcome else "",
        input_from=int(source) if source else None,
        followers=_numbers(followers),
        inputs=_numbers(inputs),
        is_collecting=bool(collects),
    )


def _numbers(text: bytes) -> tuple[int, ...]:
    return tuple(int(each) for each in text.split() if each.isdigit())


def _with_states(system: System, nodes: list[Member], *, is_over: bool) -> Iterator[Member]:
    """The states of members whose end was not counted yet are asked of their queues."""
    asked: dict[QueueName, list[MessageId]] = {}
    for node in nodes:
        queue = parse_queue_name(node.queue.encode())
        if not node.status and queue is not None:
            asked.setdefault(queue, []).append(MessageId(node.id))
    seen: dict[MessageId, JobStatus] = {}
    for queue, members in asked.items():
        seen |= statuses_in_queue(system.open_queue(queue), members)
    status_by_node: dict[int, str] = {}
    for node in nodes:  # in the order of their numbers: what a join collects comes before it
        status_by_node[node.node] = _status(node, seen, status_by_node, is_over=is_over)
        yield replace(node, status=status_by_node[node.node])


def _status(
    node: Member, seen: Mapping[MessageId, JobStatus], status_by_node: Mapping[int, str], *, is_over: bool
) -> str:
    if node.is_join:
        has_ended = all(status_by_node.get(each) in _ENDED for each in node.inputs)
        return "succeeded" if has_ended else "planned"
    if node.status:
        return node.status
    status = str(seen.get(MessageId(node.id), JobStatus.UNKNOWN).value)
    return "never" if is_over and status == JobStatus.PLANNED else status
