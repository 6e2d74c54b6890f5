"""One batch of the archive: slices of streams become Parquet files, and those get their place in the lake."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from mqworker.events import id_order
from mqworker_services.pipeline.days import day_of
from mqworker_services.pipeline.event_reading import read_slice
from mqworker_services.pipeline.lake import Lake, batch_name
from mqworker_services.pipeline.lake_files import count_rows, install
from mqworker_services.pipeline.offsets import Slice
from mqworker_services.pipeline.options import ReadOptions
from mqworker_services.pipeline.schema import SPARK_SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def write_batch(
    spark: SparkSession, lake: Lake, options: ReadOptions, pieces: Sequence[Slice], batch: int
) -> int:
    """Write one batch into its folders, over whatever an earlier attempt left there; how many events."""
    if not pieces:
        return 0
    # A name of its own: Spark tasks of a killed archiver may go on for a moment.
    staging = staging_of(lake) / secrets.token_hex(4)
    numbers = spark.range(0, len(pieces), 1, len(pieces))
    rows = numbers.mapInArrow(_reader(options, pieces), SPARK_SCHEMA)
    day = single_day(pieces)
    if day is None:
        rows.selectExpr("*", "date(ts) AS date").write.partitionBy("date").parquet(str(staging))
    else:  # Spark would sort all rows by their day first
        rows.write.parquet(str(staging / f"date={day}"))
    events = count_rows(staging)
    for folder in sorted(staging.glob("date=*")):
        install(folder, lake.folder(folder.name.removeprefix("date="), batch_name(batch)))
    shutil.rmtree(staging, ignore_errors=True)
    return events


def staging_of(lake: Lake) -> Path:
    """Where batches are written before they are complete."""
    return lake.root / "_mqworker" / "staging"


def single_day(pieces: Sequence[Slice]) -> str | None:
    """The day of all events of the slices, in UTC; None when there are several, or it cannot be told."""
    days = {day_of(id_order(edge)[0]) for piece in pieces for edge in (piece.after, piece.until)}
    return days.pop() if len(days) == 1 else None


def _reader(
    options: ReadOptions, pieces: Sequence[Slice]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What a Spark task does with the numbers of the slices that it got."""

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from read_slice(options, pieces[number])

    return read
