"""What a report asks of Spark: cells, histograms, the slowest runs, examples of failures. No decisions here.

Each question is one job of plain SQL over few columns: no Python runs for a row, nothing is joined, and what
comes back is small, whatever the size of the lake.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from services.pipeline.report_figures import NO_NAME, Cell, SlowRun
from services.pipeline.report_histogram import Histogram, bucket_sql
from services.pipeline.report_window import Window

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_HOUR_MS: Final = 3_600_000
_DAY_MS: Final = 86_400_000
WAIT: Final = "CASE WHEN attempt = 1 THEN wait_ms END"
"""The wait of a later attempt would hold the earlier ones and the pauses between them: no wait in a line."""
RUN: Final = "run_ms"
TOTAL: Final = "CASE WHEN event = 'succeeded' THEN wait_ms + run_ms END"
_LONGEST_EXAMPLE: Final = 300


Key = str | int | None
"""A name, or the beginning of an hour or a day."""


class By(StrEnum):
    """What the rows of a report stand for."""

    TASK = "task"
    QUEUE = "queue"
    WORKER = "worker"
    HOUR = "hour"
    DAY = "day"


KEY_SQL: Final[Mapping[By, str]] = {
    By.TASK: "task",
    By.QUEUE: "queue",
    By.WORKER: "worker",
    By.HOUR: f"unix_millis(ts) DIV {_HOUR_MS} * {_HOUR_MS}",
    By.DAY: f"unix_millis(ts) DIV {_DAY_MS} * {_DAY_MS}",
}


def step_sql(step_ms: int) -> str:
    """The beginning of the step of time in which an event happened."""
    return f"unix_millis(ts) DIV {step_ms} * {step_ms}"


def select_events(rows: DataFrame, window: Window, tasks: Iterable[str], queues: Iterable[str]) -> DataFrame:
    """The events that the report is about; whole days are left out by the names of their folders."""
    first, last = window.dates
    rows = rows.where(f"date <= DATE'{last}' AND unix_millis(ts) < {window.until_ms}")
    if window.since_ms is not None:
        rows = rows.where(f"date >= DATE'{first}' AND unix_millis(ts) >= {window.since_ms}")
    for column, names in (("task", list(tasks)), ("queue", list(queues))):
        rows = rows.where(rows[column].isin(names)) if names else rows
    return rows


def read_cells(rows: DataFrame, by: By, sla_ms: float | None) -> list[Cell]:
    """How many events of each kind, by key, task and bucket of run time: counts and distribution in one."""
    is_late = "false" if sla_ms is None else f"event = 'succeeded' AND wait_ms + run_ms > {float(sla_ms)!r}"
    # Grouping twice by the same strings would cost as much as another column.
    task_sql = "NULL" if by is By.TASK else "task"
    found = rows.sparkSession.sql(
        f"""SELECT {KEY_SQL[by]} AS key, {task_sql} AS task, event, error, {bucket_sql(RUN)} AS bucket,
                   count(*), coalesce(sum(run_ms), 0.0), coalesce(max(run_ms), 0.0), count_if({is_late})
            FROM {{rows}} GROUP BY ALL""",  # noqa: S608 - our own expressions; a name never gets in here
        rows=rows,
    )
    return [
        Cell(label(by, key), (key if by is By.TASK else task) or NO_NAME, *rest)
        for key, task, *rest in _collected(found)
    ]


def read_step_cells(rows: DataFrame, step_ms: int) -> dict[int, list[Cell]]:
    """The same by task and step of time, without the distribution."""
    found = rows.sparkSession.sql(
        f"""SELECT {step_sql(step_ms)} AS step_at_ms, task, event, error,
                   CASE WHEN run_ms IS NOT NULL THEN 0 END AS bucket,
                   count(*), coalesce(sum(run_ms), 0.0), coalesce(max(run_ms), 0.0)
            FROM {{rows}} GROUP BY ALL""",  # noqa: S608 - as above
        rows=rows,
    )
    cells_by_step: dict[int, list[Cell]] = {}
    for step_at_ms, task, *rest in _collected(found):
        name = task or NO_NAME
        cells_by_step.setdefault(step_at_ms, []).append(Cell(name, name, *rest))
    return cells_by_step


def read_times(rows: DataFrame, key_sql: str, measures: Sequence[str]) -> dict[Key, tuple[Histogram, ...]]:
    """The distributions of these times, by key."""
    stacked = ", ".join(f"{number}, {ms}" for number, ms in enumerate(measures))
    found = rows.sparkSession.sql(
        f"""SELECT key, measure, {bucket_sql("ms")} AS bucket, count(*), max(ms)
            FROM (SELECT {key_sql} AS key, stack({len(measures)}, {stacked}) AS (measure, ms)
                  FROM {{rows}} WHERE run_ms IS NOT NULL)
            WHERE ms IS NOT NULL GROUP BY ALL""",  # noqa: S608 - as above
        rows=rows,
    )
    times: dict[Key, tuple[Histogram, ...]] = {}
    for key, measure, bucket, count, max_ms in _collected(found):
        histograms = times.setdefault(key, tuple(Histogram() for _ in measures))
        histograms[measure].add(bucket, count, max_ms)
    return times


def read_slowest(rows: DataFrame, most: int, least_ms: float) -> list[SlowRun]:
    """The longest runs; of the files only pages with runs that long are read."""
    found = rows.sparkSession.sql(
        f"""SELECT task_id, task, queue, worker, event, coalesce(attempt, 1), unix_millis(ts),
                   coalesce(wait_ms, 0.0), run_ms
            FROM {{rows}} WHERE run_ms >= {float(least_ms)!r}
            ORDER BY run_ms DESC, task_id LIMIT {int(most)}""",  # noqa: S608 - as above
        rows=rows,
    )
    return [_slow_run(*row) for row in _collected(found)]


def read_examples(rows: DataFrame) -> dict[tuple[str, str], str]:
    """The latest message of each error of each task."""
    found = rows.sparkSession.sql(
        f"""SELECT task, error, max_by(substring(error_msg, 1, {_LONGEST_EXAMPLE}), ts)
            FROM {{rows}} WHERE error IS NOT NULL GROUP BY ALL""",  # noqa: S608 - as above
        rows=rows,
    )
    return {(task or NO_NAME, error): text or "" for task, error, text in _collected(found)}


def label(by: By, key: Key) -> str:
    """The name of a group, as the report shows it; instants in UTC."""
    if key is None:
        return NO_NAME
    match by:
        case By.HOUR:
            return datetime.fromtimestamp(int(key) / 1000, UTC).strftime("%Y-%m-%d %H:00")
        case By.DAY:
            return datetime.fromtimestamp(int(key) / 1000, UTC).strftime("%Y-%m-%d")
        case By.TASK | By.QUEUE | By.WORKER:
            return str(key)


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
def _collected(found: DataFrame) -> Iterator[tuple[Any, ...]]:
    """All rows, through Arrow: quicker than one Row object after the other."""
    columns = [column.to_pylist() for column in found.toArrow().columns]
    return zip(*columns, strict=True)
