"""Events of topics: what `app.publish` stores, and how the copy of each subscriber is called.

A subscriber is `app/task`. A copy's id is `event:app/task`, so enqueueing it twice stores it once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NewType

from mqworker.errors import InvalidArgument, InvalidMessage
from mqworker.model.names import MessageId, message_id, shown

TopicName = NewType("TopicName", str)
SubscriberName = NewType("SubscriberName", str)

_TOPIC = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}", re.ASCII)
_PENDING = re.compile(rb"(?P<at_ms>[0-9]{1,15}) (?P<names>[!-~]+)\n(?P<payload>.*)", re.ASCII | re.DOTALL)


@dataclass(frozen=True, slots=True)
class PendingEvent:
    """An event that was accepted and has not reached all queues yet."""

    accepted_at_ms: int
    subscribers: tuple[SubscriberName, ...]
    """Those who were subscribed when it was published."""
    payload: bytes
    """A packed value: the first argument of each subscriber's task."""


def topic_name(value: object) -> TopicName:
    """A topic's name: it becomes part of a hash tag, so it holds no braces."""
    if isinstance(value, str) and _TOPIC.fullmatch(value):
        return TopicName(value)
    raise InvalidArgument(
        f"topic is {shown(value)}; accepted are 1 to 128 characters of A-Z a-z 0-9 _ . -, beginning with a "
        "letter, digit or _"
    )


def subscriber_name(app: str, task: str) -> SubscriberName:
    """The name of a task as a subscriber; raises `InvalidArgument` when ids made of it would be too long."""
    name = SubscriberName(f"{app}/{task}")
    copy_id(MessageId("0" * 17), name)
    return name


def copy_id(event: MessageId, subscriber: SubscriberName) -> MessageId:
    """The id of the message that takes an event to a subscriber."""
    return message_id(f"{event}:{subscriber}")


def decode_pending(text: bytes) -> PendingEvent:
    """What stands in an outbox (scripts/publish_event.lua); raises `InvalidMessage` for anything else."""
    found = _PENDING.fullmatch(text)
    if found is None:
        raise InvalidMessage(f"{shown(text)} is not an event of a topic")
    names = (SubscriberName(name) for name in found["names"].decode().split(","))
    return PendingEvent(int(found["at_ms"]), tuple(names), found["payload"])
