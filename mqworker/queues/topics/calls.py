"""The scripts of topics as calls: arguments in the order of each contract, replies as values or refusals."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from dataclasses import dataclass

from mqworker.errors import MqworkerError, StoreRefused
from mqworker.queues.topics.arguments import TopicOptions
from mqworker.queues.topics.keys import TopicKeys
from mqworker.queues.topics.xid import XidSource, xid_end
from mqworker.store.script import Call, RawReply, scripts_of

script = scripts_of(__package__)


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """One published payload, as a peer observes it."""

    key: str
    id: str
    """Twenty characters, the same in every copy; '' for what another program put into the queue."""
    timestamp: str
    """When it was published, by the server's clock: `Sun Nov 15 23:40:23 UTC 2026`."""
    payload: bytes


@dataclass(frozen=True, slots=True)
class Moved:
    """What one call of topic_dispatch did."""

    count: int
    left: int
    wait_ms: int = 0
    """Until a backlog has waited long enough for more subscribers; 0 when it does not wait."""
    problem: str = ""
    """What stands under one of the keys that does not belong there; then nothing was moved."""


@dataclass(frozen=True, slots=True)
class Dispatched:
    """What one look at all topics found and did."""

    count: int
    """Records moved."""
    topics: int
    """Topics that somebody listens to."""
    next_in_ms: int | None
    """When to look again: 0 for at once, None for when something is published."""


@dataclass(frozen=True, slots=True)
class Swept:
    """What one call of topic_sweep did."""

    count: int
    problem: str


class TopicCalls:
    """Builds calls for all topics of one prefix."""

    def __init__(self, options: TopicOptions) -> None:
        self.options = options
        self.keys = TopicKeys(options.prefix)
        self._ids = XidSource()

    def publish(self, key: str, payloads: Sequence[bytes]) -> Call[list[str]]:
        """Append records to a main queue; their ids."""
        arguments: list[str | bytes | int] = [key, self.options.queue_ttl_ms or 0]
        for payload in payloads:
            arguments += (xid_end(self._ids.tail()), base64.b64encode(payload))
        return Call(
            script("publish"),
            self.keys.shared,
            tuple(arguments),
            lambda reply: [id_.decode() for id_ in reply],
            is_numbered=True,
        )

    def subscribe(self, key: str, consumer: str, peer: str) -> Call[None]:
        """Let a peer listen."""

        def decode(reply: RawReply) -> None:
            if reply != 1:
                raise _taken(key, consumer, *(_text(name) for name in reply))

        arguments = (key, consumer, peer, self.options.silent_ms, self.options.grace_ms)
        return Call(script("subscribe"), self.keys.shared, arguments, decode, is_numbered=True)

    def unsubscribe(self, key: str, consumer: str) -> Call[bool]:
        """End listening for a consumer with all its peers; whether it listened."""
        return Call(
            script("unsubscribe"),
            self.keys.shared,
            (key, consumer),
            lambda reply: bool(reply == 1),
            is_numbered=True,
        )

    def observe(self, consumer: str, peer: str) -> Call[list[TopicRecord]]:
        """Take what is there for a peer."""
        options = self.options
        arguments = (consumer, peer, options.observed_at_once, options.silent_ms, options.observed_bytes)
        return Call(script("observe"), self.keys.shared, arguments, _records, is_numbered=True)

    def dispatch(self, key: bytes, count: int) -> Call[Moved]:
        """Move records from a main queue to all that listen."""
        return Call(
            script("dispatch"),
            self.keys.shared,
            (key, count, self.options.orphans),
            lambda reply: Moved(0, 0, problem=_text(reply)) if isinstance(reply, bytes) else Moved(*reply),
        )

    def sweep(self, consumers: Sequence[bytes]) -> Call[Swept]:
        """Drop the silent peers of these consumers."""
        return Call(
            script("sweep"),
            self.keys.shared,
            (self.options.orphans, *consumers),
            lambda reply: Swept(reply[0], _text(reply[1])),
        )


def foreign_key(problem: str) -> StoreRefused:
    """The error for a key of another type, in the words of a script that went on with the others."""
    return StoreRefused(f"topics: a key holds something foreign; use another database or prefix ({problem})")


def _taken(key: str, consumer: str, other_key: str, other: str) -> TopicNameTaken:
    return TopicNameTaken(
        f"key {key!r} with consumer {consumer!r} and key {other_key!r} with consumer {other!r} give queues "
        "of one name, and a peer would have both; choose another key or consumer, or use two connections",
        key=other_key,
        consumer=other,
    )


def _records(reply: RawReply) -> list[TopicRecord]:
    return [
        _record(_text(key), element)
        for key, elements in zip(reply[::2], reply[1::2], strict=True)
        for element in elements
    ]


def _record(key: str, element: bytes) -> TopicRecord:
    """What an element says. It is gone from the queue, so one that nobody can read is handed on as it is."""
    try:
        match json.loads(element):
            case {"id": str(id_), "timestamp": str(timestamp), "payload": str(payload)}:
                return TopicRecord(key, id_, timestamp, base64.b64decode(payload, validate=True))
            case {"id": str(id_), "timestamp": str(timestamp), **rest} if "payload" not in rest:
                return TopicRecord(key, id_, timestamp, b"")
    except (ValueError, RecursionError, binascii.Error):
        pass
    return TopicRecord(key, "", "", element)


def _text(name: bytes) -> str:
    return name.decode(errors="backslashreplace")


class TopicNameTaken(MqworkerError):
    """Choose another name: with the one given, the peer would read from a queue of its own other consumer.

    The documented keys join names by '_', so `A_B` with consumer `C` and `A` with `B_C` are one. `key` and
    `consumer` are those that the peer has already. Nothing was written.
    """

    def __init__(self, text: str, *, key: str, consumer: str) -> None:
        super().__init__(text)
        self.key = key
        self.consumer = consumer
