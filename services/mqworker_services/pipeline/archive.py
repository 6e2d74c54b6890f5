"""Archive: events go from the Redis streams into the lake, each exactly once, whatever is killed and when.

The end of a batch is noted, executors write its events to a folder of their own, the driver compares their
receipts with the plan and with what it sees itself, the files are put in place with one rename for each day,
and the commit is noted. A batch that was not committed is written again, over itself. Redis is trimmed only
behind what was committed.

A queue whose stream does not go on where the lake ends stands still until the loss is accepted, by its name;
the others go on.

Not a streaming query of Spark: that starts a process for its source and gives up when it takes ten seconds,
which a busy machine may need.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from time import sleep
from typing import TYPE_CHECKING, Final

from mqworker.errors import InvalidArgument, MqworkerError
from mqworker.events import EventStreams, StreamTail, open_event_streams
from mqworker.settings import Settings
from mqworker_services.pipeline.archive_batch import BatchContent, RowsNotArrived, staging_of, write_batch
from mqworker_services.pipeline.checkpoint import NONE_YET, Checkpoint
from mqworker_services.pipeline.event_planning import next_offset, slices_between, trim
from mqworker_services.pipeline.lake import COMPACTED, Lake
from mqworker_services.pipeline.lake_files import exclusive
from mqworker_services.pipeline.losses import Loss, beginning_told, book_of, dropped_before
from mqworker_services.pipeline.offsets import (
    EventsLost,
    ForeignHistory,
    Mark,
    Offset,
    Slice,
    check_history,
    mark_before,
    resumed,
)
from mqworker_services.pipeline.options import EVENTS_PER_PARTITION, MAX_EVENTS_PER_BATCH, OnLoss

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BLOCKS_HELD: Final = 1_000_000
_TRIES: Final = 3
"""Of a batch whose blocks are dropped while it is read."""


class CheckpointTooOld(MqworkerError):
    """Restore the newest checkpoint: going on from an old one would archive events a second time."""


@dataclass(frozen=True, slots=True)
class ArchivePlan:
    """What the archiver was asked to do."""

    settings: Settings
    lake: Lake
    is_trimming: bool = False
    on_loss: OnLoss = "fail"
    max_events_per_batch: int = MAX_EVENTS_PER_BATCH
    events_per_partition: int = EVENTS_PER_PARTITION
    blocks_held: int = BLOCKS_HELD
    """How many blocks each stream may hold while they wait to be archived."""
    interval_s: float = 5.0
    accept_loss: tuple[str, ...] = ()
    """Queues that go on with what they have, whatever was lost; `on_loss="skip"`: all."""
    warn: Callable[[str], None] = lambda _sentence: None
    """Told what is lost, once."""

    @property
    def checkpoint(self) -> Checkpoint:
        """How far it has come."""
        return Checkpoint(self.lake.checkpoint)


Report = Callable[[int, int], None]
"""Called with the number of a batch and its events, once they are in place and before the commit."""


def archive_once(spark: SparkSession, plan: ArchivePlan, report: Report) -> None:
    """Archive everything that is there now; raises at the end when a queue had to stand still."""
    with exclusive(plan.lake.lock), open_event_streams(plan.settings) as streams:
        prepare(plan, streams)
        stopped = archive_present(spark, plan, streams, report)
    if stopped:
        raise _summary(stopped)


def archive_and_follow(spark: SparkSession, plan: ArchivePlan, report: Report) -> None:
    """Archive what is there and what comes, until interrupted."""
    with (
        exclusive(plan.lake.lock),
        open_event_streams(plan.settings) as streams,
        suppress(KeyboardInterrupt),
    ):
        prepare(plan, streams)
        while True:
            archive_present(spark, plan, streams, report)
            sleep(plan.interval_s)


def prepare(plan: ArchivePlan, streams: EventStreams) -> None:
    """Tidy up behind a killed run, see that lake and checkpoint belong together, hold the streams."""
    lake, checkpoint = plan.lake, plan.checkpoint
    shutil.rmtree(staging_of(lake), ignore_errors=True)
    lake.events.mkdir(parents=True, exist_ok=True)
    refuse_old_checkpoint(newest_batch(lake), checkpoint.planned(), lake)
    if checkpoint.planned() == NONE_YET:
        checkpoint.plan(NONE_YET, {queue: mark_before(streams.tail(queue)) for queue in streams.queues()})
        for queue, blocks in sorted(dropped_before(lake).items()):
            plan.warn(beginning_told(queue, blocks))
    known = {*streams.queues(), *checkpoint.end_of(checkpoint.committed())}
    for queue in plan.accept_loss:
        if queue not in known:
            raise InvalidArgument(f"--accept-loss is {queue!r}; accepted are {', '.join(sorted(known))}")
    hold(streams, plan.blocks_held, streams.queues())


def refuse_old_checkpoint(newest: int, planned: int, lake: Lake) -> None:
    """A lake that is ahead of its checkpoint would get the events in between a second time."""
    if newest > planned:
        raise CheckpointTooOld(
            f"the lake {lake.root} holds batch {newest}, but its checkpoint knows only up to {planned}: "
            f"{lake.checkpoint} is an older copy or was removed; restore the newest, or begin another lake"
        )


def newest_batch(lake: Lake) -> int:
    """The highest number of a batch in the lake, alone or compacted; -1 when it is empty."""
    return max((int(batch.removeprefix(COMPACTED)) for _, batch in lake.batches()), default=NONE_YET)


def hold(streams: EventStreams, blocks: int, queues: Iterable[str]) -> None:
    """Let the streams of these queues grow until they are archived."""
    for queue in queues:
        streams.hold(queue, blocks)


@dataclass(slots=True)
class _Round:
    """One look at all streams: how far they reach, and which of them must stand still."""

    tails: dict[str, StreamTail]
    stopped: dict[str, MqworkerError] = field(default_factory=dict)


def archive_present(
    spark: SparkSession, plan: ArchivePlan, streams: EventStreams, report: Report
) -> dict[str, MqworkerError]:
    """Batch after batch, as far as the streams reach now; first the one that a killed run left behind.

    Returns which queues stood still, and why.
    """
    checkpoint = plan.checkpoint
    now = _Round({queue: streams.tail(queue) for queue in streams.queues()})
    while _is_planned(plan, streams, now):
        batch = checkpoint.committed() + 1
        # Queues that came into being since the batch before have the usual cap.
        hold(streams, plan.blocks_held, _queues_of(plan, batch) & now.tails.keys())
        content = _written(spark, plan, streams, now, batch)
        report(batch, content.events)
        checkpoint.commit(batch, content.rows_by_day)
        _trim(plan, streams, now)
    _trim(plan, streams, now)  # also what a run committed that was killed before it could trim
    return now.stopped


def _queues_of(plan: ArchivePlan, batch: int) -> set[str]:
    return set(plan.checkpoint.end_of(batch)) - set(plan.checkpoint.end_of(batch - 1))


def _is_planned(plan: ArchivePlan, streams: EventStreams, now: _Round) -> bool:
    """Whether there is a batch to be written: one that was planned, or one that is planned now."""
    checkpoint = plan.checkpoint
    batch = checkpoint.committed() + 1
    if checkpoint.planned() >= batch:
        return True
    start = checkpoint.end_of(batch - 1)
    going_on = _going_on(plan, streams, start, now)
    tails = {queue: tail for queue, tail in now.tails.items() if queue not in now.stopped}
    end = next_offset(streams, going_on, tails, plan.max_events_per_batch, "skip")
    if end == start:
        return False
    checkpoint.plan(batch, end)
    return True


def _going_on(plan: ArchivePlan, streams: EventStreams, start: Offset, now: _Round) -> Offset:
    """Where each queue goes on; those with a loss that nobody accepted are stopped."""
    offset = dict(start)
    for queue in sorted({*start, *now.tails} - now.stopped.keys()):
        mark, tail = start.get(queue, Mark()), now.tails.get(queue) or streams.tail(queue)
        try:
            check_history(queue, mark, tail)
        except (EventsLost, ForeignHistory) as error:
            if _is_accepted(plan, streams, queue, mark, error):
                ahead = sum(1 for _ in streams.listed(queue, mark.id, tail.newest))
                offset[queue] = resumed(mark, tail, ahead)
            else:
                now.stopped[queue] = error
    _refuse_another_server(start, now)
    return offset


def _is_accepted(
    plan: ArchivePlan, streams: EventStreams, queue: str, mark: Mark, error: MqworkerError
) -> bool:
    """Note the loss; whether the queue may go on all the same."""
    book, tail = book_of(plan.lake), streams.tail(queue)
    is_accepted = plan.on_loss == "skip" or queue in plan.accept_loss or book.is_accepted(queue, mark)
    blocks = tail.dropped - mark.blocks if isinstance(error, EventsLost) else None
    until = next((block_id for block_id, _ in streams.listed(queue, mark.id, tail.newest)), "")
    if book.note(Loss(queue, mark.id, mark.read, blocks, until, is_accepted)):
        plan.warn(str(error))
    return is_accepted


def _refuse_another_server(start: Offset, now: _Round) -> None:
    """When not one queue goes on, the server is another: its other queues do not belong into this lake."""
    archived = {queue for queue, mark in start.items() if mark.id != Mark().id}
    foreign = [queue for queue in sorted(archived) if isinstance(now.stopped.get(queue), ForeignHistory)]
    if foreign and len(foreign) == len(archived):
        raise ForeignHistory(f"{now.stopped[foreign[0]]}{_advice(foreign)}")


def _written(
    spark: SparkSession, plan: ArchivePlan, streams: EventStreams, now: _Round, batch: int
) -> BatchContent:
    """Write a batch; when blocks are dropped meanwhile, what is left of it."""
    lost = EventsLost("")
    for _ in range(_TRIES):
        pieces = _pieces(plan, streams, now, batch)
        try:
            return write_batch(spark, plan.lake, plan.settings, pieces, batch)
        except EventsLost as error:
            lost = error  # the streams are looked at again: they may have been trimmed by somebody else
    raise RowsNotArrived(f"{lost}, though the driver sees them all; do executors reach the same server?")


def _pieces(plan: ArchivePlan, streams: EventStreams, now: _Round, batch: int) -> list[Slice]:
    """The slices of a planned batch; one whose blocks are no longer those of the plan is planned anew."""
    checkpoint = plan.checkpoint
    start, end = checkpoint.end_of(batch - 1), checkpoint.end_of(batch)
    pieces = slices_between(streams, start, end, plan.events_per_partition)
    mended = dict(end)
    for queue, mark in end.items():
        before = start.get(queue, Mark())
        found = sum(piece.blocks for piece in pieces if piece.queue == queue)
        lacking = mark.read - before.read - found
        if not lacking:
            continue
        error = (
            EventsLost(f"queue {queue}: {lacking:,} blocks of events were dropped before they were read")
            if lacking > 0
            else ForeignHistory(
                f"queue {queue}: {-lacking:,} blocks are there that were not when it was planned"
            )
        )
        if _is_accepted(plan, streams, queue, before, error):
            mended[queue] = Mark(mark.id, mark.blocks, mark.skipped + lacking)
        else:
            now.stopped[queue] = error
            mended[queue] = before
    if mended != end:
        checkpoint.plan(batch, mended)
    return [piece for piece in pieces if mended[piece.queue] != start.get(piece.queue, Mark())]


def _trim(plan: ArchivePlan, streams: EventStreams, now: _Round) -> None:
    if plan.is_trimming:
        end = plan.checkpoint.end_of(plan.checkpoint.committed())
        trim(
            streams,
            {queue: mark for queue, mark in end.items() if queue in now.tails.keys() - now.stopped.keys()},
        )


def _summary(stopped: dict[str, MqworkerError]) -> MqworkerError:
    first = min(stopped)
    kind = type(stopped[first])
    others = f" (and {len(stopped) - 1:,} more queues)" if len(stopped) > 1 else ""
    return kind(f"{stopped[first]}{others}; all other queues were archived{_advice(sorted(stopped))}")


def _advice(queues: Iterable[str]) -> str:
    return f"; to go on with what is there: {' '.join(f'--accept-loss {queue}' for queue in queues)}"
