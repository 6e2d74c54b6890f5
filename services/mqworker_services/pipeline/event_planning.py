"""Which events come next, and how they are cut up for Spark's tasks: the streams are asked here."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Final

from mqworker.events import EventStreams, StreamTail, id_order
from mqworker_services.pipeline.offsets import (
    EventsLost,
    ForeignHistory,
    Mark,
    Offset,
    Slice,
    check_history,
    mark_before,
    sliced,
    taken,
)
from mqworker_services.pipeline.options import OnLoss, Starting

_LAST_IN_MS: Final = 2**64 - 1
"""The highest number that a block of one millisecond can have."""


def next_offset(
    streams: EventStreams,
    start: Offset,
    tails: Mapping[str, StreamTail],
    most_events: int | None,
    on_loss: OnLoss,
) -> Offset:
    """The end of the batch that begins at `start`, of at most so many events; `start` if nothing is new.

    A block is never cut: only a batch of a single block may hold more.
    """
    end, events = dict(start), 0
    behind = [queue for queue, tail in tails.items() if _is_behind(start.get(queue, Mark()), tail)]
    # Whoever is furthest behind comes first: a queue that gets nothing now is first next time.
    behind.sort(key=lambda queue: id_order(start.get(queue, Mark()).id))
    for position, queue in enumerate(behind):
        # What one queue does not use of its share is left to those after it.
        share = None if most_events is None else (most_events - events) // (len(behind) - position)
        mark = start.get(queue, Mark())
        if on_loss == "fail":
            _check(queue, mark, tails[queue])
        listed = streams.listed(queue, mark.id, tails[queue].newest)
        first = next(listed, None)
        if first is not None and events and share is not None and first[1] > share:
            continue
        blocks = [] if first is None else taken(chain([first], listed), share)
        end[queue] = _reached(mark, tails[queue], [block_id for block_id, _ in blocks])
        events += sum(count for _, count in blocks)
    return end


def starting_mark(streams: EventStreams, queue: str, tail: StreamTail, starting: Starting) -> Mark:
    """The mark before the first block that a read begins with."""
    if starting == "earliest":
        return mark_before(tail)
    before = tail.newest if starting == "latest" else f"{max(0, starting - 1)}-{_LAST_IN_MS}"
    ahead = 0 if starting == "latest" else sum(1 for _ in streams.listed(queue, before, tail.newest))
    return Mark(before, tail.appended - ahead) if ahead else Mark(tail.newest, tail.appended)


def slices_between(streams: EventStreams, start: Offset, end: Offset, events_per_slice: int) -> list[Slice]:
    """What one Spark task each shall read of the batch between two offsets."""
    return [
        piece
        for queue, mark in end.items()
        if mark != (begin := start.get(queue, Mark()))
        for piece in sliced(queue, begin.id, streams.listed(queue, begin.id, mark.id), events_per_slice)
    ]


def trim(streams: EventStreams, offset: Offset) -> int:
    """Drop what lies behind an offset; how many blocks."""
    return sum(streams.trim(queue, mark.id) for queue, mark in offset.items() if mark != Mark())


def _check(queue: str, mark: Mark, tail: StreamTail) -> None:
    """As check_history, with what a reader may do about it."""
    try:
        check_history(queue, mark, tail)
    except (EventsLost, ForeignHistory) as error:
        raise type(error)(f"{error}; to go on with what is there: on_loss=skip") from error


def _is_behind(mark: Mark, tail: StreamTail) -> bool:
    return mark.id != tail.newest or mark.blocks != tail.appended


def _reached(mark: Mark, tail: StreamTail, block_ids: list[str]) -> Mark:
    if not block_ids or block_ids[-1] == tail.newest:
        return Mark(tail.newest, tail.appended, mark.skipped)
    return Mark(block_ids[-1], mark.blocks + len(block_ids), mark.skipped)
