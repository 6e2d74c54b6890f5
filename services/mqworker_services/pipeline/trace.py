"""Trace: everything that the lake knows of one message, in the order in which it happened."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from mqworker.errors import MqworkerError
from mqworker_services.pipeline.engine import Engine
from mqworker_services.pipeline.lake import Lake
from mqworker_services.pipeline.lake_reading import as_stream, opened
from mqworker_services.pipeline.schema import ARROW_SCHEMA
from mqworker_services.pipeline.table import LakeFile, lake_files

_ID: Final = "task_id"


class NotInTheLake(MqworkerError):
    """Mend the id, or archive first: the lake has no event of this message."""


# Any: a row is a value for each column.
def trace(engine: Engine, lake: Lake, task_id: str) -> list[dict[str, Any]]:
    """The events of one message; raises NotInTheLake when there are none."""
    files = [file for file in lake_files(lake) if _may_hold(file, task_id)]
    said = engine.each(partial(_events, lake=lake, task_id=task_id), files)
    tables = [pa.ipc.open_stream(each).read_all() for each in said]
    rows: Sequence[dict[str, Any]] = pa.concat_tables([ARROW_SCHEMA.empty_table(), *tables]).to_pylist()
    if not rows:
        raise NotInTheLake(f"no event of the message {task_id!r} is in the lake {lake.root}")
    # Events of one millisecond stand in the order of the stream: block, then place in it.
    return sorted(rows, key=lambda row: (row["ts"], *_place(row["block"]), row["seq"]))


def _may_hold(file: LakeFile, task_id: str) -> bool:
    return file.first_id is None or file.last_id is None or file.first_id <= task_id <= file.last_id


def _place(block: str) -> tuple[int, str]:
    return (len(block), block)


def _events(file: LakeFile, *, lake: Lake, task_id: str) -> Iterator[bytes]:
    """The events of one file; only groups of rows that have the id are read whole."""
    with opened(lake, file) as parquet:
        present = [name for name in ARROW_SCHEMA.names if name in parquet.schema_arrow.names]
        for group in _groups(parquet.metadata, task_id):
            ids = parquet.read_row_group(group, columns=[_ID], use_threads=False)[_ID]
            if pc.any(pc.equal(ids, task_id)).as_py():
                rows = parquet.read_row_group(group, columns=present, use_threads=False)
                yield as_stream(_fitting(rows.filter(pc.equal(ids, task_id))))


def _groups(metadata: Any, task_id: str) -> Iterator[int]:  # noqa: ANN401 - pyarrow ships no types
    position = metadata.schema.names.index(_ID)
    for group in range(metadata.num_row_groups):
        known = metadata.row_group(group).column(position).statistics
        if known is None or not known.has_min_max or known.min <= task_id <= known.max:
            yield group


def _fitting(rows: Any) -> Any:  # noqa: ANN401 - as above
    columns = [
        rows[field.name].cast(field.type)
        if field.name in rows.column_names
        else pa.nulls(rows.num_rows, field.type)
        for field in ARROW_SCHEMA
    ]
    return pa.Table.from_arrays(columns, schema=ARROW_SCHEMA)
