"""Verify: the lake against its checkpoint. Nothing missing, nothing twice, no file broken."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mqworker_services.pipeline.checkpoint import NONE_YET, Checkpoint
from mqworker_services.pipeline.lake import COMPACTED, Lake, read_lake
from mqworker_services.pipeline.lake_files import count_rows
from mqworker_services.pipeline.offsets import Mark, Offset

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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

    @property
    def is_sound(self) -> bool:
        """Whether everything is there, once."""
        return self.rows == self.distinct and not self.missing_by_queue

    def problems(self) -> list[str]:
        """What is wrong, a sentence each."""
        doubled = (
            [f"{self.rows - self.distinct:,} rows are in the lake twice"] if self.rows > self.distinct else []
        )
        return doubled + [
            f"queue {queue}: {count:,} blocks of events are missing"
            if count > 0
            else f"queue {queue}: {-count:,} blocks of events are there that the checkpoint does not know"
            for queue, count in sorted(self.missing_by_queue.items())
        ]


def verify(spark: SparkSession, lake: Lake) -> Verification:
    """Read the whole lake and compare; raises BrokenFile or EmptyLake where there is nothing to compare."""
    count_rows(lake.events)  # names the file that is broken; Spark would name a task
    checkpoint = Checkpoint(lake.checkpoint)
    committed = checkpoint.committed()
    # What was written and not committed yet will be written again: it is neither missing nor too much.
    rows = read_lake(spark, lake).where(f"int(replace(batch, '{COMPACTED}', '')) <= {committed}")
    rows.createOrReplaceTempView("archived")
    found = spark.sql(_COUNTS).collect()
    blocks = {row["queue"]: row["blocks"] for row in found}
    return Verification(
        rows=sum(row["rows"] for row in found),
        distinct=sum(row["distinct_rows"] for row in found),
        blocks=sum(blocks.values()),
        missing_by_queue=missing(blocks, checkpoint.end_of(NONE_YET), checkpoint.end_of(committed)),
    )


def missing(found: Mapping[str, int], start: Offset, end: Offset) -> dict[str, int]:
    """By how many blocks each queue's history in the lake falls short of the checkpoint. Pure."""
    short = {
        queue: mark.blocks - start.get(queue, Mark()).blocks - found.get(queue, 0)
        for queue, mark in end.items()
    } | {queue: -count for queue, count in found.items() if queue not in end}
    return {queue: count for queue, count in short.items() if count}
