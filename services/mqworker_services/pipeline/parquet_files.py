"""Parquet files of the table: written by executors, one for each day, and told to the driver.

A file counts only once the table names it. So each try writes under names of its own, and what a killed one
left behind is nobody's until `vacuum` deletes it.
"""

from __future__ import annotations

import inspect
import json
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mqworker.errors import MqworkerError
from mqworker_services.pipeline.days import day_of
from mqworker_services.pipeline.lake import TABLE, Lake
from mqworker_services.pipeline.storage import make_durable
from mqworker_services.pipeline.table import WrittenFile

ROWS_PER_GROUP: Final = 250_000
_US_PER_DAY: Final = 86_400_000_000
_MS_PER_DAY: Final = 86_400_000
_TOLD: Final = ("ts", "queue", "task", "task_id", "run_ms", "schema_v")
"""Columns of which the log tells the smallest and the largest value: who looks for others skips the file."""
_LONGEST: Final = 200
"""A name longer than this is not told: the log is read whole by everybody."""


class RowsNotArrived(MqworkerError):
    """Let executors and driver see the same storage and server: what was written is not where it belongs.

    Nothing of the batch was committed, and nothing was trimmed.
    """


# Any: pyarrow ships no types.
class DayFiles:
    """Rows that are written as they come, one file for each day, in row groups of some size."""

    def __init__(self, lake: Lake, name: str, schema: Any, *, has_bloom: bool = False) -> None:  # noqa: ANN401
        refuse_another_disk(lake)
        self._lake, self._schema = lake, schema
        # Each try has names of its own.
        self._suffix = f"{name}-{secrets.token_hex(8)}.parquet"
        self._bloom = _bloom_of(schema) if has_bloom else {}
        self._held: dict[str, list[Any]] = {}
        self._held_rows = 0
        self._writers: dict[str, _File] = {}

    def add(self, batch: Any) -> None:  # noqa: ANN401 - as above
        """More rows, of whatever days."""
        for day, rows in by_day(batch):
            self._held.setdefault(day, []).append(rows)
        self._held_rows += batch.num_rows
        if self._held_rows >= ROWS_PER_GROUP:
            self._flush()

    def close(self) -> tuple[WrittenFile, ...]:
        """Write what is left; the files, with all that the driver must know."""
        self._flush()
        return tuple(writer.closed() for _, writer in sorted(self._writers.items()))

    def _flush(self) -> None:
        for day, batches in self._held.items():
            if day not in self._writers:
                path = f"date={day}/part-{self._suffix}"
                self._writers[day] = _File(self._lake, path, day, self._schema, self._bloom)
            self._writers[day].write(pa.Table.from_batches(batches, self._schema))
        self._held, self._held_rows = {}, 0


class _File:
    def __init__(
        self,
        lake: Lake,
        path: str,
        day: str,
        schema: Any,  # noqa: ANN401
        options: Mapping[str, object],
    ) -> None:
        self._lake, self._path, self._day = lake, path, day
        self._metadata: list[Any] = []
        where = lake.storage.path(lake.file(path))
        with lake.storage.told():
            if lake.storage.is_local:
                Path(where).parent.mkdir(exist_ok=True)
            self._sink = lake.storage.files.open_output_stream(where)
            self._writer = pq.ParquetWriter(
                self._sink, schema, compression="zstd", metadata_collector=self._metadata, **options
            )

    def write(self, table: Any) -> None:  # noqa: ANN401
        with self._lake.storage.told():
            self._writer.write_table(table, row_group_size=ROWS_PER_GROUP)

    def closed(self) -> WrittenFile:
        with self._lake.storage.told():
            self._writer.close()
            size = self._sink.tell()
            self._sink.close()
        if self._lake.storage.is_local:
            # Here: another machine cannot ask this one to.
            file = Path(self._lake.storage.path(self._lake.file(self._path)))
            make_durable(file, file.parent)
        metadata = self._metadata[0]
        return WrittenFile(self._path, self._day, metadata.num_rows, size, json.dumps(stats_of(metadata)))


def refuse_another_disk(lake: Lake) -> None:
    """Raise where the table is not seen: its folder is not made here, that would be on this disk alone."""
    log = Path(lake.storage.path(f"{TABLE}/_delta_log"))
    if lake.storage.is_local and not log.is_dir():
        raise RowsNotArrived(
            f"an executor does not see {log.parent}: all executors and the driver must share the folder of "
            "the lake, or keep it in a bucket (--lake s3://…); nothing was committed"
        )


def stats_of(metadata: Any) -> dict[str, object]:  # noqa: ANN401
    """What the log tells of a file, as Delta wants it."""
    least: dict[str, object] = {}
    most: dict[str, object] = {}
    for column in _TOLD:
        limits = column_limits(metadata, column)
        if limits is not None and all(len(str(each)) <= _LONGEST for each in limits):
            least[column], most[column] = map(_as_json, limits)
    return {"numRecords": metadata.num_rows, "minValues": least, "maxValues": most, "nullCount": {}}


def column_limits(metadata: Any, column: str) -> tuple[Any, Any] | None:  # noqa: ANN401
    """The smallest and the largest value of a column; None when the file does not tell, or has none."""
    if column not in metadata.schema.names:
        return None
    position = metadata.schema.names.index(column)
    groups = (metadata.row_group(number) for number in range(metadata.num_row_groups))
    known = [group.column(position).statistics for group in groups]
    if not all(each is not None and (each.has_min_max or each.num_values == 0) for each in known):
        return None
    known = [each for each in known if each.has_min_max]
    return (min(each.min for each in known), max(each.max for each in known)) if known else None


def by_day(batch: Any) -> Iterator[tuple[str, Any]]:  # noqa: ANN401
    """The rows of each day, in UTC."""
    days = np.floor_divide(batch.column("ts").cast(pa.int64()).to_numpy(zero_copy_only=False), _US_PER_DAY)
    found = np.unique(days)
    for day in found.tolist():
        rows = batch if len(found) == 1 else batch.filter(pc.equal(pa.array(days), day))
        yield day_of(day * _MS_PER_DAY), rows


def _as_json(value: Any) -> object:  # noqa: ANN401
    return (
        value.isoformat(timespec="microseconds").replace("+00:00", "Z")
        if hasattr(value, "isoformat")
        else value
    )


def _bloom_of(schema: Any) -> dict[str, object]:  # noqa: ANN401
    """A filter on the id, where this pyarrow can write one."""
    if "bloom_filter_options" not in inspect.signature(pq.ParquetWriter).parameters:
        return {}
    return {"bloom_filter_options": {"task_id": {"ndv": ROWS_PER_GROUP, "fpp": 0.01}}} if schema else {}
