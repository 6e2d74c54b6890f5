"""How far a reader of event streams has come, and whether what it wants to read next is still there. Pure.

An offset holds a mark for each queue: the id of the last block read, and how many blocks were ever appended
up to it. An id alone cannot show that blocks were dropped behind it; the number can.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from mqworker.errors import MqworkerError
from mqworker.events import BEGINNING, StreamTail, id_order

# Any: as Spark keeps it, JSON: {queue: {"id": text, "blocks": number, "skipped": number, if any}}
OffsetDocument: TypeAlias = dict[str, Any]
Offset: TypeAlias = dict[str, "Mark"]


class EventsLost(MqworkerError):
    """Look into it, then go on with `on_loss=skip`: events were dropped before they were read."""


class ForeignHistory(MqworkerError):
    """Stop: the offset belongs to another server, or to a server that forgot what it had."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Where reading stands in the stream of one queue."""

    id: str = BEGINNING
    blocks: int = 0
    skipped: int = 0
    """How many of these blocks were never read: lost, and the loss was accepted. Less than 0: the stream was
    made anew and counts from 1 again."""

    @property
    def read(self) -> int:
        """How many blocks were read up to here, and what was dropped before the first."""
        return self.blocks - self.skipped


@dataclass(frozen=True, slots=True)
class Slice:
    """Consecutive blocks of one queue that one Spark task reads."""

    queue: str
    after: str
    until: str
    blocks: int
    events: int


def as_document(offset: Mapping[str, Mark]) -> OffsetDocument:
    """An offset as Spark keeps it."""
    return {
        queue: {"id": mark.id, "blocks": mark.blocks} | ({"skipped": mark.skipped} if mark.skipped else {})
        for queue, mark in sorted(offset.items())
    }


def from_document(document: OffsetDocument) -> Offset:
    """An offset from what Spark kept."""
    return {
        queue: Mark(str(mark["id"]), int(mark["blocks"]), int(mark.get("skipped", 0)))
        for queue, mark in document.items()
    }


def mark_before(tail: StreamTail) -> Mark:
    """The mark before everything that is still there."""
    return Mark(BEGINNING, tail.dropped)


def check_history(queue: str, mark: Mark, tail: StreamTail) -> None:
    """Raise when the stream does not go on where the mark stands."""
    if tail.appended < mark.blocks or id_order(tail.newest) < id_order(mark.id):
        raise ForeignHistory(
            f"queue {queue}: block {mark.blocks:,} ({mark.id}) was read before, but the server has seen only "
            f"{tail.appended:,} up to {tail.newest}: the queue was deleted, or it is another server, or one "
            "that was emptied or lost its newest writes in a crash"
        )
    if tail.dropped > mark.blocks:
        raise EventsLost(
            f"queue {queue}: {tail.dropped - mark.blocks:,} blocks of events were dropped before they were "
            "read: the checkpoint is an old one, or events_kept was too small"
        )


def resumed(mark: Mark, tail: StreamTail, ahead: int) -> Mark:
    """Where reading goes on in a stream with a loss that was accepted; `ahead` blocks lie behind the mark."""
    is_shorter = id_order(tail.newest) < id_order(mark.id)
    blocks = tail.appended if is_shorter else tail.appended - ahead
    return Mark(tail.newest if is_shorter else mark.id, blocks, mark.skipped + blocks - mark.blocks)


def taken(blocks: Iterable[tuple[str, int]], most_events: int | None) -> list[tuple[str, int]]:
    """The first blocks (id, events) that hold at most so many events; one at least, or nothing would move."""
    chosen: list[tuple[str, int]] = []
    events = 0
    for block_id, count in blocks:
        events += count
        if chosen and most_events is not None and events > most_events:
            break
        chosen.append((block_id, count))
    return chosen


def sliced(
    queue: str, after: str, blocks: Iterable[tuple[str, int]], events_per_slice: int
) -> Iterator[Slice]:
    """Consecutive blocks cut where about so many events are together."""
    first, last, number, events = after, after, 0, 0
    for block_id, count in blocks:
        if number and events + count > events_per_slice:
            yield Slice(queue, first, last, number, events)
            first, number, events = last, 0, 0
        last, number, events = block_id, number + 1, events + count
    if number:
        yield Slice(queue, first, last, number, events)
