"""The whole system as metrics, out of what Redis keeps: any node and the console tell the same.

Counters are counted by the scripts that change a state, in the same step: they are as exact as the queue, and
go on counting whoever restarts. Pure but for the reading itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from mqworker.errors import MqworkerError
from mqworker.model.verdict import Health, judge
from mqworker.model.view import QueueView, SystemView
from mqworker.operate.metrics.text import Labels, Sample, family
from mqworker.queues.work.snapshots import TOTALS, Reader, read_system

MOST_QUEUES = 2_000
OTHER = "other"
"""Stands for all queues beyond that."""


def read_metrics(store: Reader, namespace: str) -> list[str]:
    """Ask the server; the lines of all families. Without an answer: that there is none."""
    try:
        view = read_system(store, namespace)
    except MqworkerError:
        return list(outage_families())
    return list(system_families(view))


def outage_families() -> Iterator[str]:
    """What is known when the server does not answer."""
    yield from family("mqworker_redis_up", "gauge", "Whether Redis answered this scrape.", [("", {}, 0)])


def system_families(view: SystemView) -> Iterator[str]:
    """Everything behind one namespace of one server."""
    queues = _named(view.queues)
    server = view.server
    yield from family("mqworker_redis_up", "gauge", "Whether Redis answered this scrape.", [("", {}, 1)])
    yield from family(
        "mqworker_redis_used_bytes", "gauge", "Memory that Redis uses.", [("", {}, server.used_bytes)]
    )
    yield from family(
        "mqworker_redis_limit_bytes",
        "gauge",
        "Memory that Redis may use (maxmemory); not there where there is no limit.",
        [("", {}, server.limit_bytes)] if server.limit_bytes else [],
    )
    yield from family(
        "mqworker_health", "stateset", "The verdict of mqworker status, over the system.", _health(view)
    )
    yield from family("mqworker_nodes", "gauge", "Nodes that beat.", _nodes(view))
    yield from family(
        "mqworker_quarantined_entries",
        "gauge",
        "Entries that nodes skip because they are foreign; see mqworker doctor.",
        [("", {}, len(view.quarantined))],
    )
    yield from _queue_families(view, queues)


def _queue_families(view: SystemView, queues: Sequence[tuple[Labels, QueueView]]) -> Iterator[str]:
    yield from family(
        "mqworker_queue_messages",
        "gauge",
        "Messages by state; each is in one of them. limited: waits for its limits.",
        chain.from_iterable(map(_depths, queues)),
    )
    yield from family(
        "mqworker_queue_oldest_seconds",
        "gauge",
        "Age of the message at the front of the line; 0 where nothing is ready.",
        (("", labels, (queue.oldest_ms or 0) / 1000) for labels, queue in queues),
    )
    yield from family(
        "mqworker_queue_paused",
        "gauge",
        "Whether the queue is paused.",
        (("", labels, int(queue.is_paused)) for labels, queue in queues),
    )
    yield from family(
        "mqworker_queue_consumed",
        "gauge",
        "Nodes that take from the queue.",
        (("", labels, len(view.consuming_nodes(queue))) for labels, queue in queues),
    )
    yield from family(
        "mqworker_queue_unreadable",
        "gauge",
        "Whether the queue could not be read; then nothing else is told of it.",
        (("", labels, int(queue.trouble is not None)) for labels, queue in queues),
    )
    yield from family(
        "mqworker_limited_messages",
        "gauge",
        "Messages that wait for a permit of a rate limit.",
        (("", labels, queue.limited) for labels, queue in queues if queue.trouble is None),
    )
    yield from family(
        "mqworker_parked_messages",
        "gauge",
        "Messages that no node can run: task, or version of its signature, unknown to all of them.",
        (("", labels, sum(each.count for each in queue.parked)) for labels, queue in queues),
    )
    yield from family(
        "mqworker_messages",
        "counter",
        "What happened to messages since the queue was made.",
        chain.from_iterable(map(_totals, queues)),
    )


def _named(queues: Sequence[QueueView]) -> list[tuple[Labels, QueueView]]:
    """By name; those beyond the bound together, as one."""
    named: list[tuple[Labels, QueueView]] = [({"queue": queue.name}, queue) for queue in queues[:MOST_QUEUES]]
    rest = queues[MOST_QUEUES:]
    if rest:
        named.append(({"queue": OTHER}, _together(rest)))
    return named


def _together(queues: Sequence[QueueView]) -> QueueView:
    return QueueView(
        OTHER,
        ready=sum(queue.ready for queue in queues),
        delayed=sum(queue.delayed for queue in queues),
        limited=sum(queue.limited for queue in queues),
        leased=sum(queue.leased for queue in queues),
        delivered=sum(queue.delivered for queue in queues),
        dead=sum(queue.dead for queue in queues),
        oldest_ms=max((queue.oldest_ms or 0 for queue in queues), default=None),
        is_paused=any(queue.is_paused for queue in queues),
        totals={name: sum(queue.totals.get(name, 0) for queue in queues) for name in TOTALS},
        parked=tuple(chain.from_iterable(queue.parked for queue in queues)),
    )


def _depths(named: tuple[Labels, QueueView]) -> list[Sample]:
    labels, queue = named
    if queue.trouble is not None:
        return []
    depths = {
        "ready": queue.ready,
        "delayed": max(0, queue.delayed - queue.limited),
        "limited": queue.limited,
        "held": queue.leased,
        "delivered": queue.delivered,
        "dead": queue.dead,
    }
    return [("", {**labels, "state": state}, count) for state, count in depths.items()]


def _totals(named: tuple[Labels, QueueView]) -> list[Sample]:
    labels, queue = named
    return [("_total", {**labels, "event": event}, count) for event, count in queue.totals.items()]


def _health(view: SystemView) -> list[Sample]:
    health = judge(view).health
    return [("", {"mqworker_health": each.value}, int(each is health)) for each in Health]


def _nodes(view: SystemView) -> list[Sample]:
    draining = sum(node.is_draining for node in view.nodes)
    return [("", {"state": "running"}, len(view.nodes) - draining), ("", {"state": "draining"}, draining)]
