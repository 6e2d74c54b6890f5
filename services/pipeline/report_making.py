"""How a report is made: ask Spark, put the answers together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from services.pipeline.lake import read_lake
from services.pipeline.report import Detail, Question, Report, Step
from services.pipeline.report_figures import Cell, SlowRun, Times, groups, reasons, tally, whole
from services.pipeline.report_files import Extent
from services.pipeline.report_histogram import Histogram
from services.pipeline.report_query import (
    KEY_SQL,
    RUN,
    TOTAL,
    WAIT,
    By,
    label,
    read_cells,
    read_examples,
    read_slowest,
    read_step_cells,
    read_times,
    select_events,
    step_sql,
)
from services.pipeline.report_trouble import trouble_in_a_sentence
from services.pipeline.report_window import step_ms

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Distributions = dict[str, Histogram]


def make_report(spark: SparkSession, question: Question, extent: Extent) -> Report:
    """Read the lake and answer the question; `extent` is what `look_at_files` found."""
    with trouble_in_a_sentence(question.lake):
        rows = read_lake(spark, question.lake)
        rows = select_events(rows, question.window, question.tasks, question.queues)
        return _answer(rows, question, extent)


def _answer(rows: DataFrame, question: Question, extent: Extent) -> Report:
    first_ms = max(extent.first_ms, question.window.since_ms or 0)
    last_ms = min(extent.last_ms, question.window.until_ms)
    is_page = question.detail is Detail.PAGE
    cells = read_cells(rows, question.by, question.sla_ms)
    waits, totals = _waits_and_totals(rows, question.by, [WAIT, TOTAL] if is_page else [WAIT])
    found = groups(cells, waits, totals)
    everything = whole(found, cells)
    width_ms = step_ms(last_ms - first_ms)
    return Report(
        question=question,
        first_ms=first_ms,
        last_ms=last_ms,
        step_ms=width_ms,
        whole=everything,
        groups=found,
        steps=_steps(rows, width_ms) if is_page else [],
        reasons=reasons(cells, read_examples(rows) if is_page else {}),
        slow_runs=_slow_runs(rows, question.slowest, everything.times.run),
    )


def _waits_and_totals(rows: DataFrame, by: By, measures: list[str]) -> tuple[Distributions, Distributions]:
    times = {label(by, key): each for key, each in read_times(rows, KEY_SQL[by], measures).items()}
    waits = {name: histograms[0] for name, histograms in times.items()}
    totals = {name: histograms[1] for name, histograms in times.items() if len(histograms) > 1}
    return waits, totals


def _steps(rows: DataFrame, width_ms: int) -> list[Step]:
    """Every step between the first and the last, also those in which nothing happened."""
    cells_by_step = read_step_cells(rows, width_ms)
    times_by_step = read_times(rows, step_sql(width_ms), [WAIT, RUN, TOTAL])
    if not cells_by_step:
        return []
    return [
        _step(at_ms, cells_by_step.get(at_ms, []), Times(*times_by_step.get(at_ms, ())))
        for at_ms in range(min(cells_by_step), max(cells_by_step) + 1, width_ms)
    ]


def _step(at_ms: int, cells: list[Cell], times: Times) -> Step:
    run_ms_by_task: dict[str, float] = {}
    for cell in cells:
        run_ms_by_task[cell.task] = run_ms_by_task.get(cell.task, 0.0) + cell.run_ms
    return Step(at_ms, tally(cells), times, run_ms_by_task)


def _slow_runs(rows: DataFrame, most: int, run: Histogram) -> list[SlowRun]:
    if not most or not run.total:
        return []
    # Knowing from where on the longest begin, Spark passes over all files and pages without such runs.
    return read_slowest(rows, most, run.floor_of_longest(most))
