"""Blocks of events become Arrow: many blocks in a few steps, without a Python object for each event.

Blocks of one kind are decoded together. Where that fails, each block of the page is decoded on its own, and
one that cannot be read becomes a row that says so: a broken block neither stops the archive nor vanishes.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mqworker.events import StoredBlock, id_order
from mqworker_services.pipeline.bulk_codecs import Columns, columns_rows, ids_rows, json_rows, kind_of
from mqworker_services.pipeline.schema import ARROW_INSTANT, ARROW_SCHEMA, SCHEMA_VERSION, shard_of
from mqworker_services.pipeline.single_blocks import single_rows

# numpy's arrays of whole numbers, whatever their width
Numbers: TypeAlias = "np.ndarray[Any, np.dtype[np.integer[Any]]]"

MODEL: Final = "work"
_DECODERS: Final[Mapping[str, Callable[[Sequence[StoredBlock]], Columns]]] = {
    "ids": ids_rows,
    "columns": columns_rows,
    "json": json_rows,
}
_INSTANTS: Final = frozenset({"enqueued_at", "started_at", "deadline_at"})


def record_batches(queue: str, blocks: Sequence[StoredBlock]) -> Iterator[pa.RecordBatch]:
    """The events of blocks of one queue, in batches of the event schema; the void ones are left out."""
    by_kind: dict[str, list[StoredBlock]] = {}
    for block in blocks:
        by_kind.setdefault(kind_of(block.codec), []).append(block)
    for kind, alike in by_kind.items():
        yield _batch(queue, alike, kind)


def _batch(queue: str, blocks: Sequence[StoredBlock], kind: str) -> pa.RecordBatch:
    decode = _DECODERS.get(kind, single_rows)
    counts = np.fromiter((block.count for block in blocks), np.int64, len(blocks))
    try:
        columns = _with_instants(decode(blocks))
    except (ValueError, IndexError, OverflowError, zlib.error):  # pyarrow's errors are ValueErrors
        columns = {}
    if {len(column) for column in columns.values()} != {counts.sum()}:
        columns = _with_instants(single_rows(blocks))
    return _with_origin(queue, blocks, counts, columns)


def _with_instants(columns: Columns) -> Columns:
    """Milliseconds as instants; raises ValueError when one lies beyond all of them."""
    instants = {
        name: pc.multiply_checked(column, 1000).view(ARROW_INSTANT)
        for name, column in columns.items()
        if name in _INSTANTS
    }
    return columns | instants


def _with_origin(
    queue: str, blocks: Sequence[StoredBlock], counts: Numbers, columns: Columns
) -> pa.RecordBatch:
    """The rows with where they come from, in the order of the schema."""
    total = int(counts.sum())
    of_block = np.repeat(np.arange(len(blocks)), counts)
    firsts = np.cumsum(counts) - counts
    seq = np.arange(total) - np.repeat(firsts, counts)
    at_us = np.fromiter((id_order(block.id)[0] * 1000 for block in blocks), np.int64, len(blocks))
    known = dict(columns) | {
        "shard": pa.array(np.full(total, shard_of(queue), np.int32)),
        "block": pa.array([block.id for block in blocks], pa.string()).take(pa.array(of_block)),
        "seq": pa.array(seq.astype(np.int32)),
        "ts": pa.array(np.repeat(at_us, counts)).view(ARROW_INSTANT),
        "queue": pa.repeat(queue, total),
        "model": pa.repeat(MODEL, total),
        "schema_v": pa.array(np.full(total, SCHEMA_VERSION, np.int32)),
    }
    arrays = [_fitting(known.get(field.name), field, total) for field in ARROW_SCHEMA]
    batch = pa.RecordBatch.from_arrays(arrays, schema=ARROW_SCHEMA)
    happened = _happened(blocks, firsts, total)
    return batch if happened is None else batch.filter(happened)


def _fitting(column: pa.Array | None, field: pa.Field, total: int) -> pa.Array:
    if column is None:
        return pa.nulls(total, field.type)
    return column if column.type == field.type else column.cast(field.type)


def _happened(blocks: Sequence[StoredBlock], firsts: Numbers, total: int) -> pa.Array | None:
    """A mask without the events that were announced and did not happen after all; None: all did."""
    void = [
        int(first) + position
        for block, first in zip(blocks, firsts, strict=True)
        for position in block.void
        if 0 <= position < block.count
    ]
    if not void:
        return None
    mask = np.ones(total, dtype=bool)
    mask[void] = False
    return pa.array(mask)
