"""`mqworker status --json`: the shape of the document. Fields are added over time, never renamed or removed.

    {"at_ms": 1700000000000, "namespace": "mqw",
     "verdict": {"health": "healthy" | "degraded" | "down" | "no_redis", "reasons": ["…"],
                 "remarks": ["…"] (worth knowing, and no trouble)},
     "server": null | {"product", "version", "used_bytes", "limit_bytes" (null: none), "append_only",
                       "primaries", "troubles": ["…"]},
     "nodes": [{"name", "app", "pid", "started_at_ms", "draining", "age_ms", "problem",
                "drain": {"s" (how long it may take to stop), "why"},
                "children": [{"name", "role", "state", "pid", "generation", "restarts", "last_exit",
                              "silent_ms", "progress", "held" (workers only, else null), "facts": {…}}],
                "gateways": [{"name", "listens", "connections", "in", "out", "in_per_s", "out_per_s",
                              "waiting", "refused"}]}],
     "queues": [{"name", "ready", "delayed", "limited" (of the delayed: those that wait for a permit),
                 "leased", "delivered", "dead", "oldest_ms", "paused", "paused_at_ms", "limit",
                 "in_per_s", "out_per_s", "drain_s", "trouble" (why it cannot be read),
                 "consumers": [{"name", "silent_ms", "held"}],
                 "parked": [{"task", "count", "unknown" (no node knows it; else its calls do not fit)}],
                 "totals": {"enqueued", "succeeded", "retried", "buried", "reclaimed", …}}],
     "idle_queues": how many more there are, of hundreds, that hold nothing and nobody consumes,
     "quarantined": [{"kind", "where", "entry", "why", "first_seen_ms", "count"}] (of very many in one
                    place some; the first of each place is always there),
     "quarantined_places": [{"kind", "where", "entries" (how many), "skipped" (how often),
                             "more" (there are more than could be counted)}],
     "quarantined_more_places": whether there are more such places than nodes can remember,
     "totals": {the same, over all queues}}

What is not known is null. Durations are in ms or s as the name says, instants ms since 1970 UTC on the
server's clock, totals since each queue was made. Text from tasks is masked as in the log.
"""

from __future__ import annotations

from typing import Any

from mqworker.errors import MqworkerError
from mqworker.model.verdict import judge
from mqworker.model.view import ChildView, NodeView, QueueView, SystemView
from mqworker.operate.gateway_figures import gateway_documents
from mqworker.redaction import masked_text

# Any: what JSON can hold.
Document = dict[str, Any]


def document(view: SystemView) -> Document:
    """Everything as plain values."""
    verdict = judge(view)
    server = view.server
    return {
        "at_ms": view.at_ms,
        "namespace": view.namespace,
        "verdict": {
            "health": verdict.health.value,
            "reasons": [masked_text(reason) for reason in verdict.reasons],
            "remarks": list(verdict.remarks),
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
        "idle_queues": view.idle_queues,
        "quarantined": [
            {name: value for name, value in bad.as_fields().items() if name != "removal"}
            for bad in view.quarantined
        ],
        "quarantined_places": [place.as_fields() for place in view.bad_places],
        "quarantined_more_places": view.has_more_bad_places,
        "totals": totals_of(view),
    }


def outage_document(error: MqworkerError) -> Document:
    """The same shape, when the server does not answer."""
    return {
        "at_ms": None,
        "namespace": None,
        "verdict": {"health": "no_redis", "reasons": [str(error)], "remarks": []},
        "server": None,
        "nodes": [],
        "queues": [],
        "idle_queues": 0,
        "quarantined": [],
        "quarantined_places": [],
        "quarantined_more_places": False,
        "totals": {},
    }


def queue_document(queue: QueueView) -> Document:
    """One queue as plain values."""
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
        "consumers": [
            {"name": each.name, "silent_ms": each.silent_ms, "held": each.held} for each in queue.consumers
        ],
        "parked": [
            {"task": each.task, "count": each.count, "unknown": each.is_unknown} for each in queue.parked
        ],
        "totals": dict(queue.totals),
    }


def totals_of(view: SystemView) -> dict[str, int]:
    """The counters of all queues together."""
    sums: dict[str, int] = dict(view.idle_totals)
    for queue in view.queues:
        for name, count in queue.totals.items():
            sums[name] = sums.get(name, 0) + count
    return sums


def _node(node: NodeView) -> Document:
    held = node.held_by_worker
    return {
        "name": node.name,
        "app": node.app,
        "pid": node.pid,
        "started_at_ms": node.started_at_ms,
        "draining": node.is_draining,
        "drain": {"s": node.drain_s, "why": node.drain_why},
        "age_ms": node.age_ms,
        "problem": None if node.problem is None else masked_text(node.problem),
        "children": [_child(child, held.get(child.name)) for child in node.children],
        "gateways": gateway_documents(node.children),
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
