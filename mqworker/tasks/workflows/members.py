"""Members of a workflow: where each of them is, looked up for thousands in a few round trips."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from mqworker.model.names import MessageId, QueueName, TaskName, parse_consumer_name
from mqworker.queues.work.queue import WorkQueue
from mqworker.queues.work.steps import is_limited
from mqworker.tasks.outcome import JobStatus

BATCH = 500

_STATUS_BY_END = {
    b"S": JobStatus.SUCCEEDED,
    b"D": JobStatus.FAILED,
    b"C": JobStatus.CANCELLED,
    b"E": JobStatus.EXPIRED,
    b"K": JobStatus.SKIPPED,
}


@dataclass(frozen=True, slots=True)
class WorkflowMember:
    """One call of a workflow. `app.job(member.id, member.queue)` is its handle."""

    id: MessageId
    task: TaskName
    queue: QueueName
    status: JobStatus
    """As it counts in the workflow: `PLANNED` until it is enqueued."""


def status_of_end(outcome: bytes) -> JobStatus:
    """Of a member whose end was counted."""
    return _STATUS_BY_END.get(outcome[:1], JobStatus.UNKNOWN)


def statuses_in_queue(work: WorkQueue, members: Sequence[MessageId]) -> Mapping[MessageId, JobStatus]:
    """Where members are whose end was not counted yet."""
    running = _held(work)
    statuses: dict[MessageId, JobStatus] = {}
    for start in range(0, len(members), BATCH):
        batch = members[start : start + BATCH]
        for member, status in zip(batch, _look(work, batch), strict=True):
            statuses[member] = JobStatus.RUNNING if member in running else status
    return statuses


def _held(work: WorkQueue) -> set[str]:
    keys = work.calls.keys
    # Any: ZRANGE answers names, HGETALL fences and records in turn.
    names: Any = work.store.send([("ZRANGE", keys.named("consumers"), 0, -1)], keys.meta)[0]
    known = (parse_consumer_name(name) for name in names)
    consumers = [None, *(name for name in known if name is not None)]
    held: Any = work.store.send([("HVALS", keys.held(consumer)) for consumer in consumers], keys.meta)
    return {record[25:].partition(b" ")[0].decode(errors="replace") for each in held for record in each}


def _look(work: WorkQueue, members: Sequence[MessageId]) -> list[JobStatus]:
    keys = work.calls.keys
    guards = [f"flow:{member}" for member in members]
    asked = [("HEXISTS", keys.named("outbox"), member) for member in members]
    replies = work.store.send(
        [("HMGET", keys.named("guards"), *guards), ("ZMSCORE", keys.named("delayed"), *members), *asked],
        keys.meta,
    )
    taken, due, *ended = cast("Any", replies)  # as the commands answer
    return [_status(*each) for each in zip(taken, due, ended, strict=True)]


def _status(guard: bytes | None, due: bytes | None, has_ended: int) -> JobStatus:
    if has_ended:
        return JobStatus.RUNNING  # a broker counts it in a moment
    if due is not None:
        return JobStatus.LIMITED if is_limited(int(float(due))) else JobStatus.DELAYED
    return JobStatus.PLANNED if guard is None else JobStatus.WAITING
