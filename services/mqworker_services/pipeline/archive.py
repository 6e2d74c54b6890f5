"""Archive: events go from the Redis streams into the lake, each exactly once, whatever is killed and when.

The end of a batch is noted, its events are written to a folder of their own, that is put in place with one
rename, and the commit is noted. A batch that was not committed is written again, over itself. Redis is
trimmed only behind what was committed.

Not a streaming query of Spark: that starts a process for its source and gives up when it takes ten seconds,
which a busy machine may need.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from time import sleep
from typing import TYPE_CHECKING, Final

from mqworker.errors import MqworkerError
from mqworker.events import EventStreams, StreamTail, open_event_streams
from mqworker.settings import Settings
from mqworker_services.pipeline.archive_batch import staging_of, write_batch
from mqworker_services.pipeline.checkpoint import NONE_YET, Checkpoint
from mqworker_services.pipeline.event_planning import next_offset, slices_between, trim
from mqworker_services.pipeline.lake import COMPACTED, Lake
from mqworker_services.pipeline.lake_files import exclusive
from mqworker_services.pipeline.offsets import check_history, mark_before
from mqworker_services.pipeline.options import EVENTS_PER_PARTITION, MAX_EVENTS_PER_BATCH, OnLoss, ReadOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BLOCKS_HELD: Final = 1_000_000


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

    @property
    def checkpoint(self) -> Checkpoint:
        """How far it has come."""
        return Checkpoint(self.lake.checkpoint)


Report = Callable[[int, int], None]
"""Called with the number of a batch and its events, once they are in place and before the commit."""


def archive_once(spark: SparkSession, plan: ArchivePlan, report: Report) -> None:
    """Archive everything that is there now."""
    with exclusive(plan.lake.lock), open_event_streams(plan.settings) as streams:
        prepare(plan, streams)
        _archive_present(spark, plan, streams, report)


def archive_and_follow(spark: SparkSession, plan: ArchivePlan, report: Report) -> None:
    """Archive what is there and what comes, until interrupted."""
    with (
        exclusive(plan.lake.lock),
        open_event_streams(plan.settings) as streams,
        suppress(KeyboardInterrupt),
    ):
        prepare(plan, streams)
        while True:
            _archive_present(spark, plan, streams, report)
            sleep(plan.interval_s)


def prepare(plan: ArchivePlan, streams: EventStreams) -> None:
    """Tidy up behind a killed run, see that the streams go on where the lake ends, and hold them."""
    lake, checkpoint = plan.lake, plan.checkpoint
    shutil.rmtree(staging_of(lake), ignore_errors=True)
    lake.events.mkdir(parents=True, exist_ok=True)
    refuse_old_checkpoint(newest_batch(lake), checkpoint.planned(), lake)
    hold(streams, plan.blocks_held, streams.queues())
    if checkpoint.planned() == NONE_YET:
        checkpoint.plan(NONE_YET, {queue: mark_before(streams.tail(queue)) for queue in streams.queues()})
    elif plan.on_loss == "fail":
        for queue, mark in checkpoint.end_of(checkpoint.committed()).items():
            check_history(queue, mark, streams.tail(queue))


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


def _archive_present(spark: SparkSession, plan: ArchivePlan, streams: EventStreams, report: Report) -> None:
    """Batch after batch, as far as the streams reach now; first the one that a killed run left behind."""
    checkpoint = plan.checkpoint
    tails: dict[str, StreamTail] = {queue: streams.tail(queue) for queue in streams.queues()}
    while _is_planned(plan, streams, tails):
        batch = checkpoint.committed() + 1
        start, end = checkpoint.end_of(batch - 1), checkpoint.end_of(batch)
        # Queues that came into being since the batch before have the usual cap.
        hold(streams, plan.blocks_held, set(end) - set(start))
        pieces = slices_between(streams, start, end, plan.events_per_partition)
        options = ReadOptions(plan.settings, on_loss=plan.on_loss)
        report(batch, write_batch(spark, plan.lake, options, pieces, batch))
        checkpoint.commit(batch)
        _trim(plan, streams)
    _trim(plan, streams)  # also what a run committed that was killed before it could trim


def _is_planned(plan: ArchivePlan, streams: EventStreams, tails: dict[str, StreamTail]) -> bool:
    """Whether there is a batch to be written: one that was planned, or one that is planned now."""
    checkpoint = plan.checkpoint
    batch = checkpoint.committed() + 1
    if checkpoint.planned() >= batch:
        return True
    start = checkpoint.end_of(batch - 1)
    end = next_offset(streams, start, tails, plan.max_events_per_batch, plan.on_loss)
    if end == start:
        return False
    checkpoint.plan(batch, end)
    return True


def _trim(plan: ArchivePlan, streams: EventStreams) -> None:
    if plan.is_trimming:
        trim(streams, plan.checkpoint.end_of(plan.checkpoint.committed()))
