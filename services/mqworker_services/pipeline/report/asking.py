"""The questions of a report as values: what is read for each, what a batch of rows says, what it amounts to.

Each reads few columns, and what comes back is small, whatever the size of the lake.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mqworker_services.pipeline.report.figures import (
    NO_NAME,
    Cell,
    Histogram,
    SlowRun,
    buckets_of,
)
from mqworker_services.pipeline.report.files import (
    Asked,
    added_up,
    counted,
    instants_ms,
)
from mqworker_services.pipeline.report.question import By
from mqworker_services.pipeline.report.time_zones import UTC_NAME, floors, local
from mqworker_services.pipeline.report.trends import (
    Kept,
    Slo,
)

HOUR_MS: Final = 3_600_000
DAY_MS: Final = 86_400_000
_LONGEST_EXAMPLE: Final = 300

Key = str | int | None
"""A name, or the beginning of an hour, a day or a step of time."""
Distributions = dict[Key, tuple[Histogram, ...]]
"""Of each key those of the times that were asked for, in that order."""


class Measure(StrEnum):
    """A time of which the distribution is told."""

    WAIT = "wait"
    RUN = "run"
    TOTAL = "total"


_WIDTH_MS: Final[Mapping[By, int]] = {By.HOUR: HOUR_MS, By.DAY: DAY_MS}
_CELL_KEYS: Final = ("key", "task", "event", "error", "bucket")
_CELL_MEASURES: Final = (("run_ms", "sum"), ("max_run_ms", "max"), ("late", "sum"))
_SLOW_COLUMNS: Final = (
    *("task_id", "task", "queue", "worker", "event", "attempt", "ended_at_ms", "wait_ms", "run_ms"),
)


def ask_cells(by: By | int, sla_ms: float | None = None, zone: str = UTC_NAME) -> Asked[list[Cell]]:
    """How many events of each kind, by key, task and bucket of run time: counts and distribution in one.

    The key is what `by` says, or the beginning of a step of time, so many milliseconds long; then without the
    distribution.
    """
    key_type = _key_type(by)

    def ask(batch: pa.RecordBatch) -> pa.Table:
        run_ms = batch.column("run_ms")
        key = _keys(batch, by, zone)
        columns = {
            "key": key,
            "task": batch.column("task"),
            "event": batch.column("event"),
            "error": batch.column("error"),
            "bucket": _ran(run_ms) if isinstance(by, int) else buckets_of(run_ms),
            "run_ms": run_ms.fill_null(0.0),
            "max_run_ms": run_ms.fill_null(0.0),
            "late": _late(batch, sla_ms),
        }
        return counted(columns, _CELL_KEYS, _CELL_MEASURES).cast(schema)

    schema = pa.schema(
        [
            ("key", key_type),
            *((name, pa.string()) for name in ("task", "event", "error")),
            ("bucket", pa.int32()),
            ("count", pa.int64()),
            ("run_ms", pa.float64()),
            ("max_run_ms", pa.float64()),
            ("late", pa.int64()),
        ]
    )
    columns = {*_key_columns(by), "task", "event", "error", "run_ms"}

    def answer(said: pa.Table) -> list[Cell]:
        found = added_up(said, _CELL_KEYS, (("count", "sum"), *_CELL_MEASURES))
        return [Cell(label(by, key, zone), task or NO_NAME, *rest) for key, task, *rest in _tuples(found)]

    return Asked(frozenset(columns if sla_ms is None else {*columns, "wait_ms"}), ask, schema, answer)


def ask_times(by: By | int, measures: Sequence[Measure], zone: str = UTC_NAME) -> Asked[Distributions]:
    """The distributions of these times, by key."""

    def ask(batch: pa.RecordBatch) -> pa.Table:
        batch = batch.filter(batch.column("run_ms").is_valid())
        return pa.concat_tables(
            [_distribution(batch, by, number, each, zone) for number, each in enumerate(measures)]
        ).cast(schema)

    schema = pa.schema(
        [
            ("key", _key_type(by)),
            ("measure", pa.int32()),
            ("bucket", pa.int32()),
            ("count", pa.int64()),
            ("max_ms", pa.float64()),
        ]
    )

    def answer(said: pa.Table) -> Distributions:
        found = added_up(said, ("key", "measure", "bucket"), (("count", "sum"), ("max_ms", "max")))
        times: Distributions = {}
        for key, measure, bucket, count, max_ms in _tuples(found):
            histograms = times.setdefault(key, tuple(Histogram() for _ in measures))
            histograms[measure].add(bucket, count, max_ms)
        return times

    columns = frozenset({*_key_columns(by), "event", "attempt", "wait_ms", "run_ms"})
    return Asked(columns, ask, schema, answer)


def ask_slowest(most: int, least_ms: float) -> Asked[list[SlowRun]]:
    """The longest runs; of the files only row groups with runs that long are read."""
    order = [("run_ms", "descending"), ("task_id", "ascending")]

    def ask(batch: pa.RecordBatch) -> pa.Table:
        batch = batch.filter(pc.greater_equal(batch.column("run_ms"), least_ms))
        columns = {name: batch.column(name) for name in _SLOW_COLUMNS if name != "ended_at_ms"}
        columns |= {
            "ended_at_ms": instants_ms(batch),
            "attempt": batch.column("attempt").fill_null(1),
            "wait_ms": batch.column("wait_ms").fill_null(0.0),
        }
        found = pa.table({name: columns[name] for name in _SLOW_COLUMNS}).cast(schema)
        return found.sort_by(order).slice(0, most)

    schema = pa.schema(
        [
            *((name, pa.string()) for name in ("task_id", "task", "queue", "worker", "event")),
            ("attempt", pa.int32()),
            ("ended_at_ms", pa.int64()),
            ("wait_ms", pa.float64()),
            ("run_ms", pa.float64()),
        ]
    )

    def answer(said: pa.Table) -> list[SlowRun]:
        return [_slow_run(*row) for row in _tuples(said.sort_by(order).slice(0, most))]

    columns = frozenset({*_SLOW_COLUMNS, "ts"} - {"ended_at_ms"})
    return Asked(columns, ask, schema, answer, least_run_ms=least_ms)


def ask_examples() -> Asked[dict[tuple[str, str], str]]:
    """The latest message of each error of each task."""

    def ask(batch: pa.RecordBatch) -> pa.Table:
        batch = batch.filter(batch.column("error").is_valid())
        texts = pc.utf8_slice_codeunits(batch.column("error_msg").cast(pa.string()), 0, _LONGEST_EXAMPLE)
        columns = (batch.column("task"), batch.column("error"), instants_ms(batch), texts)
        return _latest(pa.Table.from_arrays(list(columns), names=schema.names).cast(schema))

    schema = pa.schema(
        [("task", pa.string()), ("error", pa.string()), ("at_ms", pa.int64()), ("text", pa.string())]
    )

    def answer(said: pa.Table) -> dict[tuple[str, str], str]:
        rows = _tuples(_latest(said))
        return {(task or NO_NAME, error): text or "" for task, error, _, text in rows}

    return Asked(frozenset({"task", "error", "error_msg", "ts"}), ask, schema, answer)


def ask_names(tasks: Sequence[str], queues: Sequence[str]) -> Asked[set[tuple[str, str]]]:
    """Which tasks and queues there are; nothing is read for it unless some were asked for by name."""
    schema = pa.schema([("task", pa.string()), ("queue", pa.string())])

    def ask(batch: pa.RecordBatch) -> pa.Table:
        columns = {name: batch.column(name) for name in schema.names}
        return counted(columns, schema.names).select(schema.names).cast(schema)

    def nothing(_batch: pa.RecordBatch) -> pa.Table:
        return schema.empty_table()

    def answer(said: pa.Table) -> set[tuple[str, str]]:
        return {(task or NO_NAME, queue or NO_NAME) for task, queue in _tuples(said)}

    if not tasks and not queues:
        return Asked(frozenset(), nothing, schema, answer)
    return Asked(frozenset(schema.names), ask, schema, answer)


def ask_slos(slos: Sequence[Slo]) -> Asked[list[Kept]]:
    """How each promise was kept, exactly."""
    schema = pa.schema([("slo", pa.int32()), *((name, pa.int64()) for name in ("good", "late", "dead"))])

    def ask(batch: pa.RecordBatch) -> pa.Table:
        rows = [(number, *_kept(batch, slo)) for number, slo in enumerate(slos)]
        return (
            pa.Table.from_arrays(
                [
                    pa.array(values, kind.type)
                    for values, kind in zip(zip(*rows, strict=True), schema, strict=True)
                ],
                schema=schema,
            )
            if rows
            else schema.empty_table()
        )

    def answer(said: pa.Table) -> list[Kept]:
        totals = {number: [0, 0, 0] for number in range(len(slos))}
        for number, *counts in _tuples(said):
            totals[number] = [sum(pair) for pair in zip(totals[number], counts, strict=True)]
        return [Kept(slo, *totals[number]) for number, slo in enumerate(slos)]

    columns = frozenset({"task", "event", "wait_ms", "run_ms"}) if slos else frozenset()
    return Asked(columns, ask, schema, answer)


def _kept(batch: pa.RecordBatch, slo: Slo) -> tuple[int, int, int]:
    tasks = batch.column("task")
    named = [task for task in pc.unique(tasks.cast(pa.string())).to_pylist() if slo.is_about(task)]
    batch = batch.filter(pc.is_in(tasks.cast(pa.string()), pa.array(named, pa.string())))
    total = _times(batch, Measure.TOTAL).drop_null()
    late = pc.sum(pc.greater(total, slo.limit_ms)).as_py() or 0
    dead = (
        pc.sum(pc.is_in(batch.column("event").cast(pa.string()), pa.array(["buried", "expired"]))).as_py()
        or 0
    )
    return len(total) - late, late, dead


def label(by: By | int, key: Key, zone: str = UTC_NAME) -> str:
    """The name of a group, as the report shows it."""
    if key is None:
        return NO_NAME
    match by:
        case By.HOUR:
            # An hour may come twice: the offset tells which it is.
            return local(int(key), zone).strftime("%Y-%m-%d %H:%M" + ("" if zone == UTC_NAME else " %z"))
        case By.DAY:
            return local(int(key), zone).strftime("%Y-%m-%d")
        case _:
            return str(key)


def _key_columns(by: By | int) -> set[str]:
    if isinstance(by, int) or by in _WIDTH_MS:
        return {"ts"}
    # Every node has a worker:0.
    return {"node", "worker"} if by is By.WORKER else {str(by)}


def _key_type(by: By | int) -> pa.DataType:
    return pa.int64() if _key_columns(by) == {"ts"} else pa.string()


def _keys(batch: pa.RecordBatch, by: By | int, zone: str) -> pa.Array:
    """What the rows are grouped by: a name, or the beginning of the step of time."""
    if by is By.WORKER:
        return _workers(batch)
    if not isinstance(by, int) and by not in _WIDTH_MS:
        return batch.column(str(by))
    width_ms = by if isinstance(by, int) else _WIDTH_MS[by]
    if zone == UTC_NAME:
        return pc.multiply(pc.divide(instants_ms(batch), width_ms), width_ms)
    return pa.array(floors(instants_ms(batch).to_numpy(zero_copy_only=False), width_ms, zone), pa.int64())


def _workers(batch: pa.RecordBatch) -> pa.Array:
    """`node/worker`; null where no worker was at work."""
    node, worker = (batch.column(name).cast(pa.string()) for name in ("node", "worker"))
    return pc.if_else(node.is_valid(), pc.binary_join_element_wise(node, worker, "/"), worker)


def _ran(run_ms: pa.Array) -> pa.Array:
    """One bucket for all runs: it tells only that there was one."""
    return pc.if_else(run_ms.is_valid(), pa.scalar(0, pa.int32()), pa.scalar(None, pa.int32()))


def _late(batch: pa.RecordBatch, sla_ms: float | None) -> pa.Array:
    if sla_ms is None:
        return pa.array(np.zeros(batch.num_rows, np.int64))
    is_late = pc.greater(_times(batch, Measure.TOTAL), float(sla_ms))
    return is_late.fill_null(False).cast(pa.int64())  # noqa: FBT003 - Arrow's signature


def _times(batch: pa.RecordBatch, measure: Measure) -> pa.Array:
    """The times that are meant; null where an event has none."""
    run_ms, wait_ms = batch.column("run_ms"), batch.column("wait_ms")
    none = pa.scalar(None, pa.float64())
    match measure:
        case Measure.RUN:
            return run_ms
        case Measure.WAIT:
            # The wait of a later attempt would hold the earlier ones and the pauses between them.
            return pc.if_else(pc.equal(batch.column("attempt"), 1), wait_ms, none)
        case Measure.TOTAL:
            is_success = pc.equal(batch.column("event").cast(pa.string()), "succeeded")
            return pc.if_else(is_success, pc.add(wait_ms, run_ms), none)


def _distribution(batch: pa.RecordBatch, by: By | int, number: int, measure: Measure, zone: str) -> pa.Table:
    ms = _times(batch, measure)
    batch, ms = batch.filter(ms.is_valid()), ms.drop_null()
    columns = {"key": _keys(batch, by, zone), "bucket": buckets_of(ms), "max_ms": ms}
    found = counted(columns, ("key", "bucket"), (("max_ms", "max"),))
    return found.add_column(1, "measure", pa.array(np.full(found.num_rows, number, np.int32)))


def _latest(table: pa.Table) -> pa.Table:
    """The newest row of each task and error."""
    groups = table.sort_by("at_ms").group_by(["task", "error"], use_threads=False)
    found = groups.aggregate([("at_ms", "last"), ("text", "last")])
    return found.select(["task", "error", "at_ms_last", "text_last"]).rename_columns(table.schema.names)


def _slow_run(
    task_id: str, task: str | None, queue: str | None, worker: str | None, *rest: float | str
) -> SlowRun:
    event, attempt, ended_at_ms, wait_ms, run_ms = rest
    return SlowRun(
        task_id=task_id,
        task=task or NO_NAME,
        queue=queue or NO_NAME,
        worker=worker or NO_NAME,
        event=str(event),
        attempt=int(attempt),
        ended_at_ms=int(ended_at_ms),
        wait_ms=float(wait_ms),
        run_ms=float(run_ms),
    )


# Any: values of several types, as the columns have them.
def _tuples(found: pa.Table) -> Iterator[tuple[Any, ...]]:
    return zip(*[column.to_pylist() for column in found.columns], strict=True)
