"""What the broker's node does for gateways with topics: the verbs of the GOMQ document.

    publish(key, payload)             the id of the record
    subscribe(key, consumer, peer)    None
    unsubscribe(key, consumer)        whether it listened
    observe(consumer, peer)           records, each as [key, id, timestamp, payload]
    check_topics()                    None; refused where the server is part of a cluster

Each is one call of a script whenever it runs, so that a node in another process numbers it the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mqworker.actors.gateway.verbs.verb import LARGEST_GROUP, Arguments, Verb
from mqworker.queues.topics import arguments as accept
from mqworker.queues.topics.arguments import TopicOptions
from mqworker.queues.topics.calls import TopicRecord
from mqworker.queues.topics.steps import TopicSteps
from mqworker.store.procedure import Procedure

PlainRecord = list[str | bytes]

_LARGEST_GROUP_BYTES = 4 * 1024 * 1024


def topic_verbs(options: TopicOptions, on_subscribe: Callable[[], None]) -> dict[str, Verb]:
    """The verbs by name. `on_subscribe` is called after somebody began to listen."""
    verbs = _TopicVerbs(TopicSteps(options), on_subscribe)
    return {
        "publish": Verb(verbs.publish, together=verbs.publish_together, weigh=_weight),
        "subscribe": Verb(verbs.subscribe),
        "unsubscribe": Verb(verbs.unsubscribe),
        "observe": Verb(verbs.observe),
        "check_topics": Verb(verbs.check),
    }


class _TopicVerbs:
    def __init__(self, steps: TopicSteps, on_subscribe: Callable[[], None]) -> None:
        self._steps = steps
        self._calls = steps.calls
        self._on_subscribe = on_subscribe

    def publish(self, key: object, payload: object) -> Procedure[str]:
        [record_id] = yield from self.publish_together([(key, payload)])
        return record_id

    def publish_together(self, calls: Sequence[Arguments]) -> Procedure[list[str]]:
        key = accept.topic_key(calls[0][0])
        payloads = [accept.payload_bytes(payload) for _, payload in calls]
        ids: list[str] = yield self._calls.publish(key, payloads)
        return ids

    def subscribe(self, key: object, consumer: object, peer: object) -> Procedure[None]:
        names = accept.topic_key(key), accept.consumer_id(consumer), accept.peer_name(peer)
        yield self._calls.subscribe(*names)
        self._on_subscribe()

    def unsubscribe(self, key: object, consumer: object) -> Procedure[bool]:
        did_listen: bool = yield self._calls.unsubscribe(accept.topic_key(key), accept.consumer_id(consumer))
        return did_listen

    def observe(self, consumer: object, peer: object) -> Procedure[list[PlainRecord]]:
        records: list[TopicRecord] = yield self._calls.observe(
            accept.consumer_id(consumer), accept.peer_name(peer)
        )
        return [[record.key, record.id, record.timestamp, record.payload] for record in records]

    def check(self) -> Procedure[None]:
        yield from self._steps.refuse_cluster()


def _weight(arguments: Arguments) -> int:
    """A batch is a thousand small records, or four of the largest."""
    payload = arguments[1] if len(arguments) > 1 else b""
    size = len(payload) if isinstance(payload, bytes) else 0
    return max(1, size * LARGEST_GROUP // _LARGEST_GROUP_BYTES)
