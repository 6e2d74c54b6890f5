"""The five queue models, each in its own words: what RSMQ, gq, topics and SKMQ hold beside the work queues.

RSMQ, topics and SKMQ are read from their own keys; gq, whose database only its nodes know, and Celery's
queues are as these tell.
A part that cannot be read is left out: another program may own the key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from mqworker.errors import MqworkerError, StoreUnavailable
from mqworker.model.names import QueueName
from mqworker.model.view import NodeView, SystemView
from mqworker.operate.system import System
from mqworker.queues.rsmq.calls import RsmqAttributes, RsmqOptions
from mqworker.queues.rsmq.client import RsmqClient
from mqworker.queues.skmq.calls import SkmqCalls
from mqworker.queues.skmq.keys import SkmqQueueKeys
from mqworker.queues.topics.keys import TopicKeys
from mqworker.store.link.cluster_connection import ClusterConnection
from mqworker.store.script import RawReply

ResultT = TypeVar("ResultT")

MOST_LISTED = 100
"""Of each kind: the rest is a number."""
RSMQ = "RSMQ"


@dataclass(frozen=True, slots=True)
class NodeShare:
    """What one node says of a queue that is not a work queue."""

    node: str
    held: int
    trouble: str | None
    counts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RsmqView:
    """A queue of RSMQ: vt and delay in seconds, msgs, hiddenmsgs, totalrecv, totalsent."""

    name: str
    attributes: RsmqAttributes
    nodes: tuple[NodeShare, ...] = ()


@dataclass(frozen=True, slots=True)
class GqView:
    """A queue of gq, or of Celery, with its own words for what it counts."""

    name: str
    title: str
    nodes: tuple[NodeShare, ...]

    @property
    def counts(self) -> Mapping[str, int]:
        """As the first node tells that has counted."""
        return next((node.counts for node in self.nodes if node.counts), {})


@dataclass(frozen=True, slots=True)
class TopicView:
    """A topic on the keys of GOMQ: what waits in its main queue, and who listens."""

    key: str
    backlog: int
    consumers: tuple[tuple[str, int, int], ...]
    """Consumer id, how many peers share it, how many messages wait for them."""


@dataclass(frozen=True, slots=True)
class RecipientView:
    """Somebody to whom SKMQ pushes messages of an app."""

    key: str
    address: str
    is_alive: bool
    weight: int
    assigned: int
    asked: float
    """The share that its weight gives it, from 0 to 1."""
    got: float | None


@dataclass(frozen=True, slots=True)
class SkmqView:
    """The queue of one app of SKMQ."""

    queue: str
    recipients: tuple[RecipientView, ...]


@dataclass(frozen=True, slots=True)
class Models:
    """All that are not work queues."""

    rsmq: tuple[RsmqView, ...] = ()
    gq: tuple[GqView, ...] = ()
    topics: tuple[TopicView, ...] = ()
    skmq: tuple[SkmqView, ...] = ()
    left_out: int = 0


def read_models(system: System, view: SystemView) -> Models:
    """Everything beside the work queues; `view` is who consumes what."""
    by_queue = _shares(view.nodes)
    rsmq, more_rsmq = _rsmq(system, by_queue)
    gq = [GqView(name, title, tuple(nodes)) for name, (title, nodes) in by_queue.items() if title != RSMQ]
    topics, more_topics = _topics(system)
    skmq, more_skmq = _skmq(system)
    return Models(
        tuple(rsmq), tuple(gq[:MOST_LISTED]), tuple(topics), tuple(skmq), more_rsmq + more_topics + more_skmq
    )


def _shares(nodes: tuple[NodeView, ...]) -> dict[str, tuple[str, list[NodeShare]]]:
    """By queue: the title of its model, and what each node says."""
    found: dict[str, tuple[str, list[NodeShare]]] = {}
    for node in nodes:
        for name, facts in node.models.items():
            counts = facts.get("counts")
            share = NodeShare(
                node.name,
                _count(facts.get("held")),
                str(facts["trouble"]) if facts.get("trouble") else None,
                _counts(counts) if isinstance(counts, Mapping) else {},
            )
            found.setdefault(name, (str(facts.get("model", "?")), []))[1].append(share)
    return dict(sorted(found.items()))


def _rsmq(system: System, by_queue: Mapping[str, tuple[str, list[NodeShare]]]) -> tuple[list[RsmqView], int]:
    is_cluster = isinstance(system.store.connection, ClusterConnection)
    client = RsmqClient(system.store, RsmqOptions("{rsmq}" if is_cluster else "rsmq"))
    none: list[str] = []
    names = sorted(_of(client.list_queues, none))
    views = []
    for name in names[:MOST_LISTED]:
        attributes: RsmqAttributes | None = _of(partial(client.get_queue_attributes, name), None)
        if attributes is not None:
            nodes = by_queue.get(name, (RSMQ, []))[1]
            views.append(RsmqView(name, attributes, tuple(nodes)))
    return views, max(0, len(names) - MOST_LISTED)


def _topics(system: System) -> tuple[list[TopicView], int]:
    if isinstance(system.store.connection, ClusterConnection):
        return [], 0  # topics need a server of their own
    keys = TopicKeys(system.settings.gomq_prefix)
    subscribed: RawReply = _of(lambda: system.store.send([("SMEMBERS", keys.subscribed)], None)[0], None)
    queues: list[bytes] = sorted(subscribed or [])
    views = []
    for queue in queues[:MOST_LISTED]:
        topic = keys.topic_of(queue)
        if topic is not None:
            view: TopicView | None = _of(partial(_topic, system, keys, topic), None)
            views += [view] if view is not None else []
    return views, max(0, len(queues) - MOST_LISTED)


def _topic(system: System, keys: TopicKeys, topic: bytes) -> TopicView:
    prefix = keys.prefix.encode()
    backlog, consumers = system.store.send(
        [("LLEN", keys.queue_of(topic)), ("SMEMBERS", prefix + b"CONSUMERS_" + topic)], None
    )
    found: list[tuple[str, int, int]] = []
    names: RawReply = consumers
    for consumer in sorted(names)[:MOST_LISTED]:
        peers: RawReply = system.store.send([("SMEMBERS", prefix + b"PEERS_" + consumer)], None)[0]
        queues = [
            prefix + b"MESSAGES_" + b"_".join((topic, consumer, peer)) for peer in list(peers)[:MOST_LISTED]
        ]
        waiting: RawReply = system.store.send([("LLEN", queue) for queue in queues], None) if queues else []
        found.append((consumer.decode(errors="replace"), len(peers), sum(waiting)))
    return TopicView(topic.decode(errors="replace"), _count(backlog), tuple(found))


def _skmq(system: System) -> tuple[list[SkmqView], int]:
    namespace = system.settings.namespace
    calls = SkmqCalls(namespace)
    none: list[QueueName] = []
    queues = sorted(_of(lambda: system.store.run(calls.queues()), none))
    views = [
        SkmqView(queue, _of(partial(_recipients_of, system, calls, queue), ()))
        for queue in queues[:MOST_LISTED]
    ]
    return views, max(0, len(queues) - MOST_LISTED)


def _recipients_of(system: System, calls: SkmqCalls, queue: QueueName) -> tuple[RecipientView, ...]:
    return tuple(_recipients(system, calls, queue))


def _recipients(system: System, calls: SkmqCalls, queue: QueueName) -> Iterator[RecipientView]:
    keys = SkmqQueueKeys.of(system.settings.namespace, queue)
    found = system.store.run(calls.of_queue(queue).recipients())
    raw: RawReply = system.store.send([("HGETALL", keys.assigned)], keys.assigned)[0]
    assigned = {
        key.decode(errors="replace"): _whole(each) for key, each in zip(raw[::2], raw[1::2], strict=True)
    }
    # As assign.lua counts: a weight of 0 is the lightest, and not nothing.
    weights = sum(weight + 1 for _, is_alive, weight in found if is_alive)
    total = sum(assigned.get(each.key, 0) for each, _, _ in found)
    for each, is_alive, weight in sorted(found, key=lambda one: one[0].key)[:MOST_LISTED]:
        given = assigned.get(each.key, 0)
        yield RecipientView(
            each.key,
            f"{each.host}:{each.port}",
            is_alive,
            weight,
            given,
            round((weight + 1) / weights, 4) if is_alive and weights else 0.0,
            round(given / total, 4) if total else None,
        )


def _of(read: Callable[[], ResultT], otherwise: ResultT) -> ResultT:
    """What is read, or the other: a key that another program owns is nothing of ours."""
    try:
        return read()
    except StoreUnavailable:
        raise
    except MqworkerError:
        return otherwise


def _counts(counts: Mapping[object, object]) -> dict[str, int]:
    return {str(word): _count(each) for word, each in counts.items()}


def _count(value: object) -> int:
    return value if isinstance(value, int) else 0


def _whole(raw: bytes) -> int:
    with suppress(ValueError):
        return int(raw)
    return 0
