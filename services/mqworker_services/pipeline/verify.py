"""Verify: the lake against its checkpoint. Nothing missing, nothing twice, no file broken."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import Final

import pyarrow as pa

from mqworker_services.pipeline.checkpoint import read_checkpoint
from mqworker_services.pipeline.compaction import expired_blocks
from mqworker_services.pipeline.engine import Engine
from mqworker_services.pipeline.lake import EmptyLake, Lake
from mqworker_services.pipeline.lake_reading import as_stream, read_columns
from mqworker_services.pipeline.losses import Loss, beginning_told, book_of
from mqworker_services.pipeline.offsets import Mark, Offset
from mqworker_services.pipeline.table import NONE_YET, LakeFile, LakeTable

_KEY: Final = pa.schema([("queue", pa.string()), ("block", pa.string()), ("seq", pa.int32())])
_FILES_AT_ONCE: Final = 32


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


def verify(engine: Engine, lake: Lake) -> Verification:
    """Read the whole lake and compare; raises BrokenFile or EmptyLake where there is nothing to compare."""
    table = LakeTable.open(lake)
    checkpoint = read_checkpoint(table)
    files = table.files()
    if not files and checkpoint.batch == NONE_YET:
        raise EmptyLake(f"the lake {lake.root} is empty; `mqworker pipeline archive --once` fills it")
    gone = [file for file in files if lake.storage.size(lake.file(file.path)) is None]
    found = _counted(engine, lake, [file for file in files if file not in gone])
    blocks = {queue: counts.blocks for queue, counts in found.items()}
    return Verification(
        rows=sum(counts.rows for counts in found.values()),
        distinct=sum(counts.distinct for counts in found.values()),
        blocks=sum(blocks.values()),
        missing_by_queue=missing(blocks, checkpoint.start, checkpoint.end, expired_blocks(table)),
        gone=tuple(f"the file {file.path}, with {file.rows:,} events, is gone" for file in gone),
        losses=tuple(book_of(lake).all()),
        dropped_before=checkpoint.dropped_before,
    )


@dataclass(slots=True)
class _Counts:
    rows: int = 0
    distinct: int = 0
    blocks: int = 0


def _counted(engine: Engine, lake: Lake, files: Sequence[LakeFile]) -> dict[str, _Counts]:
    """Rows and blocks of each queue. A block lies in one day: days are added up one by one."""
    counts: dict[str, _Counts] = {}
    for some in _some_days(files):
        said = engine.each(partial(_blocks, lake=lake), some)
        parts = pa.concat_tables([pa.ipc.open_stream(each).read_all() for each in said])
        # A block that stands in two files was written twice: the rows of the larger part count as one.
        blocks = parts.group_by(["queue", "block"]).aggregate([("rows", "sum"), ("distinct", "max")])
        by_queue = blocks.group_by("queue").aggregate(
            [("rows_sum", "sum"), ("distinct_max", "sum"), ([], "count_all")]
        )
        for row in by_queue.to_pylist():
            of_queue = counts.setdefault(row["queue"], _Counts())
            of_queue.rows += row["rows_sum_sum"]
            of_queue.distinct += row["distinct_max_sum"]
            of_queue.blocks += row["count_all"]
    return counts


def _some_days(files: Sequence[LakeFile]) -> Iterator[list[LakeFile]]:
    """Whole days, some files at a time."""
    held: list[LakeFile] = []
    for _, of_day in groupby(files, key=lambda file: file.date):
        held += of_day
        if len(held) >= _FILES_AT_ONCE:
            yield held
            held = []
    if held:
        yield held


def _blocks(file: LakeFile, *, lake: Lake) -> Iterator[bytes]:
    """Of each block in a file how many rows, and how many different ones; on an executor."""
    rows = read_columns(lake, file, _KEY)
    found = rows.group_by(["queue", "block"], use_threads=False).aggregate(
        [([], "count_all"), ("seq", "count_distinct")]
    )
    yield as_stream(found.rename_columns(["queue", "block", "rows", "distinct"]))


def missing(
    found: Mapping[str, int], start: Offset, end: Offset, expired: Mapping[str, int]
) -> dict[str, int]:
    """By how many blocks each queue's history in the lake falls short of the checkpoint. Pure."""
    there = {queue: found.get(queue, 0) + expired.get(queue, 0) for queue in {*found, *expired, *end}}
    short = {queue: mark.read - start.get(queue, Mark()).read - there[queue] for queue, mark in end.items()}
    short |= {queue: -count for queue, count in there.items() if queue not in end}
    return {queue: count for queue, count in short.items() if count}
