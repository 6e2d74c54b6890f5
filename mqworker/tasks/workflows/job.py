"""WorkflowJob: the handle of one workflow. Look at it and its members, wait for it, cancel it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, TypeVar, assert_never, cast

from mqworker.errors import (
    MqworkerError,
    ResultNotKept,
    ResultTimeout,
    TaskCancelled,
    TaskExpired,
    TaskFailed,
)
from mqworker.model.clock import SystemClock
from mqworker.model.names import MessageId, QueueName
from mqworker.model.value_codec import Value
from mqworker.queues.work.keys import workflow_key
from mqworker.store.script import Call, scripts_of
from mqworker.tasks.connections import Connections
from mqworker.tasks.outcome import Cancelled, Expired, Failed, JobStatus, NotKept, Succeeded
from mqworker.tasks.payloads import opened_result
from mqworker.tasks.workflows.members import WorkflowMember, status_of_end, statuses_in_queue
from mqworker.tasks.workflows.outcome import MemberFailure, member_failure, member_id, outcome_of, value_in
from mqworker.tasks.workflows.plan import NO_NODE, WorkflowPlan, stored_plan

script = scripts_of(__package__)

R_co = TypeVar("R_co", covariant=True)

POLL_S = 1.0
"""The end is told on a channel, which may lose it; so it is also asked for."""
POLL_WITHOUT_CHANNEL_S = 0.05
BATCH = 1_000

_STATUS_BY_STATE = {
    "running": JobStatus.RUNNING,
    "done": JobStatus.SUCCEEDED,
    "failed": JobStatus.FAILED,
    "cancelled": JobStatus.CANCELLED,
}


@dataclass(frozen=True, slots=True)
class _State:
    name: str
    node: int | None = None
    """Of the member that failed."""
    is_by_parent: bool = False
    """Whether it is a tree whose parent was given up."""


class WorkflowJob(Generic[R_co]):
    """One workflow and what becomes of it."""

    def __init__(
        self, workflow: MessageId, connections: Connections, plan_of: Callable[[], WorkflowPlan]
    ) -> None:
        """`plan_of` is asked when the plan is first needed: a handle by id reads it from the server."""
        self.id = workflow
        self._connections = connections
        self._plan_of = plan_of
        self._key = workflow_key(connections.namespace, workflow)

    def status(self) -> JobStatus:
        """Where it is now: waiting until the broker begins it, then running."""
        state, start = self._read("state", "rstart")
        if state == b"running" and start is None:
            return JobStatus.WAITING
        return _STATUS_BY_STATE.get(_state(state).name, JobStatus.UNKNOWN)

    async def astatus(self) -> JobStatus:
        """`status` for asyncio."""
        return await asyncio.to_thread(self.status)

    def members(self) -> list[WorkflowMember]:
        """Its calls in the order in which they were written down, and where each of them is."""
        calls, seen = self._plan.calls, self._seen_in_queues()
        ends = self._outcomes(list(calls))  # after the queues: what ended meanwhile is known here
        return [
            WorkflowMember(
                member_id(self.id, node),
                call.task,
                call.queue,
                status_of_end(ends[node]) if node in ends else seen[member_id(self.id, node)],
            )
            for node, call in sorted(calls.items())
        ]

    async def amembers(self) -> list[WorkflowMember]:
        """`members` for asyncio."""
        return await asyncio.to_thread(self.members)

    def result(self, timeout: float | None = None) -> R_co:
        """Wait until the workflow ends and give its outcome: of a group, the list of results in order.

        Raises what `job.result()` raises; the text names the member at fault.
        """
        state = self._end(timeout)
        if state.name == "cancelled":
            raise TaskCancelled(f"workflow {self.id} was cancelled")
        if state.name == "":
            raise ResultNotKept(f"workflow {self.id} ended long ago, or there never was such a workflow")
        if state.is_by_parent:
            raise TaskFailed(
                f"job {self.id}, which began this tree, was given up: its result says why",
                reason="parent",
                error="",
                message="",
                traceback="",
            )
        if state.node is not None:
            raise self._failure(state.node)
        if self._plan.end == NO_NODE:
            return cast("R_co", None)
        # The annotations of the tasks say what it is; the bytes cannot.
        return cast("R_co", self._outcome(self._plan.end))

    async def aresult(self, timeout: float | None = None) -> R_co:  # noqa: ASYNC109 - the same as `result`
        """`result` for asyncio."""
        return await asyncio.to_thread(self.result, timeout)

    def cancel(self) -> bool:
        """Let nothing more follow, take out members that wait, and ask those that run to stop.

        With all that its members have spawned; they can spawn nothing more. False when it has ended.
        """
        call = Call(script("cancel_workflow"), (self._key,), (), int)
        if self._connections.store.run(call) == 0:
            return False
        # Read behind it: what a member adds from now on is refused, and a broker that has just put one in
        # line takes it out again.
        plan = stored_plan(self._connections.store, self._key, lambda _: None)
        by_queue = _by_queue(plan)
        root = self._read("root")[0]
        if root is not None:
            self._cancel_in(QueueName(root.decode()), [self.id])
        ended = self._outcomes(list(plan.calls))
        for queue, nodes in by_queue.items():
            members = [member_id(self.id, node) for node in nodes if node not in ended]
            seen = statuses_in_queue(self._connections.sender(queue).work, members)
            self._cancel_in(queue, [each for each in members if seen[each] is not JobStatus.PLANNED])
        return True

    def _cancel_in(self, queue: QueueName, messages: Sequence[MessageId]) -> None:
        sender = self._connections.sender(queue)
        for message in messages:
            if not sender.work.cancel(message):
                sender.follow(sender.steps.cancel(message))

    async def acancel(self) -> bool:
        """`cancel` for asyncio."""
        return await asyncio.to_thread(self.cancel)

    def __repr__(self) -> str:
        """Its id."""
        return f"<WorkflowJob {self.id}>"

    @cached_property
    def _plan(self) -> WorkflowPlan:
        return self._plan_of()

    def _seen_in_queues(self) -> dict[MessageId, JobStatus]:
        seen: dict[MessageId, JobStatus] = {}
        for queue, nodes in _by_queue(self._plan).items():
            members = [member_id(self.id, node) for node in nodes]
            seen |= statuses_in_queue(self._connections.sender(queue).work, members)
        return seen

    def _end(self, timeout: float | None) -> _State:
        clock = SystemClock()
        ends_at_ms = None if timeout is None else clock.monotonic_ms() + timeout * 1000
        state = _state(self._read("state")[0])
        if state.name != "running":
            return state
        channel = self._connections.listen(self._key)
        try:
            while (state := _state(self._read("state")[0])).name == "running":
                left_s = POLL_S if ends_at_ms is None else (ends_at_ms - clock.monotonic_ms()) / 1000
                if left_s <= 0:
                    raise ResultTimeout(f"workflow {self.id} did not end within {timeout:g} s")
                if channel is None:
                    time.sleep(min(POLL_WITHOUT_CHANNEL_S, left_s))
                else:
                    channel.get(min(POLL_S, left_s))
            return state
        finally:
            if channel is not None:
                channel.close()

    def _outcome(self, node: int) -> Value:
        outcomes = self._outcomes(self._plan.calls_below(node))
        return self._value(node, outcomes)

    def _value(self, node: int, outcomes: dict[int, bytes]) -> Value:
        if node not in self._plan.calls:
            return [self._value(each, outcomes) for each in self._plan.inputs_by_join.get(node, ())]
        call = self._plan.calls[node]
        outcome = outcome_of(self.id, node, outcomes.get(node))
        if isinstance(outcome, Succeeded):
            payloads, message = self._connections.payloads, member_id(self.id, node)
            result = opened_result(payloads, call.queue, message, outcome.result)
            return value_in(Succeeded(result), call.rebuild)
        return MemberFailure(**member_failure(self.id, node, call.task, outcome))

    def _outcomes(self, nodes: list[int]) -> dict[int, bytes]:
        found: dict[int, bytes] = {}
        for start in range(0, len(nodes), BATCH):
            some = nodes[start : start + BATCH]
            replies = self._read(*(f"r{node}" for node in some))
            found |= {node: reply for node, reply in zip(some, replies, strict=True) if reply is not None}
        return found

    def _failure(self, node: int) -> MqworkerError:
        name = f"workflow {self.id}: member {node}, {self._task(node)}"
        outcome = outcome_of(self.id, node, self._read(f"r{node}")[0])
        match outcome:
            case Failed(letter):
                cause = f"{letter.error}: {letter.error_message}".rstrip(": ") or letter.reason
                return TaskFailed(
                    f"{name}, job {letter.id}, failed ({letter.reason}): {cause}",
                    reason=letter.reason,
                    error=letter.error,
                    message=letter.error_message,
                    traceback=letter.traceback,
                )
            case Cancelled():
                return TaskCancelled(f"{name}, was cancelled")
            case Expired():
                return TaskExpired(f"{name}, was not started before its deadline")
            case Succeeded() | NotKept():
                return ResultNotKept(f"{name}, failed, and its error is no longer kept")
            case _:
                assert_never(outcome)

    def _task(self, node: int) -> str:
        call = self._plan.calls.get(node)
        return "unknown" if call is None else call.task

    def _read(self, *fields: str) -> list[bytes | None]:
        replies = self._connections.store.send([("HMGET", self._key, *fields)], self._key)[0]
        return cast("list[bytes | None]", replies)  # what HMGET answers


def tree_of(message: MessageId, connections: Connections) -> WorkflowJob[object]:
    """The handle of all that a job has spawned."""
    key = workflow_key(connections.namespace, message)
    return WorkflowJob(message, connections, lambda: stored_plan(connections.store, key, lambda _: None))


def _by_queue(plan: WorkflowPlan) -> dict[QueueName, list[int]]:
    nodes: dict[QueueName, list[int]] = {}
    for node, call in plan.calls.items():
        nodes.setdefault(call.queue, []).append(node)
    return nodes


def _state(text: bytes | None) -> _State:
    name, _, node = (text or b"").decode().partition(" ")
    return _State(name, int(node) if node.isdigit() else None, is_by_parent=node == "parent")
