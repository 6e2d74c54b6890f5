"""One batch of the archive: slices of streams become Parquet files, and those get their place in the lake.

Executors write the files and return a receipt for each slice: how many blocks they found, and which files
hold them, with rows and bytes. The driver compares the receipts with the plan and looks at every file itself.
Only files that a receipt names come into the lake: a Spark task that was tried twice leaves others behind.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mqworker.errors import MqworkerError
from mqworker.events import open_event_streams
from mqworker.settings import Settings
from mqworker_services.pipeline.arrow_blocks import record_batches
from mqworker_services.pipeline.days import day_of
from mqworker_services.pipeline.lake import Lake, batch_name
from mqworker_services.pipeline.lake_files import install
from mqworker_services.pipeline.offsets import EventsLost, Slice
from mqworker_services.pipeline.schema import ARROW_SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ROWS_PER_GROUP: Final = 250_000
_US_PER_DAY: Final = 86_400_000_000
_MS_PER_DAY: Final = 86_400_000


class RowsNotArrived(MqworkerError):
    """Let executors and driver see the same folder and server: what was written is not where it belongs.

    Nothing of the batch was committed, and nothing was trimmed.
    """


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file as the executor left it."""

    name: str
    day: str
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Receipt:
    """What an executor did with one slice."""

    number: int
    last: str
    """The id of the last block that was found."""
    blocks: int
    events: int
    """As the blocks themselves tell, without those that did not happen after all."""
    files: tuple[WrittenFile, ...] = ()

    @property
    def rows(self) -> int:
        """In all files."""
        return sum(file.rows for file in self.files)


@dataclass(frozen=True, slots=True)
class BatchContent:
    """What a batch that is in place holds."""

    events: int = 0
    rows_by_day: Mapping[str, int] = field(default_factory=dict)


def write_batch(
    spark: SparkSession, lake: Lake, settings: Settings, pieces: Sequence[Slice], batch: int
) -> BatchContent:
    """Write one batch into its folders, over whatever an earlier attempt left there.

    Raises EventsLost when blocks were dropped since the slices were planned, and RowsNotArrived when the rows
    are not where they belong; then the lake is as it was.
    """
    # A name of its own: Spark tasks of a killed archiver may go on for a moment.
    staging = staging_of(lake) / secrets.token_hex(4)
    staging.mkdir(parents=True)
    try:
        receipts = _written(spark, settings, pieces, staging)
        check_receipts(pieces, receipts)
        files = [file for receipt in receipts for file in receipt.files]
        check_files(staging, files)
        return _put_in_place(lake, staging, files, batch)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def staging_of(lake: Lake) -> Path:
    """Where batches are written before they are complete."""
    return lake.root / "_mqworker" / "staging"


def check_receipts(pieces: Sequence[Slice], receipts: Sequence[Receipt]) -> None:
    """Raise unless every block of the plan stands in exactly one receipt, with all its events. Pure."""
    if sorted(receipt.number for receipt in receipts) != list(range(len(pieces))):
        raise RowsNotArrived(
            f"{len(receipts):,} receipts came back for {len(pieces):,} slices; nothing was committed"
        )
    for receipt in receipts:
        piece = pieces[receipt.number]
        if (receipt.blocks, receipt.last) != (piece.blocks, piece.until):
            raise EventsLost(
                f"queue {piece.queue}: an executor found {receipt.blocks:,} of {piece.blocks:,} blocks of "
                "events; nothing was committed"
            )
        if receipt.events != receipt.rows:
            raise RowsNotArrived(
                f"queue {piece.queue}: an executor wrote {receipt.rows:,} of {receipt.events:,} events; "
                "nothing was committed"
            )


def check_files(staging: Path, files: Sequence[WrittenFile]) -> None:
    """Raise unless the driver sees every file as the executor left it."""
    lacking = [file for file in files if not _is_as_written(staging / file.name, file)]
    if lacking:
        rows = sum(file.rows for file in lacking)
        raise RowsNotArrived(
            f"executors wrote {len(files):,} files, but {len(lacking):,} of them with {rows:,} events, are "
            f"not in {staging} as they left them: executors and driver must share the folder of the lake; "
            "nothing was committed"
        )


def _is_as_written(path: Path, file: WrittenFile) -> bool:
    try:
        return path.stat().st_size == file.bytes and pq.read_metadata(path).num_rows == file.rows
    except (OSError, pa.ArrowException):
        return False


