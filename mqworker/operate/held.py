"""What runs now: the messages that nodes and other consumers hold, as far as a page has room for them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from mqworker.errors import InvalidMessage, StoreRefused
from mqworker.model.names import ConsumerName, QueueName
from mqworker.model.record import decode_record
from mqworker.model.view import SystemView
from mqworker.operate.body import Secrets, masked_arguments, read_secrets
from mqworker.queues.work.keys import WorkQueueKeys
from mqworker.store.link.cluster_connection import ClusterConnection
from mqworker.store.script import Call, RawReply, scripts_of
from mqworker.store.store import Store

script = scripts_of(__package__)

MOST_EACH = 24
"""Of each consumer and queue: the rest is a number."""
# Header, id, task, guard, deadline and limits: what comes after them is body.
_CHARACTERS = 700


@dataclass(frozen=True, slots=True)
class HeldJob:
    """One message, and who holds it."""

    queue: str
    consumer: str
    id: str
    task: str
    enqueued_at_ms: int
    attempt: int
    # Any: plain values; secrets are masked by name.
    arguments: dict[str, Any] | None = field(default=None, repr=False)
    """None where they are too long to be read for a list."""

    @property
    def node(self) -> str:
        """The node, where the consumer is one: they are called `<node>.<boot>.<generation>`."""
        return self.consumer.rsplit(".", 2)[0]


def read_held(store: Store, view: SystemView) -> list[HeldJob]:
    """What is held now, a part of it where there is much; the oldest first. A single server is asked once."""
    busy = [
        (queue.name, names)
        for queue in view.queues
        if (names := [each.name for each in queue.consumers if each.held])
    ]
    calls = [_call(view.namespace, queue, names) for queue, names in busy]
    found: list[HeldJob] = []
    secrets = read_secrets(store, view.namespace) if busy else {}
    for (queue, names), reply in zip(busy, _replies(store, calls), strict=True):
        for consumer, texts in zip(names, reply, strict=False):
            found += [job for text in texts if (job := _job(queue, consumer, text, secrets)) is not None]
    return sorted(found, key=lambda job: (job.enqueued_at_ms, job.id))


def _replies(store: Store, calls: Sequence[Call[RawReply]]) -> list[RawReply]:
    if calls and not isinstance(store.connection, ClusterConnection):
        with suppress(StoreRefused):  # a foreign key in the place of one of ours: each on its own
            return store.run_together(calls)
    replies: list[RawReply] = []
    for call in calls:
        try:
            replies.append(store.run(call))
        except StoreRefused:
            replies.append(())  # the verdict tells of it
    return replies


def _call(namespace: str, queue: str, consumers: Sequence[str]) -> Call[RawReply]:
    keys = WorkQueueKeys.of(namespace, QueueName(queue))
    held = tuple(keys.held(ConsumerName(name)) for name in consumers)
    return Call(script("hold"), held, (MOST_EACH, _CHARACTERS), lambda reply: reply)


def _job(queue: str, consumer: str, record: bytes, secrets: Secrets) -> HeldJob | None:
    try:
        delivery = decode_record(record, fence=0)
    except InvalidMessage:
        return None
    return HeldJob(
        queue,
        consumer,
        delivery.id,
        delivery.task,
        delivery.enqueued_at_ms,
        delivery.deliveries + 1,
        masked_arguments(delivery, secrets) if len(record) < _CHARACTERS else None,
    )
