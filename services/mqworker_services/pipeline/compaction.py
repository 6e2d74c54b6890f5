"""Compaction and retention: many small files become few, days that are too old leave the table.

New files are written beside the old ones, and one commit of the table puts them in their place. A kill before
it costs nothing: what was written is no part of the table. Rows are sorted by queue, task and time, so that
whoever asks for one task skips most of a file. Files that left the table are deleted by `vacuum` a week
later: somebody may be reading them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import groupby
from typing import Any, Final

import pyarrow as pa

from mqworker.errors import MqworkerError
from mqworker_services.pipeline.archive_batch import check_files
from mqworker_services.pipeline.engine import Engine
from mqworker_services.pipeline.lake import Lake
from mqworker_services.pipeline.lake_reading import read_columns
from mqworker_services.pipeline.parquet_files import ROWS_PER_GROUP, DayFiles
from mqworker_services.pipeline.table import LakeChanged, LakeFile, LakeTable, WrittenFile, new_number

ROWS_PER_FILE: Final = 2_000_000
FEWEST_TODAY: Final = 10
"""How many small files of the current day are worth the work; of a day that is over, two."""
_AT_ONCE: Final = 8
_TRIES: Final = 50
_ORDER: Final = [("queue", "ascending"), ("task", "ascending"), ("ts", "ascending")]


class CompactionFailed(MqworkerError):
    """Look at the disk: what was written is not what was read. Nothing was replaced."""


@dataclass(frozen=True, slots=True)
class Merge:
    """Files of one day that become one."""

    date: str
    files: tuple[LakeFile, ...]

    @property
    def rows(self) -> int:
        """Of all files."""
        return sum(file.rows for file in self.files)


def compact(
    engine: Engine, lake: Lake, today: str, report: Callable[[Merge], None] = lambda _merge: None
) -> list[Merge]:
    """Merge small files, of the current day too; what was done."""
    table = LakeTable.open(lake)
    done: list[Merge] = []
    merges = planned_merges(table.files(), today)
    for first in range(0, len(merges), _AT_ONCE):
        some = merges[first : first + _AT_ONCE]
        said = engine.each(partial(_merged, lake=lake, schema=table.columns), some)
        for merge, text in zip(some, said, strict=True):
            files = [WrittenFile(**each) for each in json.loads(text)]
            _check(lake, merge, files)
            report(merge)
            if _is_put_in_place(table, merge, files):
                done.append(merge)
    return done


def planned_merges(files: Sequence[LakeFile], today: str, rows_per_file: int = ROWS_PER_FILE) -> list[Merge]:
    """Which files become one: the small ones of a day, up to a size, if there are enough of them. Pure."""
    small = [file for file in files if file.rows < rows_per_file // 2]
    merges: list[Merge] = []
    for date, group in groupby(sorted(small, key=lambda file: file.date), key=lambda file: file.date):
        of_day = list(group)
        if len(of_day) >= (2 if date < today else FEWEST_TODAY):
            merges += [Merge(date, tuple(each)) for each in _packed(of_day, rows_per_file) if len(each) > 1]
    return merges


def _packed(files: Sequence[LakeFile], rows_per_file: int) -> Iterator[list[LakeFile]]:
    held: list[LakeFile] = []
    for file in files:
        if held and sum(each.rows for each in held) + file.rows > rows_per_file:
            yield held
            held = []
        held.append(file)
    yield held


# Any: pyarrow ships no types.
def _merged(merge: Merge, *, lake: Lake, schema: Any) -> Iterator[bytes]:  # noqa: ANN401
    """Write the rows of some files as one, in order; on an executor."""
    tables = [read_columns(lake, file, schema) for file in merge.files]
    rows = pa.concat_tables(tables).sort_by(_ORDER)
    files = DayFiles(lake, "compacted", schema, has_bloom=True)
    for batch in rows.combine_chunks().to_batches(ROWS_PER_GROUP):
        files.add(batch)
    yield json.dumps([asdict(file) for file in files.close()]).encode()


def _check(lake: Lake, merge: Merge, files: Sequence[WrittenFile]) -> None:
    written = sum(file.rows for file in files)
    if written != merge.rows or any(file.date != merge.date for file in files):
        raise CompactionFailed(f"{merge.date}: {written:,} rows were written where {merge.rows:,} were read")
    check_files(lake, files)


def _is_put_in_place(table: LakeTable, merge: Merge, files: Sequence[WrittenFile]) -> bool:
    """Whether it was; not if somebody else replaced or removed one of the files."""
    for _ in range(_TRIES):
        table.refresh()
        there = {file.path for file in table.files()}
        if not all(file.path in there for file in merge.files):
            return False
        try:
            table.rewrite(merge.files, files)
        except LakeChanged:
            continue  # an archiver committed in between: it only adds
        return True
    raise LakeChanged(f"the lake {table.lake.root} changes too often to be compacted; try again")


def expire(engine: Engine, lake: Lake, first_kept: str) -> list[LakeFile]:
    """Remove the days before one; the files that left the table."""
    for _ in range(_TRIES):
        table = LakeTable.open(lake)
        old = [file for file in table.files() if file.date < first_kept]
        if not old:
            return []
        note = _note_expired(engine, table, old)
        try:
            table.expire(old, note)
        except LakeChanged:
            continue
        return old
    raise LakeChanged(f"the lake {lake.root} changes too often to remove days from it; try again")


def vacuum(lake: Lake) -> int:
    """Delete files that left the table a week ago, or never got into it; how many."""
    return len(set(LakeTable.open(lake).vacuum()))


def expired_blocks(table: LakeTable) -> dict[str, int]:
    """How many blocks of each queue were removed because of their age: `verify` does not miss them."""
    if not table.expiry_note:
        return {}
    noted = table.lake.storage.read_note(_note(table.lake, table.expiry_note))
    return {str(queue): int(blocks) for queue, blocks in noted["blocks"].items()}


def _note_expired(engine: Engine, table: LakeTable, files: Sequence[LakeFile]) -> int:
    blocks = dict(expired_blocks(table))
    for text in engine.each(partial(_blocks_by_queue, lake=table.lake), files):
        for queue, number in json.loads(text).items():
            blocks[queue] = blocks.get(queue, 0) + number
    number = new_number()
    table.lake.storage.write_note(_note(table.lake, number), {"blocks": blocks})
    return number


def _blocks_by_queue(file: LakeFile, *, lake: Lake) -> Iterator[bytes]:
    """A block lies in one file whole: the numbers of the files add up."""
    rows = read_columns(lake, file, pa.schema([("queue", pa.string()), ("block", pa.string())]))
    found = rows.group_by("queue").aggregate([("block", "count_distinct")])
    yield json.dumps(
        dict(zip(*(found[name].to_pylist() for name in found.column_names), strict=True))
    ).encode()


def _note(lake: Lake, number: int) -> str:
    return lake.note(f"expired/{number}.json")
