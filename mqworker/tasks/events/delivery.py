"""Event delivery: what was published becomes a message in the queue of every subscriber, once.

An event that is accepted stands in the outbox of its topic until all copies are enqueued. The publisher does
that at once; if it is killed in between, or a queue is full, a broker does it later. The ids of the copies
are made of the event's, so whatever is enqueued twice is stored once: for as long as a message lives, and for
the time of `dedup_window_s` after it ended.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

from mqworker.errors import InvalidArgument, InvalidMessage, QueueFull, StoreFull, StoreRefused
from mqworker.log import Logger
from mqworker.model.assembled_call import as_input
from mqworker.model.call_template import CallTemplate, template_of
from mqworker.model.envelope import with_headers
from mqworker.model.guard import chosen_id_guard
from mqworker.model.keyring import is_sealed
from mqworker.model.message import Message
from mqworker.model.names import MessageId, QueueName
from mqworker.queues.work.queue import WorkQueue
from mqworker.store.exchange import UNREADABLE
from mqworker.store.store import Store
from mqworker.tasks.events.event import (
    PendingEvent,
    SubscriberName,
    TopicName,
    copy_id,
    decode_pending,
    topic_name,
)
from mqworker.tasks.events.keys import EventKeys, event_topics_key

PAGE = 500
PUBLISHER_MS = 1_000
"""How long an event is left to its publisher before a broker takes care of it."""

Calls = Mapping[SubscriberName, bytes]
"""The call of each subscriber, as it is stored."""

Copies = list[tuple[QueueName, Message]]
QueueOf = Callable[[QueueName], WorkQueue]
OnProblem = Callable[[str], object]


def copies_of(
    event: MessageId,
    payload: bytes,
    calls: Calls,
    on_problem: OnProblem,
    headers: Mapping[str, str] | None = None,
) -> Copies:
    """The copy of each subscriber; one whose call cannot be read has none, and is a problem."""
    copies: Copies = []
    for subscriber, text in calls.items():
        try:
            template, message = _template(text), copy_id(event, subscriber)
            copy = template.called(message, chosen_id_guard(message), as_input(payload))
            if headers and not is_sealed(copy.body):
                copy.body = with_headers(copy.body, headers)
        except (InvalidMessage, InvalidArgument) as error:
            on_problem(f"{subscriber}: {error}")
        else:
            copies.append((template.queue, copy))
    return copies


def enqueue_copies(copies: Copies, queue_of: QueueOf) -> None:
    """Store copies. A full queue does not keep the others from theirs; its refusal is raised in the end."""
    by_queue: dict[QueueName, list[Message]] = {}
    for queue, copy in copies:
        by_queue.setdefault(queue, []).append(copy)
    refusals = [_refusal(queue_of(queue), some) for queue, some in by_queue.items()]
    for refusal in refusals:
        if refusal is not None:
            raise refusal


# Any: fields and values in turn, as HGETALL and publish_event.lua answer them.
def named_calls(found: Any) -> Calls:  # noqa: ANN401 - see above
    """Calls by the names of their subscribers."""
    names = (SubscriberName(name.decode(errors="replace")) for name in found[::2])
    return dict(zip(names, found[1::2], strict=True))


def clear_events(store: Store, keys: EventKeys, events: Sequence[MessageId]) -> None:
    """All copies are where they belong."""
    if events:
        store.send([("HDEL", keys.outbox, *events)], keys.outbox)  # the same words again change nothing


class EventDelivery:
    """Empties the outboxes of all topics of a store. Any number of brokers may do this at once."""

    def __init__(
        self,
        store: Store,
        namespace: str,
        queue_of: QueueOf,
        log: Logger,
        *,
        publisher_ms: int = PUBLISHER_MS,
    ) -> None:
        self._publisher_ms = publisher_ms
        self._store = store
        self._namespace = namespace
        self._queue_of = queue_of
        self._log = log
        self.delivered = 0

    def deliver(self) -> int:
        """Deliver what publishers left behind; how many events."""
        registry = event_topics_key(self._namespace)
        # Any: SMEMBERS answers texts.
        found: Any = self._store.send([("SMEMBERS", registry)], registry)[0]
        delivered = sum(self._emptied(registry, raw) for raw in self._waiting(found))
        self.delivered += delivered
        return delivered

    def _waiting(self, topics: Sequence[bytes]) -> list[bytes]:
        """Those in whose outbox something stands, asked for in one round trip; and what is not a name."""
        named = [TopicName(topic.decode(errors="replace")) for topic in topics]
        keys = [EventKeys.of(self._namespace, topic).outbox for topic in named]
        # EXISTS and not HLEN: a key of another type is to be complained of.
        replies = self._store.send_each([("EXISTS", key) for key in keys], keys)
        return [
            topic
            for topic, reply in zip(topics, replies, strict=True)
            if reply != 0 or not _is_topic_name(topic)
        ]

    def _emptied(self, registry: str, raw: bytes) -> int:
        try:
            return self._empty(topic_name(raw.decode()))
        # A foreign name or a foreign key: no reason to let the other topics wait.
        except (StoreRefused, InvalidArgument, *UNREADABLE) as error:
            self._store.quarantine.note("topic", registry, error, raw, remove_by="SREM")
            return 0

    def _empty(self, topic: TopicName) -> int:
        keys = EventKeys.of(self._namespace, topic)
        delivered = 0
        for page in self._pages(keys):
            due = dict(self._due(topic, page))
            copies = self._copies(topic, keys, due)
            done = self._enqueued(topic, copies)
            clear_events(self._store, keys, done)
            delivered += len(done)
            if len(done) < len(due):
                break  # a queue is full: the next round goes on
        return delivered

    def _pages(self, keys: EventKeys) -> Iterator[tuple[int, dict[MessageId, bytes]]]:
        """What stands in the outbox, with the server's time; nothing is asked twice for an empty one."""
        cursor = b"0"
        while True:
            command = ("HSCAN", keys.outbox, cursor, "COUNT", PAGE)
            # Any: HSCAN answers the next cursor, and fields and values in turn; TIME two texts.
            answers: Any = self._store.send([command, ("TIME",)], keys.outbox)
            (cursor, found), (seconds, micros) = answers
            events = [MessageId(event.decode(errors="replace")) for event in found[::2]]
            if events:
                now_ms = int(seconds) * 1000 + int(micros) // 1000
                yield now_ms, dict(zip(events, found[1::2], strict=True))
            if cursor == b"0":
                return

    def _due(
        self, topic: TopicName, page: tuple[int, dict[MessageId, bytes]]
    ) -> Iterator[tuple[MessageId, PendingEvent]]:
        now_ms, text_by_event = page
        for event, text in text_by_event.items():
            try:
                pending = decode_pending(text)
            except InvalidMessage as error:
                self._report(topic, event, str(error))
                pending = PendingEvent(0, (), b"")  # nobody can ever have it
            if now_ms - pending.accepted_at_ms >= self._publisher_ms:
                yield event, pending

    def _copies(
        self, topic: TopicName, keys: EventKeys, due: Mapping[MessageId, PendingEvent]
    ) -> dict[MessageId, Copies]:
        found = self._store.send([("HGETALL", keys.subscribers)], keys.subscribers)[0] if due else []
        calls = named_calls(found)
        copies_by_event: dict[MessageId, Copies] = {}
        for event, pending in due.items():
            # Who is not subscribed any more gets nothing more.
            wanted = {name: calls[name] for name in pending.subscribers if name in calls}
            problems: list[str] = []
            copies_by_event[event] = copies_of(event, pending.payload, wanted, problems.append)
            for problem in problems:
                self._report(topic, event, problem)
        return copies_by_event

    def _enqueued(self, topic: TopicName, copies_by_event: Mapping[MessageId, Copies]) -> list[MessageId]:
        """Enqueue all at once, or one by one as far as there is room; the events that are done."""
        done: list[MessageId] = []
        try:
            enqueue_copies([copy for copies in copies_by_event.values() for copy in copies], self._queue_of)
            done += copies_by_event
        except QueueFull:
            done += self._enqueued_singly(topic, copies_by_event)
        except StoreFull as error:
            self._log.warning("events_wait", topic=topic, reason=str(error))
        return done

    def _enqueued_singly(
        self, topic: TopicName, copies_by_event: Mapping[MessageId, Copies]
    ) -> Iterator[MessageId]:
        for event, copies in copies_by_event.items():
            try:
                enqueue_copies(copies, self._queue_of)
            except (QueueFull, StoreFull) as error:
                self._log.warning("events_wait", topic=topic, reason=str(error))
                return
            yield event

    def _report(self, topic: TopicName, event: MessageId, problem: str) -> None:
        outbox = EventKeys.of(self._namespace, topic).outbox
        if self._store.quarantine.note("event", outbox, problem, event.encode()):
            self._log.error("event_broken", topic=topic, event_id=event, reason=problem)


def _refusal(queue: WorkQueue, copies: Sequence[Message]) -> QueueFull | StoreFull | None:
    try:
        queue.enqueue(*copies)
    except (QueueFull, StoreFull) as error:
        return error
    return None


def _template(text: bytes) -> CallTemplate:
    try:
        return template_of(cast("dict[str, Any]", json.loads(text)))  # looked at there
    except (ValueError, AttributeError, RecursionError) as error:
        raise InvalidMessage(f"the call of a subscriber cannot be read: {error!r}") from error


def _is_topic_name(raw: bytes) -> bool:
    try:
        topic_name(raw.decode())
    except (UnicodeDecodeError, InvalidArgument):
        return False
    return True
