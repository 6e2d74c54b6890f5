"""Finding jobs: a filter over what waits, is held, dead or ended, in slices that tell how far they went.

Nothing here is indexed: a slice reads so many messages and stops. Whoever wants more goes on from its cursor.
A line moves while it is read, so between two slices a message may be passed over or seen twice.

Who searches a long line rests after each page, several times as long as the page took: so it has a small part
of the server, and of the machine, and less of one that is slow because it is busy.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal

from mqworker.errors import InvalidArgument, InvalidMessage
from mqworker.model.clock import SystemClock
from mqworker.model.dead_letter import decode_dead_letter
from mqworker.model.event import decode_block
from mqworker.model.names import ConsumerName, MessageId, shown
from mqworker.model.record import decode_record
from mqworker.operate.job_filter import ENDED, LIVING, Candidate, JobFilter, fits, may_fit, tags_in
from mqworker.operate.system import System
from mqworker.queues.work.queue import WorkQueue
from mqworker.queues.work.steps import LIMITED_AT_MS
from mqworker.store.command import Command
from mqworker.store.script import RawReply

MOST_FOUND = 100
MOST_LOOKED_AT = 20_000
_PAGE = 250
"""Messages in one round trip: a megabyte or so, and far below a millisecond on the server."""
_REST = 16
"""Times as long as a page took; then the search has a sixteenth of a core at the most."""
_LONGEST_REST_S = 0.05


@dataclass(frozen=True, slots=True)
class FoundJob:
    """One that fits."""

    id: str
    queue: str
    state: str
    task: str
    enqueued_at_ms: int | None
    attempt: int
    error: str = ""
    at_ms: int | None = None
    """When it is due, was buried, or ended."""
    tags: tuple[str, ...] = ()
    place: int = 0
    """How many lay before it, in the order in which its state is searched."""


@dataclass(frozen=True, slots=True)
class SearchSlice:
    """What was found, how many were looked at, and where to go on; no cursor: all was seen."""

    jobs: tuple[FoundJob, ...]
    looked_at: int
    cursor: str | None
    source: Literal["redis", "lake"] = "redis"


def search(
    system: System,
    wanted: JobFilter,
    cursor: str | None = None,
    *,
    most: int = MOST_FOUND,
    budget: int = MOST_LOOKED_AT,
) -> SearchSlice:
    """One slice: up to `most` jobs, out of `budget` messages at the most, about."""
    now_ms = system.now_ms()
    names = [wanted.queue] if wanted.queue else system.queue_names()
    places = [
        (name, state) for state in (*LIVING, *ENDED) if state in wanted.searched_states for name in names
    ]
    at, offset = _position(places, cursor)
    jobs: list[FoundJob] = []
    looked_at = 0
    queues = {name: system.queue(name) for name in names} if wanted.queue else {}
    for position in range(at, len(places)):
        name, state = places[position]
        queue = queues.get(name) or system.open_queue(name)
        for job, candidate, offset_after in lying(queue, state, offset, wanted):
            looked_at += 1
            if job is not None and fits(wanted, candidate, now_ms):
                tags = tags_in(candidate.body) if candidate.tags is None else candidate.tags
                jobs.append(replace(job, tags=tags, place=offset_after - 1))
            if len(jobs) >= most or looked_at >= budget:
                return SearchSlice(tuple(jobs), looked_at, f"{position}:{offset_after}")
        offset = 0
    return SearchSlice(tuple(jobs), looked_at, None)


def _position(places: Sequence[tuple[str, str]], cursor: str | None) -> tuple[int, int]:
    if not cursor:
        return 0, 0
    place, _, offset = cursor.partition(":")
    if not (place.isdecimal() and offset.isdecimal() and int(place) <= len(places)):
        raise InvalidArgument(f"cursor is {shown(cursor)}; accepted is what the slice before gave")
    return int(place), int(offset)


# Shared with bulk.py: whoever acts on what is found goes through the places in the same way.
Lying = tuple[FoundJob | None, Candidate, int]
"""What lies at a place, None for a hole, foreign bytes or another kind of event; and the place behind it."""
_NOTHING = Candidate("", "", None)


def lying(queue: WorkQueue, state: str, offset: int, wanted: JobFilter) -> Iterator[Lying]:
    """What lies in one state of one queue, from a place on; None also for what surely does not fit."""
    match state:
        case "ready":
            yield from _ready(queue, offset, wanted)
        case "delayed" | "limited":
            yield from _delayed(queue, state, offset, wanted)
        case "leased":
            yield from _leased(queue, offset)
        case "dead":
            yield from _dead(queue, offset)
        case _:
            yield from _ended(queue, state, offset)


class _Pace:
    """Rests between the pages of a long line; a first page comes at once."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._began_s: float | None = None

    def begin_page(self) -> None:
        """Another one is about to be read."""
        now_s = self._clock.monotonic_s()
        if self._began_s is not None:
            time.sleep(min(_LONGEST_REST_S, _REST * (now_s - self._began_s)))
        self._began_s = self._clock.monotonic_s()


def _ready(queue: WorkQueue, offset: int, wanted: JobFilter) -> Iterator[Lying]:
    """Those with a priority first, then the line, as they will be delivered."""
    keys, pace = queue.calls.keys, _Pace()
    while True:
        pace.begin_page()
        urgent_count: RawReply = _ask(queue, ("ZCARD", keys.named("urgent")))
        if offset < urgent_count:
            records: RawReply = _ask(queue, ("ZRANGE", keys.named("urgent"), offset, offset + _PAGE - 1))
        else:
            first = offset - urgent_count
            records = _ask(queue, ("LRANGE", keys.named("ready"), first, first + _PAGE - 1))
        if not records:
            return
        for record in records:
            offset += 1
            if may_fit(wanted, record):
                yield from _as_job(queue, "ready", record, offset)
            else:
                yield None, _NOTHING, offset


