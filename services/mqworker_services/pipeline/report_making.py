"""How a report is made: ask Spark, put the answers together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mqworker_services.pipeline.report import Detail, Question, Report, Step
from mqworker_services.pipeline.report_figures import Cell, SlowRun, Times, groups, reasons, tally, whole
from mqworker_services.pipeline.report_files import Extent
from mqworker_services.pipeline.report_histogram import Histogram
from mqworker_services.pipeline.report_query import (
    By,
    Distributions,
    Measure,
    ask_cells,
    ask_examples,
    ask_slowest,
    ask_times,
    label,
)
from mqworker_services.pipeline.report_scan import EventFiles, Selection
from mqworker_services.pipeline.report_trouble import trouble_in_a_sentence
from mqworker_services.pipeline.report_window import step_ms

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def make_report(spark: SparkSession, question: Question, extent: Extent) -> Report:
    """Read the lake and answer the question; `extent` is what `look_at_files` found."""
    with trouble_in_a_sentence(question.lake):
        selection = Selection(question.window, tuple(question.tasks), tuple(question.queues))
        return _answer(EventFiles(spark, extent.files, selection), question, extent)


def _answer(rows: EventFiles, question: Question, extent: Extent) -> Report:
    first_ms = max(extent.first_ms, question.window.since_ms or 0)
    last_ms = min(extent.last_ms, question.window.until_ms)
    width_ms = step_ms(last_ms - first_ms)
    by_key = ask_cells(question.by, question.sla_ms)
    steps: list[Step] = []
    examples: dict[tuple[str, str], str] = {}
    if question.detail is Detail.PAGE:
        cells, times, step_cells, step_times, examples = rows.answers(
            by_key,
            ask_times(question.by, [Measure.WAIT, Measure.TOTAL]),
            ask_cells(width_ms),
            ask_times(width_ms, [Measure.WAIT, Measure.RUN, Measure.TOTAL]),
            ask_examples(),
        )
        steps = _steps(step_cells, step_times, width_ms)
    else:
        cells, times = rows.answers(by_key, ask_times(question.by, [Measure.WAIT]))
    found = groups(cells, *_waits_and_totals(times, question.by))
    everything = whole(found, cells)
    return Report(
        question=question,
        first_ms=first_ms,
        last_ms=last_ms,
        step_ms=width_ms,
        whole=everything,
        groups=found,
        steps=steps,
        reasons=reasons(cells, examples),
        slow_runs=_slow_runs(rows, question.slowest, everything.times.run),
    )


def _waits_and_totals(times: Distributions, by: By) -> tuple[dict[str, Histogram], dict[str, Histogram]]:
    by_name = {label(by, key): histograms for key, histograms in times.items()}
    waits = {name: histograms[0] for name, histograms in by_name.items()}
    totals = {name: histograms[1] for name, histograms in by_name.items() if len(histograms) > 1}
    return waits, totals


def _steps(cells: list[Cell], times: Distributions, width_ms: int) -> list[Step]:
    """Every step between the first and the last, also those in which nothing happened."""
    cells_by_step: dict[int, list[Cell]] = {}
    for cell in cells:
        cells_by_step.setdefault(int(cell.key), []).append(cell)
    if not cells_by_step:
        return []
    return [
        _step(at_ms, cells_by_step.get(at_ms, []), Times(*times.get(at_ms, ())))
        for at_ms in range(min(cells_by_step), max(cells_by_step) + 1, width_ms)
    ]


def _step(at_ms: int, cells: list[Cell], times: Times) -> Step:
    run_ms_by_task: dict[str, float] = {}
    for cell in cells:
        run_ms_by_task[cell.task] = run_ms_by_task.get(cell.task, 0.0) + cell.run_ms
    return Step(at_ms, tally(cells), times, run_ms_by_task)


def _slow_runs(rows: EventFiles, most: int, run: Histogram) -> list[SlowRun]:
    if not most or not run.total:
        return []
    # Knowing from where on the longest begin, all row groups without such runs are passed over.
    (slow_runs,) = rows.answers(ask_slowest(most, run.floor_of_longest(most)))
    return list(slow_runs)
