"""Blocks decoded one by one, for pages in which something is wrong: slower, and nothing is left out."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, cast

import pyarrow as pa

from mqworker.events import StoredBlock, decode_block
from mqworker_services.pipeline.schema import ARROW_SCHEMA

UNREADABLE: Final = "unreadable"
"""The event of a row that stands for one which could not be read."""

_LONGEST_TEXT: Final = 500
_MICROSECONDS_PER_MS: Final = 1_000  # instants are multiplied by it later on
_INSTANTS: Final = frozenset({"enqueued_at", "started_at", "deadline_at"})


def single_rows(blocks: Sequence[StoredBlock]) -> dict[str, pa.Array]:
    """One row for each event that the blocks claim to hold, readable or not."""
    rows = [row for block in blocks for row in _rows(block)]
    names = [name for name in ARROW_SCHEMA.names if name in _COLUMN_TYPES]
    return {name: pa.array([row.get(name) for row in rows], _COLUMN_TYPES[name]) for name in names}


def _rows(block: StoredBlock) -> list[dict[str, Any]]:
    try:
        events = decode_block(block.codec, block.data)
        if len(events) != block.count:
            raise ValueError(f"{len(events)} events where {block.count} were announced")  # noqa: TRY301 - same fate
    except (ValueError, KeyError, IndexError, AttributeError, TypeError, zlib.error) as problem:
        return [_unreadable(block, str(problem))] * block.count
    return [_row(block, event) for event in events]


def _row(block: StoredBlock, event: object) -> dict[str, Any]:
    try:
        if not isinstance(event, dict):
            raise TypeError(f"an event is a {type(event).__name__}, not an object")  # noqa: TRY301 - same fate
        return {name: fit(value) for name, fit in _FITS.items() if (value := event.get(name)) is not None}
    except (ValueError, TypeError, OverflowError) as problem:
        return _unreadable(block, str(problem))


def _unreadable(block: StoredBlock, problem: str) -> dict[str, Any]:
    return {"event": UNREADABLE, "error": f"codec {block.codec[:8]}", "error_msg": problem[:_LONGEST_TEXT]}


def _whole(value: object, most: int) -> int:
    """A whole number, also where Lua wrote it as a float."""
    number = value if isinstance(value, int) else int(float(str(value)))
    if abs(number) > most:
        raise OverflowError(f"{number} is larger than any number of its kind")
    return number


def _text(value: object) -> str:
    """A text that can be written: an error message may hold halves of characters."""
    return str(value).encode("utf-8", "replace").decode()


def _fit_of(kind: pa.DataType) -> Callable[[object], object]:
    if pa.types.is_integer(kind):
        return partial(_whole, most=2 ** (kind.bit_width - 1) // _MICROSECONDS_PER_MS)
    return cast("Callable[[object], object]", float) if pa.types.is_floating(kind) else _text


_COLUMN_TYPES: Final = {
    field.name: pa.int64() if field.name in _INSTANTS else field.type
    for field in ARROW_SCHEMA
    if field.name not in {"shard", "block", "seq", "ts", "queue", "model", "schema_v"}
}
_FITS: Final = {name: _fit_of(kind) for name, kind in _COLUMN_TYPES.items()}
