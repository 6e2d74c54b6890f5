"""Synthetic lake: events of any number, made up from a seed, with a ledger of what they must add up to.

The ledger is counted while the histories are drawn, message by message in columns, and never from the rows
that are written: so a report that equals it has read every row and understood every event.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mqworker_services.pipeline.conversion import convert
from mqworker_services.pipeline.lake import Lake
from mqworker_services.pipeline.schema import ARROW_INSTANT, ARROW_SCHEMA

FIRST_MS: Final = int(datetime(2026, 3, 2, tzinfo=UTC).timestamp() * 1000)
"""A Monday."""
DAY_MS: Final = 86_400_000
MOST_ATTEMPTS: Final = 3

Array = npt.NDArray[Any]
Columns = dict[str, Array]

_EVENTS = ("enqueued", "succeeded", "retried", "buried", "crashed")
_ENQUEUED, _SUCCEEDED, _RETRIED, _BURIED, _CRASHED = range(5)


@dataclass(frozen=True, slots=True)
class Kind:
    """A task of the story: how often it is called, how long it runs, how often it fails or crashes."""

    name: str
    queue: str
    share: float
    run_ms: float
    spread: float
    failing: float = 0.0
    crashing: float = 0.0
    error: str = "TimeoutError"
    message: str = "the other side did not answer within 30 s"


KINDS: Final = (
    Kind("shop.send_mail", "mail", 0.34, 42, 0.6, failing=0.03),
    Kind("shop.resize_image", "media", 0.21, 310, 0.8, failing=0.01, crashing=0.002, error="OSError"),
    Kind("shop.index_product", "search", 0.18, 18, 0.5, failing=0.004, error="ConnectionError"),
    Kind("shop.charge_card", "billing", 0.12, 180, 0.7, failing=0.06, error="CardDeclined"),
    Kind("shop.build_report", "reports", 0.05, 2_400, 1.1, failing=0.02, crashing=0.004, error="MemoryError"),
    Kind("shop.sync_stock", "search", 0.10, 75, 0.4, failing=0.008, error="HTTPError"),
)


@dataclass(slots=True)
class Ledger:
    """What was written, by (task, event)."""

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    rows: int = 0

    def of(self, task: str, event: str) -> int:
        """How many such events of this task there are."""
        return self.counts[task, event]

    def total(self, event: str) -> int:
        """How many such events there are at all."""
        return sum(count for (_, name), count in self.counts.items() if name == event)


def write_lake(
    lake: Lake,
    messages: int,
    *,
    seed: int = 7,
    days: int = 7,
    kinds: tuple[Kind, ...] = KINDS,
    files_per_day: int = 2,
) -> Ledger:
    """Write the histories of so many messages as a lake, and return its ledger."""
    columns, ledger = _histories(messages, np.random.default_rng(seed), days, kinds)
    order = np.argsort(columns["ts"], kind="stable")
    columns = {name: values[order] for name, values in columns.items()}
    day_of = (columns["ts"] - FIRST_MS) // DAY_MS
    for day in np.unique(day_of):
        begin, end = np.searchsorted(day_of, [day, day + 1])
        for batch, rows in enumerate(np.array_split(np.arange(begin, end), files_per_day)):
            if len(rows):
                chosen = slice(int(rows[0]), int(rows[-1]) + 1)
                part = {name: values[chosen] for name, values in columns.items()}
                _write(_events(lake), int(day), batch, part, kinds)
    convert(lake)
    return ledger


def write_rows(lake: Lake, rows: list[dict[str, Any]], *, date: str = "2026-03-02") -> None:
    """Write a few rows given by hand; what is left out is null, `schema_v` is 1."""
    table = pa.Table.from_pylist([{"schema_v": 1, **row} for row in rows], ARROW_SCHEMA)
    _write_file(_events(lake), date, 0, table)
    convert(lake)


def _events(lake: Lake) -> Path:
    return Path(lake.root) / "events"


def _histories(
    messages: int, chance: np.random.Generator, days: int, kinds: tuple[Kind, ...]
) -> tuple[Columns, Ledger]:
    ledger = Ledger()
    message = np.arange(messages)
    kind = chance.choice(len(kinds), messages, p=[each.share for each in kinds])
    enqueued_at = FIRST_MS + _moments(chance, messages, days)
    fate = np.full(messages, _ENQUEUED)
    common = {"message": message, "kind": kind, "enqueued_at": enqueued_at}
    pieces = [
        _piece(0, **common, fate=fate, ts=enqueued_at, started_at=enqueued_at, run_ms=np.zeros(messages))
    ]
    _note(ledger, kinds, kind, fate)
    due_at = enqueued_at
    for attempt in range(1, MOST_ATTEMPTS + 1):
        started_at = due_at + chance.lognormal(3.2, 1.2, len(message)).astype(np.int64)
        run_ms = _run_times(chance, kind, kinds)
        fate = _fates(chance, kind, kinds, attempt)
        ts = started_at + run_ms.astype(np.int64)
        common = {"message": message, "kind": kind, "enqueued_at": enqueued_at}
        pieces.append(_piece(attempt, **common, fate=fate, ts=ts, started_at=started_at, run_ms=run_ms))
        _note(ledger, kinds, kind, fate)
        again = (fate == _RETRIED) | (fate == _CRASHED)
        message, kind, enqueued_at = message[again], kind[again], enqueued_at[again]
        due_at = ts[again] + 1_000 * 2**attempt
    ledger.rows = sum(len(piece["ts"]) for piece in pieces)
    return {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}, ledger


def _moments(chance: np.random.Generator, messages: int, days: int) -> Array:
    """More in the daytime than at night."""
    day = chance.integers(0, days, messages) * DAY_MS
    hour = np.clip(chance.normal(13.5, 4.2, messages), 0, 23.99)
    return day + (hour * 3_600_000).astype(np.int64)


def _run_times(chance: np.random.Generator, kind: Array, kinds: tuple[Kind, ...]) -> Array:
    middle = np.log([each.run_ms for each in kinds])[kind]
    spread = np.array([each.spread for each in kinds])[kind]
    return np.round(np.exp(chance.normal(middle, spread)), 3)


def _fates(chance: np.random.Generator, kind: Array, kinds: tuple[Kind, ...], attempt: int) -> Array:
    draw = chance.random(len(kind))
    crashing = np.array([each.crashing for each in kinds])[kind]
    failing = np.array([each.failing for each in kinds])[kind]
    unlucky = np.where(draw < crashing, _CRASHED, _RETRIED) if attempt < MOST_ATTEMPTS else _BURIED
    return np.where(draw < crashing + failing, unlucky, _SUCCEEDED)


def _note(ledger: Ledger, kinds: tuple[Kind, ...], kind: Array, fate: Array) -> None:
    for which, what in zip(kind.tolist(), fate.tolist(), strict=True):
        ledger.counts[kinds[which].name, _EVENTS[what]] += 1


def _piece(attempt: int, **columns: Array) -> Columns:
    return {**columns, "attempt": np.full(len(columns["ts"]), attempt, np.int32)}


def _write(lake: Path, day: int, batch: int, columns: Columns, kinds: tuple[Kind, ...]) -> None:
    rows = len(columns["ts"])
    fate, kind = columns["fate"], columns["kind"]
    never_ran = (fate == _ENQUEUED) | (fate == _CRASHED)
    went_well = (fate == _SUCCEEDED) | never_ran
    worker = columns["message"] % 4
    known = {
        "shard": pa.array(np.zeros(rows, np.int32)),
        "block": _named("block", np.arange(rows) // 200 + (day * 100 + batch) * 1_000_000),
        "seq": pa.array((np.arange(rows) % 200).astype(np.int32)),
        "event": _chosen(_EVENTS, fate),
        "ts": _instants(columns["ts"]),
        "task_id": _named("m", columns["message"]),
        "task": _chosen([each.name for each in kinds], kind),
        "queue": _chosen([each.queue for each in kinds], kind),
        "model": _chosen(["work"], np.zeros(rows, int)),
        "worker": _chosen([f"worker-{number}" for number in range(4)], worker, never_ran),
        "node": _chosen(["node-a"], np.zeros(rows, int), never_ran),
        "attempt": pa.array(columns["attempt"], mask=fate == _ENQUEUED),
        "enqueued_at": _instants(columns["enqueued_at"], fate == _ENQUEUED),
        "started_at": _instants(columns["started_at"], never_ran),
        "wait_ms": pa.array((columns["started_at"] - columns["enqueued_at"]).astype(float), mask=never_ran),
        "run_ms": pa.array(columns["run_ms"], mask=never_ran),
        "deadline_at": pa.nulls(rows, ARROW_INSTANT),
        "error": _chosen([each.error for each in kinds], kind, went_well),
        "error_msg": _chosen([each.message for each in kinds], kind, went_well),
        "schema_v": pa.array(np.ones(rows, np.int32)),
    }
    date = datetime.fromtimestamp((FIRST_MS + day * DAY_MS) / 1000, UTC).date().isoformat()
    _write_file(lake, date, batch, pa.table(known, ARROW_SCHEMA))


def _chosen(names: Sequence[str], which: Array, missing: Array | None = None) -> pa.Array:
    return pa.array(names, pa.string()).take(pa.array(which, mask=missing))


def _named(prefix: str, numbers: Array) -> pa.Array:
    return pc.binary_join_element_wise(prefix, pc.cast(pa.array(numbers), pa.string()), "-")


def _instants(ms: Array, missing: Array | None = None) -> pa.Array:
    return pa.array(ms * 1_000, mask=missing).cast(ARROW_INSTANT)


def _write_file(lake: Path, date: str, batch: int, rows: pa.Table) -> None:
    folder = lake / f"date={date}" / f"batch=made-{batch:06d}"
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, folder / "part-0.zstd.parquet", compression="zstd", write_page_index=True)