def _put_in_place(lake: Lake, staging: Path, files: Sequence[WrittenFile], batch: int) -> BatchContent:
    rows_by_day: dict[str, int] = {}
    for file in files:
        ready = staging / f"date={file.day}"
        ready.mkdir(exist_ok=True)
        (staging / file.name).rename(ready / file.name)
        rows_by_day[file.day] = rows_by_day.get(file.day, 0) + file.rows
    for earlier in lake.events.glob(f"date=*/batch={batch_name(batch)}"):
        shutil.rmtree(earlier)  # of an attempt that was not committed; its days may have been others
    for day in sorted(rows_by_day):
        install(staging / f"date={day}", lake.folder(day, batch_name(batch)))
    return BatchContent(sum(rows_by_day.values()), rows_by_day)


def _written(
    spark: SparkSession, settings: Settings, pieces: Sequence[Slice], staging: Path
) -> list[Receipt]:
    if not pieces:
        return []
    numbers = spark.range(0, len(pieces), 1, len(pieces))
    found = numbers.mapInArrow(_writer(settings, pieces, str(staging)), "receipt STRING").toArrow()
    return [_receipt(json.loads(text)) for text in found["receipt"].to_pylist()]


# Any: what JSON holds.
def _receipt(document: dict[str, Any]) -> Receipt:
    files = tuple(WrittenFile(**file) for file in document.pop("files"))
    return Receipt(**document, files=files)


def _writer(
    settings: Settings, pieces: Sequence[Slice], staging: str
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What a Spark task does with the numbers of the slices that it got."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                receipt = write_slice(settings, pieces[number], number, Path(staging))
                yield pa.RecordBatch.from_pydict({"receipt": [json.dumps(asdict(receipt))]})

    return write


def write_slice(settings: Settings, piece: Slice, number: int, staging: Path) -> Receipt:
    """Write the events of a slice into files, one for each day; on an executor."""
    if not staging.is_dir():
        # Not made here: that would be a folder on the disk of this machine alone.
        raise RowsNotArrived(
            f"an executor does not see {staging}: all executors and the driver must share the folder of the "
            "lake; nothing was committed"
        )
    files = _DayFiles(staging, number)
    blocks, events, last = 0, 0, piece.after
    with open_event_streams(settings) as streams:
        for page in streams.blocks(piece.queue, piece.after, piece.until):
            blocks, last = blocks + len(page), page[-1].id
            events += sum(block.count - sum(0 <= at < block.count for at in block.void) for block in page)
            for batch in record_batches(piece.queue, page):
                files.add(batch)
    return Receipt(number, last, blocks, events, files.close())


class _DayFiles:
    """The files of one slice, one for each day, in row groups of some size."""

    def __init__(self, staging: Path, number: int) -> None:
        self._staging = staging
        # Each attempt has names of its own.
        self._suffix = f"{number:05d}-{secrets.token_hex(4)}.parquet"
        self._held: dict[str, list[pa.RecordBatch]] = {}
        self._held_rows = 0
        self._writers: dict[str, pq.ParquetWriter] = {}
        self._rows: dict[str, int] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        for day, rows in by_day(batch):
            self._held.setdefault(day, []).append(rows)
            self._rows[day] = self._rows.get(day, 0) + rows.num_rows
        self._held_rows += batch.num_rows
        if self._held_rows >= _ROWS_PER_GROUP:
            self._flush()

    def close(self) -> tuple[WrittenFile, ...]:
        self._flush()
        return tuple(self._closed(day, writer) for day, writer in sorted(self._writers.items()))

    def _flush(self) -> None:
        for day, batches in self._held.items():
            if day not in self._writers:
                path = self._staging / self._name(day)
                self._writers[day] = pq.ParquetWriter(path, ARROW_SCHEMA, compression="zstd")
            table = pa.Table.from_batches(batches, ARROW_SCHEMA)
            self._writers[day].write_table(table, row_group_size=_ROWS_PER_GROUP)
        self._held, self._held_rows = {}, 0

    def _closed(self, day: str, writer: pq.ParquetWriter) -> WrittenFile:
        writer.close()
        path = self._staging / self._name(day)
        with path.open("rb") as file:
            os.fsync(file.fileno())  # here: another machine cannot ask this one to
        return WrittenFile(path.name, day, self._rows[day], path.stat().st_size)

    def _name(self, day: str) -> str:
        return f"part-{day}-{self._suffix}"


def by_day(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of each day, in UTC."""
    days = np.floor_divide(batch.column("ts").cast(pa.int64()).to_numpy(zero_copy_only=False), _US_PER_DAY)
    found = np.unique(days)
    for day in found.tolist():
        rows = batch if len(found) == 1 else batch.filter(pc.equal(pa.array(days), day))
        yield day_of(day * _MS_PER_DAY), rows
