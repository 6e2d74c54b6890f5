"""Publishing: an event is accepted once, and then taken to the queue of every task that subscribes.

`publish` is one script that notes the event for whoever is subscribed at that moment, and then one enqueue
for each queue. Whatever happens after the script, a broker finishes it (delivery.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress

from mqworker.errors import InvalidArgument, QueueFull, StoreFull, StoreRefused, StoreUnavailable
from mqworker.model.names import LONGEST_HORIZON_MS, MessageId, whole_number
from mqworker.model.value_codec import NotAccepted, Value, pack
from mqworker.model.value_problem import problem_with
from mqworker.settings import Settings
from mqworker.store.script import Call, scripts_of
from mqworker.tasks.connections import Connections
from mqworker.tasks.events.delivery import Calls, clear_events, copies_of, enqueue_copies, named_calls
from mqworker.tasks.events.event import TopicName, topic_name
from mqworker.tasks.events.keys import EventKeys, event_topics_key
from mqworker.tasks.ids import next_id
from mqworker.tasks.options import Seconds, milliseconds

script = scripts_of(__package__)

DEFAULT_KEEP = 10_000
MOST_KEPT = 1_000_000

_ROOM_FOR_CALL = 4_096
"""Bytes of a message beside its event: other arguments, headers. At most half of what a message may have."""


class EventPublisher:
    """Publishes the events of one app."""

    def __init__(self, connections: Connections, settings_of: Callable[[], Settings]) -> None:
        self._connections = connections
        self._settings_of = settings_of
        self._known: set[TopicName] = set()

    def publish(
        self, topic: str, payload: Value, *, keep: int = DEFAULT_KEEP, ttl: Seconds | None = None
    ) -> MessageId:
        """Accept an event and take it to all subscribers; its id.

        Once it is accepted nothing is raised any more: what cannot be enqueued now, a broker enqueues later.
        While nobody subscribes the newest `keep` are kept, until `ttl` seconds pass without another one.
        """
        name = topic_name(topic)
        whole_number("keep", keep, least=1, most=MOST_KEPT)
        ttl_ms = 0 if ttl is None else milliseconds("ttl", ttl)
        whole_number("ttl in ms", ttl_ms, least=0, most=LONGEST_HORIZON_MS)
        packed = _packed(payload, self._settings_of().max_message_bytes)
        if name not in self._known:
            make_known(self._connections, name)
            self._known.add(name)
        return self._publish(name, packed, keep, ttl_ms)

    async def apublish(
        self, topic: str, payload: Value, *, keep: int = DEFAULT_KEEP, ttl: Seconds | None = None
    ) -> MessageId:
        """`publish` for asyncio, beside the event loop: it may speak to several servers of a cluster."""
        return await asyncio.to_thread(self.publish, topic, payload, keep=keep, ttl=ttl)

    def _publish(self, topic: TopicName, packed: bytes, keep: int, ttl_ms: int) -> MessageId:
        event, store, payloads = next_id(), self._connections.store, self._connections.payloads
        if payloads is not None:
            packed = payloads.close_event(topic, event, packed)
        keys = EventKeys.of(self._connections.namespace, topic)
        call: Call[Calls] = Call(
            script("publish_event"), keys.shared, (event, packed, keep, ttl_ms), named_calls
        )
        tracer = self._connections.tracer
        if tracer is None:
            self._take_to_subscribers(keys, event, packed, store.run(call), {})
        else:
            with tracer.sending(topic) as sending:
                sending.stored_as(event)
                self._take_to_subscribers(keys, event, packed, store.run(call), sending.headers)
        return event

    def _take_to_subscribers(
        self, keys: EventKeys, event: MessageId, packed: bytes, calls: Calls, headers: Mapping[str, str]
    ) -> None:
        store = self._connections.store
        if calls:
            with suppress(QueueFull, StoreFull, StoreRefused, StoreUnavailable):
                problems: list[str] = []
                copies = copies_of(event, packed, calls, problems.append, headers)
                enqueue_copies(copies, lambda queue: self._connections.sender(queue).work)
                clear_events(store, keys, [] if problems else [event])  # the broker reports problems


def make_known(connections: Connections, topic: TopicName) -> None:
    """Before anything is accepted: a broker must find the outbox of whoever is killed next."""
    registry = event_topics_key(connections.namespace)
    connections.store.send([("SADD", registry, topic)], registry)


def _packed(payload: Value, most_message_bytes: int) -> bytes:
    try:
        packed = pack(payload)
    except NotAccepted as refused:
        problem = problem_with("the payload", payload) or f"the payload cannot be sent: {refused}"
        raise InvalidArgument(problem) from refused
    most = most_message_bytes - min(_ROOM_FOR_CALL, most_message_bytes // 2)
    if len(packed) > most:
        raise InvalidArgument(
            f"the payload is {len(packed):,} bytes; accepted are up to {most:,}, which leaves room for the "
            "call around it (the setting max_message_bytes)"
        )
    return packed
