"""The trace of one message: where it is, what is stored of it, and what the events still tell about it.

For people who ask why a job does not run. It only reads, and searches: nothing here is for the hot path.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from mqworker.errors import InvalidMessage
from mqworker.model.dead_letter import DeadLetter, decode_dead_letter
from mqworker.model.delivery import Delivery
from mqworker.model.event import ENQUEUED, decode_block, expand
from mqworker.model.names import MessageId
from mqworker.model.record import decode_record, limits_of
from mqworker.queues.work.queue import WorkQueue
from mqworker.queues.work.steps import Whereabouts
from mqworker.store.command import Command, Reply
from mqworker.store.script import RawReply

_PAGE = 100
_MOST_PAGES = 20
_AROUND_MS = 5
"""An event and the record of its message are stamped by one script."""
_HEADER_CHARACTERS = 25


@dataclass(frozen=True, slots=True)
class PastEvent:
    """Something that happened to the message."""

    at_ms: int
    event: str
    facts: dict[str, Any]  # Any: as the event's line of JSON has them


@dataclass(frozen=True, slots=True)
class Trace:
    """Everything that is known of one message."""

    queue: str
    id: MessageId
    where: Whereabouts
    delivery: Delivery | None = None
    """As it is stored now; None when it is not stored any more, or moved while we looked."""
    letter: DeadLetter | None = None
    is_stop_requested: bool = False
    limits: str = ""
    """Of one that waits for its limits, as it stands in the record."""
    past: list[PastEvent] = field(default_factory=list)
    """The newest first."""


def trace(queue: WorkQueue, message: MessageId, where: Whereabouts | None = None) -> Trace | None:
    """Look for a message in this queue, or where it is said to be; None when there is no sign of it."""
    where = where or queue.find(message)
    if where.state == "absent":
        past = list(_past(queue, message))
        return Trace(queue.name, message, where, past=past) if past else None
    letter = read_letter(queue, message) if where.state == "dead" else None
    delivery = letter.message if letter else _read_delivery(queue, message, where)
    return Trace(
        queue=queue.name,
        id=message,
        where=where,
        delivery=delivery,
        letter=letter,
        is_stop_requested=_ask(queue, ("HGET", queue.calls.keys.named("results"), message)) == b"X",
        limits=_read_limits(queue, message) if where.state == "limited" else "",
        past=_beginning(queue, message, delivery) or list(_past(queue, message)),
    )


def _read_limits(queue: WorkQueue, message: MessageId) -> str:
    record = _ask(queue, ("HGET", queue.calls.keys.named("parcels"), message))
    return limits_of(record) if isinstance(record, bytes) else ""


def read_letter(queue: WorkQueue, message: MessageId) -> DeadLetter | None:
    """The dead letter of this id, None when there is none."""
    keys = queue.calls.keys
    stored, buried_at_ms = queue.store.send(
        [("HGET", keys.named("letters"), message), ("ZSCORE", keys.named("dead"), message)], keys.meta
    )
    if not isinstance(stored, bytes) or not isinstance(buried_at_ms, bytes):
        return None
    return decode_dead_letter(message, int(float(buried_at_ms)), stored)


def _read_delivery(queue: WorkQueue, message: MessageId, where: Whereabouts) -> Delivery | None:
    for record in _records(queue, message, where):
        # It may have moved on since it was found: then another stands in its place.
        if record[_HEADER_CHARACTERS:].startswith(message.encode() + b" "):
            with suppress(InvalidMessage):
                return decode_record(record, fence=0)
    return None


def _records(queue: WorkQueue, message: MessageId, where: Whereabouts) -> Iterator[bytes]:
    keys = queue.calls.keys
    match where.state:
        case "delayed" | "limited":
            yield from _as_records(_ask(queue, ("HGET", keys.named("parcels"), message)))
        case "ready":
            position = where.position or 0
            urgent = _ask(queue, ("ZCARD", keys.named("urgent")))
            urgent_count = urgent if isinstance(urgent, int) else 0
            yield from _as_records(_ask(queue, ("ZRANGE", keys.named("urgent"), position, position)))
            yield from _as_records(_ask(queue, ("LINDEX", keys.named("ready"), position - urgent_count)))
        case "leased":
            yield from _as_records(_ask(queue, ("HVALS", keys.held(where.consumer))))
        case _:
            return


def _as_records(reply: Reply) -> Iterator[bytes]:
    for each in reply if isinstance(reply, list) else [reply]:
        if isinstance(each, bytes):
            yield each


def _beginning(queue: WorkQueue, message: MessageId, delivery: Delivery | None) -> list[PastEvent]:
    """Of one that nobody has had yet: all that happened to it is that it was enqueued, at a known instant."""
    if delivery is None or delivery.deliveries or delivery.failures or delivery.losses:
        return []
    at_ms = delivery.enqueued_at_ms
    return list(_past(queue, message, str(at_ms + _AROUND_MS), str(max(0, at_ms - _AROUND_MS))))


def _past(queue: WorkQueue, message: MessageId, last: str = "+", first: str = "-") -> Iterator[PastEvent]:
    """What the stream of events still holds, back to when the message was enqueued."""
    for _ in range(_MOST_PAGES):
        entries: RawReply = _ask(queue, ("XREVRANGE", queue.calls.keys.events, last, first, "COUNT", _PAGE))
        if not entries:
            return
        for entry_id, fields in entries:
            last = "(" + entry_id.decode()
            for event in _events_of(dict(zip(fields[::2], fields[1::2], strict=True)), message):
                yield PastEvent(int(entry_id.split(b"-")[0]), str(event.get("event")), event)
                if event.get("event") == ENQUEUED:
                    return


def _events_of(fields: dict[bytes, bytes], message: MessageId) -> list[dict[str, Any]]:
    for name, block in fields.items():
        if name in {b"n", b"v"}:
            continue
        with suppress(ValueError, zlib.error):  # a block of a later version is passed over
            if message.encode() not in expand(name.decode(), block):
                return []  # seen without parsing: most blocks are about others
            void = frozenset(int(each) for each in fields.get(b"v", b"").split(b",") if each)
            events = decode_block(name.decode(), block, void)
            return [event for event in events if event.get("task_id") == message]
    return []


def _ask(queue: WorkQueue, command: Command) -> Reply:
    return queue.store.send([command], queue.calls.keys.meta)[0]
