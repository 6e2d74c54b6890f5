"""Compaction: the many small files of a day that is over become few, and a kill half way costs nothing.

The new files are written beside the lake. Then a note says which batches they replace; from that moment on
the swap is carried out, by this process or by the next that compacts. Readers go by the note as well, so that
no row is seen twice while old and new files stand side by side.
"""

from __future__ import annotations

import json
import secrets
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Final

from mqworker.errors import MqworkerError
from mqworker_services.pipeline.checkpoint import Checkpoint
from mqworker_services.pipeline.lake import COMPACTED, Lake, batch_name, url_of
from mqworker_services.pipeline.lake_files import count_rows, exclusive, install, make_durable, write_note
from mqworker_services.pipeline.schema import SPARK_SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS_PER_FILE: Final = 5_000_000


class CompactionFailed(MqworkerError):
    """Look at the disk: what was written is not what was read. Nothing was replaced."""


@dataclass(frozen=True, slots=True)
class Swap:
    """One folder that takes the place of several."""

    date: str
    batch: str
    replaces: tuple[str, ...]
    merged: str = ""
    """The folder beside the lake in which it is written. A name of its own: Spark tasks of a compaction that
    was killed may go on for a moment, and must not write among the files of the next."""


def compact(
    spark: SparkSession,
    lake: Lake,
    today: str,
    report: Callable[[Swap, int], None] = lambda _swap, _rows: None,
) -> list[Swap]:
    """Compact every day before today; what was done."""
    with exclusive(lake.compaction / "lock"):
        finish_swaps(lake)
        swaps = planned_swaps([*lake.batches()], today, Checkpoint(lake.checkpoint).committed())
        for planned in swaps:
            swap = replace(planned, merged=f"{planned.date}-{secrets.token_hex(4)}")
            rows = _merge(spark, lake, swap)
            write_note(lake.compaction / f"{swap.date}.json", _as_note(swap))
            finish_swaps(lake)
            report(swap, rows)
        return swaps


def planned_swaps(batches: Sequence[tuple[str, str]], today: str, committed: int) -> list[Swap]:
    """Which batches of which days become one: those that are committed, of days that are over. Pure.

    A batch that was written and not committed will be written again: it must stay a batch of its own.
    """
    closed = sorted((date, batch) for date, batch in batches if date < today and number(batch) <= committed)
    swaps = []
    for date, group in groupby(closed, key=lambda each: each[0]):
        replaced = tuple(batch for _, batch in group)
        if len(replaced) > 1:
            newest = max(number(batch) for batch in replaced)
            swaps.append(Swap(date, COMPACTED + batch_name(newest), replaced))
    return swaps


def number(batch: str) -> int:
    """The number of a batch, or the highest of those that a compacted one replaced."""
    return int(batch.removeprefix(COMPACTED))


def finish_swaps(lake: Lake) -> None:
    """Carry out what the notes say, and drop what was written without one."""
    for note in sorted(lake.compaction.glob("*.json")):
        swap = _from_note(json.loads(note.read_text(encoding="utf-8")))
        merged, target = lake.compaction / swap.merged, lake.folder(swap.date, swap.batch)
        if merged.exists():
            install(merged, target)
        for batch in swap.replaces:
            shutil.rmtree(lake.folder(swap.date, batch), ignore_errors=True)
        note.unlink()
    for leftover in lake.compaction.glob("*-*-*"):
        shutil.rmtree(leftover, ignore_errors=True)


def _merge(spark: SparkSession, lake: Lake, swap: Swap) -> int:
    folders = [lake.folder(swap.date, batch) for batch in swap.replaces]
    expected = sum(count_rows(folder) for folder in folders)
    merged = lake.compaction / swap.merged
    files = max(1, round(expected / ROWS_PER_FILE))
    rows = spark.read.schema(SPARK_SCHEMA).parquet(*map(url_of, folders)).coalesce(files)
    rows.sortWithinPartitions("queue", "ts").write.parquet(url_of(merged))
    written = count_rows(merged)
    if written != expected:
        raise CompactionFailed(f"{swap.date}: {written:,} rows were written where {expected:,} were read")
    make_durable(merged)
    return written


def _as_note(swap: Swap) -> dict[str, object]:
    return asdict(swap)


def _from_note(note: dict[str, object]) -> Swap:
    replaces = note["replaces"]
    merged = note.get("merged", note["date"])  # notes of older versions say nothing: it was the day
    return Swap(
        str(note["date"]),
        str(note["batch"]),
        tuple(replaces) if isinstance(replaces, list) else (),
        str(merged),
    )
