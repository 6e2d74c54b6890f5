"""What the console shows as plain values, for its JSON API. Fields are added over time, never removed.

The system has the shape of `mqworker status --json`; instants are ms since 1970 UTC on the server's clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from mqworker.model.dead_letter import DeadLetter
from mqworker.model.strike import Strike
from mqworker.operate.actions import Preview
from mqworker.operate.audit import NotedDeed
from mqworker.operate.body import masked_arguments
from mqworker.operate.bulk import BulkPreview
from mqworker.operate.causes import Causes
from mqworker.operate.figures import Statistics
from mqworker.operate.job_view import JobView
from mqworker.operate.picture import Picture, Series
from mqworker.operate.schedules import Schedules, ScheduleView
from mqworker.operate.search import SearchSlice
from mqworker.operate.status_document import Document
from mqworker.operate.status_document import document as status_document
from mqworker.operate.workflows import WorkflowLine, WorkflowView
from mqworker.queues.work.accidents import Accident
from mqworker.redaction import masked_text, masked_traceback
from mqworker.tasks.published_tasks import PublishedTask
from mqworker.tasks.schedules.history import Firing


def system_document(picture: Picture, *, has_arguments: bool) -> Document:
    """Everything at a glance; arguments of what runs only for who may see them."""
    return {
        **status_document(picture.view),
        "held": [_without_arguments(asdict(job), has_arguments=has_arguments) for job in picture.held],
        "running": [
            {"node": node, "worker": worker, **_without_arguments(asdict(job), has_arguments=has_arguments)}
            for (node, worker), jobs in picture.running.items()
            for job in jobs
        ],
        "series": series_document(picture.series),
    }


def _without_arguments(fields: Document, *, has_arguments: bool) -> Document:
    return fields if has_arguments else {**fields, "arguments": None}


def series_document(series: Series) -> Document:
    """The last minute, second by second; null where nothing is known."""
    return {name: list(values) for name, values in asdict(series).items()}


def job_document(job: JobView, *, has_arguments: bool) -> Document:
    """One job; its arguments, masked by name, only for who may see them."""
    found, delivery, letter = job.trace, job.trace.delivery, job.trace.letter
    return {
        "id": found.id,
        "queue": found.queue,
        "state": found.where.state,
        "source": job.source,
        "task": job.task,
        "explanation": [masked_text(each) for each in job.plain_reasons],
        "enqueued_at_ms": delivery.enqueued_at_ms if delivery else None,
        "due_at_ms": found.where.due_at_ms,
        "position": found.where.position,
        "consumer": found.where.consumer,
        "deliveries": delivery.deliveries if delivery else None,
        "failures": delivery.failures if delivery else None,
        "crashes": delivery.crashes if delivery else None,
        "priority": delivery.priority if delivery else None,
        "deadline_at_ms": delivery.deadline_at_ms if delivery else None,
        "body_bytes": len(delivery.body) if delivery else None,
        "body_kept": job.kept or None,
        "tags": list(job.tags),
        "arguments": masked_arguments(delivery, job.secrets) if delivery and has_arguments else None,
        "error": None if letter is None else masked_text(f"{letter.error}: {letter.error_message}"),
        "traceback": None if letter is None else masked_traceback(letter.traceback),
        "buried_at_ms": None if letter is None else letter.buried_at_ms,
        "attempts": [asdict(each) for each in job.attempts],
        "progress": None
        if job.progress is None
        else {"done": job.progress.done, "total": job.progress.total},
        "log": [asdict(line) for line in job.log] if has_arguments else None,
        "events": [
            {"at_ms": past.at_ms, "event": past.event, **_plain_facts(past.facts)} for past in found.past
        ],
    }


def search_document(found: SearchSlice) -> Document:
    """One slice of a search."""
    return {
        "jobs": [{**asdict(job), "error": masked_text(job.error)} for job in found.jobs],
        "looked_at": found.looked_at,
        "source": found.source,
        "cursor": found.cursor,
    }


def letter_document(queue: str, letter: DeadLetter) -> Document:
    """One dead letter, without its arguments and its traceback."""
    message = letter.message
    return {
        "id": letter.id,
        "queue": queue,
        "task": str(message.task) if message else None,
        "buried_at_ms": letter.buried_at_ms,
        "enqueued_at_ms": message.enqueued_at_ms if message else None,
        "reason": letter.reason,
        "error": masked_text(letter.error),
        "error_message": masked_text(letter.error_message),
    }


def causes_document(causes: Causes) -> Document:
    """Dead letters by cause."""
    return asdict(causes)


def bulk_document(found: BulkPreview) -> Document:
    """What a bulk would do."""
    bulk = found.bulk
    return {
        "action": bulk.action,
        "words": bulk.words,
        "rate": bulk.rate,
        "before_ms": bulk.before_ms,
        "count": found.count,
        "looked_at": found.looked_at,
        "complete": found.is_complete,
        "effect": found.effect,
        "command": bulk.command,
        "destructive": bulk.kind.is_destructive,
        "samples": [job.id for job in found.samples],
    }


def strikes_document(strikes: Iterable[Strike]) -> Document:
    """The strikes that are in force."""
    return {"strikes": [strike.as_fields() for strike in strikes]}


def statistics_document(found: Statistics) -> Document:
    """Figures by task. Times are p50, p95, p99 and the longest; null where nothing is known."""
    return asdict(found)


def preview_document(preview: Preview) -> Document:
    """What an action would do."""
    return asdict(preview)


def _plain_facts(facts: Mapping[str, Any]) -> Document:
    return {
        name: masked_text(value) if isinstance(value, str) else value
        for name, value in facts.items()
        if name not in {"event", "task_id"}
    }


def audit_document(deeds: Iterable[NotedDeed]) -> Document:
    """What was done, the newest first."""
    return {"deeds": [{"at_ms": noted.at_ms, **asdict(noted.deed)} for noted in deeds]}


def schedules_document(found: Schedules) -> Document:
    """All schedules."""
    return {
        "at_ms": found.at_ms,
        "schedules": [schedule_document(each) for each in found.schedules],
        "total": found.total,
        "left_out": found.left_out,
        "after": found.after,
        "unreadable": found.unreadable,
    }


def schedule_document(view: ScheduleView, firings: Iterable[Firing] | None = None) -> Document:
    """One schedule, with its history where that was read."""
    history = {} if firings is None else {"history": [asdict(each) for each in firings]}
    return {**asdict(view), "last_job": view.last_job, **history}


def accident_document(accident: Accident) -> Document:
    """A worker that died over what it ran."""
    return {**asdict(accident), "cause": masked_text(accident.cause)}


def tasks_document(tasks: Iterable[PublishedTask]) -> Document:
    """How tasks are called by name."""
    return {
        "tasks": [
            {
                "name": task.name,
                "app": task.app,
                "queue": task.definition.options.queue,
                "model": task.model,
                "parameters": list(task.parameters),
            }
            for task in tasks
        ]
    }


def workflows_document(found: Iterable[WorkflowLine]) -> Document:
    """The newest workflows."""
    return {"workflows": [asdict(each) for each in found]}


def workflow_document(view: WorkflowView) -> Document:
    """One workflow with its members."""
    return {**asdict(view), "counts": view.counts}
