"""The three forms of event blocks, each decoded for many blocks at once; ValueError when in doubt."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from mqworker.events import COLUMNS, COMPRESSED, COMPRESSED_COLUMNS, ENQUEUED, IDS, PLAIN, StoredBlock, expand

Columns: TypeAlias = dict[str, pa.Array]
"""Columns of events by their name in the row; those that a form lacks are missing."""

Numbers: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"

_KIND_BY_CODEC: Final = {
    IDS: "ids",
    COLUMNS: "columns",
    COMPRESSED_COLUMNS: "columns",
    PLAIN: "json",
    COMPRESSED: "json",
}
_LINES_OF_COLUMNS: Final = 8
_JSON_SCHEMA: Final = pa.schema(
    [
        ("event", pa.string()),
        ("task_id", pa.string()),
        ("task", pa.string()),
        ("worker", pa.string()),
        ("node", pa.string()),
        ("attempt", pa.int32()),
        ("enqueued_at", pa.int64()),
        ("started_at", pa.int64()),
        ("wait_ms", pa.float64()),
        ("run_ms", pa.float64()),
        ("deadline_at", pa.int64()),
        ("error", pa.string()),
        ("error_msg", pa.string()),
    ]
)


def kind_of(codec: str) -> str:
    """Which form a block has; 'unknown' when it is none of ours."""
    return _KIND_BY_CODEC.get(codec, "unknown")


def ids_rows(blocks: Sequence[StoredBlock]) -> Columns:
    """Enqueued events: the task and its messages, with spaces between."""
    tasks, ids = [], []
    for block in blocks:
        task, _, rest = block.data.partition(b" ")
        tasks.append(task.decode())
        ids.append(_counted(rest, block.count))
    return {
        "event": pa.repeat(ENQUEUED, sum(block.count for block in blocks)),
        "task_id": _texts(ids),
        "task": _repeated(tasks, [block.count for block in blocks]),
    }


def columns_rows(blocks: Sequence[StoredBlock]) -> Columns:
    """Events of runs that succeeded, as mqworker writes them: eight lines, most of them a column."""
    counts = [block.count for block in blocks]
    lines = [_eight_lines(block) for block in blocks]
    heads = [each[0].decode().split(" ") for each in lines]
    instants = np.repeat(np.array([int(instant) for _, _, instant in heads], np.int64), counts)
    enqueued, started, run_us = (_numbers([each[at] for each in lines]) for at in (5, 6, 7))
    return {
        "event": pa.repeat("succeeded", sum(counts)),
        "task_id": _texts([_counted(each[2], count) for each, count in zip(lines, counts, strict=True)]),
        "task": _tasks(lines, counts),
        "worker": _repeated([worker for worker, _, _ in heads], counts),
        "node": _repeated([node for _, node, _ in heads], counts),
        "attempt": pa.array(_numbers([_or_all(each[4], b"1", n) for each, n in _with(lines, counts)])),
        "enqueued_at": pa.array(instants + enqueued),
        "started_at": pa.array(instants + started),
        "wait_ms": pa.array((started - enqueued).astype(np.float64)),
        "run_ms": pa.array(run_us / 1000.0),
    }


def json_rows(blocks: Sequence[StoredBlock]) -> Columns:
    """Events of any kind, one line of JSON each."""
    texts = [expand(block.codec, block.data) for block in blocks]
    for block, text in zip(blocks, texts, strict=True):
        if text.count(b"\n") + 1 != block.count:
            raise ValueError(f"block {block.id} does not hold {block.count} lines")
    data = b"\n".join(texts)
    table = pj.read_json(
        io.BytesIO(data),
        read_options=pj.ReadOptions(use_threads=False, block_size=len(data) + 1),
        parse_options=pj.ParseOptions(explicit_schema=_JSON_SCHEMA, unexpected_field_behavior="ignore"),
    ).combine_chunks()
    return {name: table.column(name).combine_chunks() for name in table.column_names}


def _eight_lines(block: StoredBlock) -> list[bytes]:
    lines = expand(block.codec, block.data).split(b"\n")
    if len(lines) != _LINES_OF_COLUMNS:
        raise ValueError(f"block {block.id} has {len(lines)} lines; accepted are {_LINES_OF_COLUMNS}")
    return lines


def _counted(line: bytes, count: int) -> bytes:
    if not line or line.count(b" ") + 1 != count:
        raise ValueError("a column does not hold as many values as the block says")
    return line


def _or_all(line: bytes, usual: bytes, count: int) -> bytes:
    """An empty column means the usual value for all."""
    return line or b" ".join([usual] * count)


def _with(lines: Sequence[list[bytes]], counts: Sequence[int]) -> Sequence[tuple[list[bytes], int]]:
    return list(zip(lines, counts, strict=True))


def _texts(lines: Sequence[bytes]) -> pa.Array:
    return pa.array(b" ".join(lines).decode().split(" "), pa.string())


def _numbers(lines: Sequence[bytes]) -> Numbers:
    values = pa.array(b" ".join(lines).decode().split(" "), pa.string())
    numbers: Numbers = pc.cast(values, pa.int64()).to_numpy(zero_copy_only=False)
    return numbers


def _repeated(values: Sequence[str], counts: Sequence[int]) -> pa.Array:
    return pa.array(values, pa.string()).take(pa.array(np.repeat(np.arange(len(values)), counts)))


def _tasks(lines: Sequence[list[bytes]], counts: Sequence[int]) -> pa.Array:
    tasks: list[str] = []
    positions = []
    for each, count in zip(lines, counts, strict=True):
        here = each[1].decode().split(" ")
        which = _numbers([_or_all(each[3], b"0", count)]) if each[3] else np.zeros(count, np.int64)
        if which.min() < 0 or which.max() >= len(here):
            raise ValueError("a column names a task that its block does not list")
        positions.append(which + len(tasks))
        tasks += here
    return pa.array(tasks, pa.string()).take(pa.array(np.concatenate(positions)))
