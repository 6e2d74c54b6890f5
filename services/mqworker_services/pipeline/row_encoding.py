"""Rows of a frame as the bodies of calls: whole columns at a time where the types allow it.

Columns of plain values are packed value by value, with the names between made once. What needs a
closer look, because it nests, has a type of its own or is not a finite number, is encoded row by row, and
refused in words.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from mqworker.queues.work.bulk import named_call_body, plain_call_bodies

_MOST_COLUMNS: Final = 1_000
"""Far below the limits of a call, which are checked where rows are encoded one by one."""
_ROWS_AT_ONCE: Final = 10_000


def call_bodies(batch: pa.RecordBatch, task: str) -> Iterator[list[bytes]]:
    """The body of a call of the task for each row, its columns the arguments by name; some rows at a time."""
    for first in range(0, batch.num_rows, _ROWS_AT_ONCE):
        some = batch.slice(first, _ROWS_AT_ONCE)
        if _is_plain(some):
            yield plain_call_bodies(some.schema.names, [column.to_pylist() for column in some.columns])
        else:
            yield _careful_bodies(some, task)


def _is_plain(batch: pa.RecordBatch) -> bool:
    return 0 < batch.num_columns <= _MOST_COLUMNS and all(map(_is_plain_column, batch.columns))


def _is_plain_column(column: pa.Array) -> bool:
    """Whether every value packs as it is; a float must be finite, which is refused elsewhere, in words."""
    kind = column.type
    if pa.types.is_floating(kind):
        return kind != pa.float16() and pc.all(pc.is_finite(column), min_count=0).as_py() is not False
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_null(kind)
    )


def _careful_bodies(batch: pa.RecordBatch, task: str) -> list[bytes]:
    names = tuple(batch.schema.names)
    columns = [column.to_pylist() for column in batch.columns]
    rows: Iterable[tuple[object, ...]] = (
        zip(*columns, strict=True) if columns else iter([()] * batch.num_rows)
    )
    return [named_call_body(task, dict(zip(names, row, strict=True))) for row in rows]
