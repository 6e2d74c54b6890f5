"""What each worker runs now: the task, its arguments, since when, and how far it says it is.

Dispatchers tell which worker has had which message for a while; the rest is read from the queue.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mqworker.model.names import MessageId, QueueName
from mqworker.model.view import NodeView, SystemView
from mqworker.operate.held import HeldJob
from mqworker.queues.work.keys import WorkQueueKeys
from mqworker.store.store import Store
from mqworker.tasks.running.progress import Progress, decode_progress, progress_key

MOST_EACH = 5
"""Of each worker: one that runs a hundred at once tells the oldest."""


@dataclass(frozen=True, slots=True)
class RunningJob:
    """One message in a worker."""

    id: str
    since_ms: int
    """For how long the worker has had it."""
    queue: str = ""
    task: str = ""
    attempt: int = 0
    # Any: plain values; secrets are masked by name.
    arguments: dict[str, Any] | None = field(default=None, repr=False)
    progress: Progress | None = None


def read_running(
    store: Store, view: SystemView, held: Sequence[HeldJob]
) -> dict[tuple[str, str], list[RunningJob]]:
    """By node and worker; the oldest first. One round trip, and none where nothing runs for long."""
    job_by_id = {job.id: job for job in held}
    told = {
        (node.name, worker): entries[:MOST_EACH]
        for node in view.nodes
        for worker, entries in _told_by(node).items()
        if entries
    }
    ids = [message for entries in told.values() for message, _ in entries if message in job_by_id]
    progress = _read_progress(store, view.namespace, [job_by_id[each] for each in ids])
    return {
        place: [
            _running(message, since_ms, job_by_id.get(message), progress) for message, since_ms in entries
        ]
        for place, entries in told.items()
    }


def _told_by(node: NodeView) -> dict[str, list[tuple[str, int]]]:
    """What the dispatcher of a node says, which somebody else may have written."""
    found: dict[str, list[tuple[str, int]]] = {}
    for child in node.children:
        running = child.facts.get("running") if child.role == "dispatcher" else None
        for worker, entries in running.items() if isinstance(running, Mapping) else ():
            found[str(worker)] = list(_entries(entries, node.age_ms))
    return found


def _entries(entries: object, age_ms: int) -> Iterator[tuple[str, int]]:
    for entry in entries if isinstance(entries, list) else ():
        match entry:
            case [str() as message, int() as since_ms]:
                yield message, since_ms + age_ms
            case _:
                pass


def _read_progress(store: Store, namespace: str, jobs: Sequence[HeldJob]) -> dict[str, Progress]:
    keys = [
        progress_key(WorkQueueKeys.of(namespace, QueueName(job.queue)), MessageId(job.id)) for job in jobs
    ]
    replies = store.send_each([("GET", key) for key in keys], keys) if keys else []
    decoded = {
        job.id: decode_progress(reply)
        for job, reply in zip(jobs, replies, strict=True)
        if isinstance(reply, bytes)
    }
    return {message: progress for message, progress in decoded.items() if progress is not None}


def _running(
    message: str, since_ms: int, job: HeldJob | None, progress: Mapping[str, Progress]
) -> RunningJob:
    if job is None:  # not among those that were read: there are very many, or it ended just now
        return RunningJob(message, since_ms)
    return RunningJob(
        message, since_ms, job.queue, job.task, job.attempt, job.arguments, progress.get(message)
    )
