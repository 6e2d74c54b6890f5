"""What the console shows as plain values, for its JSON API. Fields are added over time, never removed.

The system has the shape of `mqworker status --json`; instants are ms since 1970 UTC on the server's clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from mqworker.model.view import ChildView, NodeView, QueueView
from mqworker.operate.actions import Preview
from mqworker.operate.audit import NotedDeed
from mqworker.operate.body import masked_arguments
from mqworker.operate.causes import Causes
from mqworker.operate.job_view import JobView
from mqworker.operate.picture import Picture, Series
from mqworker.operate.search import SearchSlice
from mqworker.redaction import masked_text

# Any: what JSON can hold.
Document = dict[str, Any]


def system_document(picture: Picture) -> Document:
    """Everything at a glance."""
    view, verdict, server = picture.view, picture.verdict, picture.view.server
    return {
        "at_ms": view.at_ms,
        "namespace": view.namespace,
        "verdict": {
            "health": verdict.health.value,
            "reasons": [masked_text(each) for each in verdict.reasons],
        },
        "server": {
            "product": server.product,
            "version": server.version,
            "used_bytes": server.used_bytes,
            "limit_bytes": server.limit_bytes or None,
            "append_only": server.is_append_only,
            "primaries": server.primaries,
            "troubles": list(server.troubles),
        },
        "nodes": [_node(node) for node in view.nodes],
        "queues": [queue_document(queue) for queue in view.queues],
        "held": [asdict(job) for job in picture.held],
        "series": series_document(picture.series),
    }


def queue_document(queue: QueueView) -> Document:
    """One queue."""
    pace = queue.throughput
    return {
        "name": queue.name,
        "ready": queue.ready,
        "delayed": queue.delayed,
        "limited": queue.limited,
        "leased": queue.leased,
        "delivered": queue.delivered,
        "dead": queue.dead,
        "oldest_ms": queue.oldest_ms,
        "paused": queue.is_paused,
        "paused_at_ms": queue.paused_at_ms,
        "limit": queue.limit,
        "in_per_s": None if pace is None else round(pace.in_per_s, 3),
        "out_per_s": None if pace is None else round(pace.out_per_s, 3),
        "drain_s": None if queue.drain_s is None else round(queue.drain_s, 3),
        "trouble": queue.trouble,
        "consumers": [asdict(each) for each in queue.consumers],
        "totals": dict(queue.totals),
    }


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
        "arguments": masked_arguments(delivery) if delivery and has_arguments else None,
        "error": None if letter is None else masked_text(f"{letter.error}: {letter.error_message}"),
        "traceback": None if letter is None else masked_text(letter.traceback),
        "buried_at_ms": None if letter is None else letter.buried_at_ms,
        "attempts": [asdict(each) for each in job.attempts],
        "events": [
            {"at_ms": past.at_ms, "event": past.event, **_plain_facts(past.facts)} for past in found.past
        ],
    }


def search_document(found: SearchSlice) -> Document:
    """One slice of a search."""
    return {
        "jobs": [{**asdict(job), "error": masked_text(job.error)} for job in found.jobs],
        "looked_at": found.looked_at,
        "cursor": found.cursor,
    }


def causes_document(causes: Causes) -> Document:
    """Dead letters by cause."""
    return asdict(causes)


def preview_document(preview: Preview) -> Document:
    """What an action would do."""
    return asdict(preview)


def _plain_facts(facts: Mapping[str, Any]) -> Document:
    return {
        name: masked_text(value) if isinstance(value, str) else value
        for name, value in facts.items()
        if name not in {"event", "task_id"}
    }


def _node(node: NodeView) -> Document:
    held = node.held_by_worker
    return {
        "name": node.name,
        "app": node.app,
        "pid": node.pid,
        "started_at_ms": node.started_at_ms,
        "draining": node.is_draining,
        "age_ms": node.age_ms,
        "children": [_child(child, held.get(child.name)) for child in node.children],
    }


def _child(child: ChildView, held: int | None) -> Document:
    return {
        "name": child.name,
        "role": child.role,
        "state": child.state,
        "pid": child.pid,
        "generation": child.generation,
        "restarts": child.restarts,
        "last_exit": None if child.last_exit is None else masked_text(child.last_exit),
        "silent_ms": child.silent_ms,
        "progress": child.progress,
        "held": held,
        "facts": dict(child.facts),
    }


def audit_document(deeds: Iterable[NotedDeed]) -> Document:
    """What was done, the newest first."""
    return {"deeds": [{"at_ms": noted.at_ms, **asdict(noted.deed)} for noted in deeds]}
