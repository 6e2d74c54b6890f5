"""Verify: the lake against its checkpoint. Nothing missing, nothing twice, no file broken."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mqworker_services.pipeline.checkpoint import NONE_YET, Checkpoint
from mqworker_services.pipeline.lake import COMPACTED, Lake, batch_name, read_lake
from mqworker_services.pipeline.lake_files import count_rows
from mqworker_services.pipeline.losses import Loss, beginning_told, book_of, dropped_before
from mqworker_services.pipeline.offsets import Mark, Offset

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

_COUNTS = """
    SELECT queue, sum(rows) AS rows, sum(distinct_rows) AS distinct_rows, count(*) AS blocks
    FROM (
        SELECT queue, block, count(*) AS rows, count(DISTINCT seq) AS distinct_rows
        FROM archived GROUP BY queue, block
    ) GROUP BY queue
"""


@dataclass(frozen=True, slots=True)
class Verification:
    """What was found."""

    rows: int
    distinct: int
    blocks: int
    missing_by_queue: dict[str, int] = field(default_factory=dict)
    """Blocks that the checkpoint says were archived and that are not there; less than 0: too many are."""
    gone: tuple[str, ...] = ()
    """Batches that were committed and whose files are not there, a sentence each."""
    losses: tuple[Loss, ...] = ()
    dropped_before: dict[str, int] = field(default_factory=dict)
    """Blocks of each queue that were dropped before the archive began."""

    @property
    def is_sound(self) -> bool:
        """Whether everything that was archived is there, once, and no queue stands still."""
        return not self.problems()

    def notes(self) -> list[str]:
        """What the lake does not hold and need not, a sentence each."""
        before = [beginning_told(queue, blocks) for queue, blocks in sorted(self.dropped_before.items())]
        return before + [f"{loss.told()}; accepted" for loss in self.losses if loss.is_accepted]

    def problems(self) -> list[str]:
        """What is wrong, a sentence each."""
        doubled = (
            [f"{self.rows - self.distinct:,} rows are in the lake twice"] if self.rows > self.distinct else []
        )
        standing = [
            f"{loss.told()}; it stands still until `archive --accept-loss {loss.queue}`"
            for loss in self.losses
            if not loss.is_accepted
        ]
        counted = [
            f"queue {queue}: {count:,} blocks of events are missing"
            if count > 0
            else f"queue {queue}: {-count:,} blocks of events are there that the checkpoint does not know"
            for queue, count in sorted(self.missing_by_queue.items())
        ]
        return [*self.gone, *doubled, *counted, *standing]


def verify(spark: SparkSession, lake: Lake) -> Verification:
    """Read the whole lake and compare; raises BrokenFile or EmptyLake where there is nothing to compare."""
    count_rows(lake.events)  # names the file that is broken; Spark would name a task
    checkpoint = Checkpoint(lake.checkpoint)
    committed = checkpoint.committed()
    found = _found(spark, lake, committed)
    blocks = {row["queue"]: row["blocks"] for row in found}
    return Verification(
        rows=sum(row["rows"] for row in found),
        distinct=sum(row["distinct_rows"] for row in found),
        blocks=sum(blocks.values()),
        missing_by_queue=missing(blocks, checkpoint.end_of(NONE_YET), checkpoint.end_of(committed)),
        gone=tuple(gone_batches(lake, checkpoint)),
        losses=tuple(book_of(lake).all()),
        dropped_before=dropped_before(lake),
    )


def _found(spark: SparkSession, lake: Lake, committed: int) -> list[Row]:
    """Rows and blocks of each queue, in what was committed."""
    if next(lake.batches(), None) is None and committed > NONE_YET:
        return []  # the checkpoint tells what should be there
    # What was written and not committed yet will be written again: it is neither missing nor too much.
    rows = read_lake(spark, lake).where(f"int(replace(batch, '{COMPACTED}', '')) <= {committed}")
    rows.createOrReplaceTempView("archived")
    return spark.sql(_COUNTS).collect()


def gone_batches(lake: Lake, checkpoint: Checkpoint) -> Iterator[str]:
    """Each of the newest committed batches of which a day is neither there nor compacted."""
    there: dict[str, set[str]] = {}
    for date, name in lake.batches():
        there.setdefault(date, set()).add(name)
    for batch in checkpoint.known_batches():
        for date, rows in sorted(checkpoint.rows_of(batch).items()):
            here = there.get(date, set())
            # A compacted batch has the number of the newest that it replaced.
            if batch_name(batch) not in here and max(here, default="") < COMPACTED + batch_name(batch):
                yield f"batch {batch} was committed with {rows:,} events of {date}, and its files are gone"


def missing(found: Mapping[str, int], start: Offset, end: Offset) -> dict[str, int]:
    """By how many blocks each queue's history in the lake falls short of the checkpoint. Pure."""
    short = {
        queue: mark.read - start.get(queue, Mark()).read - found.get(queue, 0) for queue, mark in end.items()
    } | {queue: -count for queue, count in found.items() if queue not in end}
    return {queue: count for queue, count in short.items() if count}