def _delayed(queue: WorkQueue, state: str, offset: int, wanted: JobFilter) -> Iterator[Lying]:
    """What waits for an instant, the next one first; or for its limits, which is due after all instants."""
    keys, pace = queue.calls.keys, _Pace()
    between = ("-inf", f"({LIMITED_AT_MS}") if state == "delayed" else (LIMITED_AT_MS, "+inf")
    while True:
        pace.begin_page()
        order: RawReply = _ask(
            queue,
            (
                "ZRANGE",
                keys.named("delayed"),
                *between,
                "BYSCORE",
                "LIMIT",
                offset,
                _PAGE,
                "WITHSCORES",
            ),
        )
        if not order:
            return
        records: RawReply = _ask(queue, ("HMGET", keys.named("parcels"), *order[::2]))
        for record, due_at_ms in zip(records, order[1::2], strict=True):
            offset += 1
            if may_fit(wanted, record or b""):
                at_ms = int(float(due_at_ms)) if state == "delayed" else None
                yield from _as_job(queue, state, record or b"", offset, at_ms)
            else:
                yield None, _NOTHING, offset


def _leased(queue: WorkQueue, offset: int) -> Iterator[Lying]:
    """All that is held, which is bounded by what nodes fetch ahead; in the order of the fences."""
    consumers: list[ConsumerName | None] = [None, *queue.consumers()]
    records: list[tuple[int, bytes]] = []
    for consumer in consumers:
        fields: RawReply = _ask(queue, ("HGETALL", queue.calls.keys.held(consumer)))
        records += [
            (int(fence), record)
            for fence, record in zip(fields[::2], fields[1::2], strict=True)
            if fence.isdigit()
        ]
    for position, (_, record) in enumerate(sorted(records)[offset:], start=offset + 1):
        yield from _as_job(queue, "leased", record, position)


def _dead(queue: WorkQueue, offset: int) -> Iterator[Lying]:
    """The newest first."""
    keys, pace = queue.calls.keys, _Pace()
    while True:
        pace.begin_page()
        order: RawReply = _ask(
            queue, ("ZREVRANGE", keys.named("dead"), offset, offset + _PAGE - 1, "WITHSCORES")
        )
        if not order:
            return
        letters: RawReply = _ask(queue, ("HMGET", keys.named("letters"), *order[::2]))
        for id_, at, stored in zip(order[::2], order[1::2], letters, strict=True):
            offset += 1
            letter = decode_dead_letter(
                MessageId(id_.decode(errors="replace")), int(float(at)), stored or b""
            )
            message = letter.message
            error = f"{letter.error}: {letter.error_message}" if letter.error else letter.reason
            since = message.enqueued_at_ms if message else None
            task = message.task if message else "?"
            attempts = max(1, message.deliveries) if message else 1
            job = FoundJob(letter.id, queue.name, "dead", task, since, attempts, error, letter.buried_at_ms)
            yield job, Candidate(letter.id, task, since, error, message.body if message else None), offset


def _ended(queue: WorkQueue, state: str, offset: int) -> Iterator[Lying]:
    """From the events that are kept, the newest first; arguments are not among them."""
    last, seen, pace = "+", 0, _Pace()
    while True:
        pace.begin_page()
        blocks: RawReply = _ask(
            queue, ("XREVRANGE", queue.calls.keys.events, last, "-", "COUNT", _PAGE // 10)
        )
        if not blocks:
            return
        for entry_id, fields in blocks:
            last = "(" + entry_id.decode()
            at_ms = int(entry_id.split(b"-")[0])
            for event in reversed(_events(dict(zip(fields[::2], fields[1::2], strict=True)))):
                seen += 1
                if event.get("event") != state:
                    yield None, _NOTHING, seen
                elif seen > offset:
                    yield (*_as_ended(queue, state, event, at_ms), seen)


def _as_ended(queue: WorkQueue, state: str, event: dict[str, Any], at_ms: int) -> tuple[FoundJob, Candidate]:
    id_, task = str(event.get("task_id", "?")), str(event.get("task", "?"))
    since, attempt = event.get("enqueued_at"), event.get("attempt", 1)
    enqueued_at_ms = since if isinstance(since, int) else None
    job = FoundJob(id_, queue.name, state, task, enqueued_at_ms, int(attempt), at_ms=at_ms)
    tags = event.get("tags")
    known = tuple(map(str, tags)) if isinstance(tags, list) else ()
    return job, Candidate(id_, task, enqueued_at_ms, tags=known)


def _events(fields: dict[bytes, bytes]) -> list[dict[str, Any]]:
    for codec, block in fields.items():
        if codec not in {b"n", b"v"}:
            with suppress(ValueError, zlib.error):  # a block of a later version is passed over
                void = frozenset(int(each) for each in fields.get(b"v", b"").split(b",") if each)
                return decode_block(codec.decode(), block, void)
    return []


def _as_job(
    queue: WorkQueue, state: str, record: bytes, offset: int, at_ms: int | None = None
) -> Iterator[Lying]:
    try:
        delivery = decode_record(record, fence=0)
    except InvalidMessage:
        yield None, _NOTHING, offset
        return
    job = FoundJob(
        delivery.id,
        queue.name,
        state,
        delivery.task,
        delivery.enqueued_at_ms,
        delivery.deliveries + 1,
        at_ms=at_ms,
    )
    yield job, Candidate(delivery.id, delivery.task, delivery.enqueued_at_ms, "", delivery.body), offset


def _ask(queue: WorkQueue, command: Command) -> RawReply:
    return queue.store.send([command], queue.calls.keys.meta)[0]
