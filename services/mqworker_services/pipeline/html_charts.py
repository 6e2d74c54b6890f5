"""The charts of the page: which figures of a report are drawn, and how. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from typing import Final

from mqworker_services.pipeline.charts import (
    NAMES_LEFT,
    Bar,
    Part,
    Series,
    TimeAxis,
    bar_chart,
    column_chart,
    heat_map,
    line_chart,
)
from mqworker_services.pipeline.charts_scale import duration_label
from mqworker_services.pipeline.html_text import clean
from mqworker_services.pipeline.report import Report, Step
from mqworker_services.pipeline.report_figures import PERCENTS
from mqworker_services.pipeline.report_histogram import Histogram

MOST_BARS: Final = 12

_DAY_MS: Final = 86_400_000
_PERCENT_STYLES: Final = ("s3", "s4", "s5")


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart with its words; the content is HTML."""

    title: str
    note: str
    content: str


def charts(report: Report) -> Iterator[Chart]:
    """All charts that there are figures for, in the order of the page."""
    if not report.steps:
        return
    axis = _axis(report)
    yield _throughput(report, axis)
    yield _times(
        "Run time", "How long runs took, on a logarithmic scale.", axis, [s.times.run for s in report.steps]
    )
    yield _times(
        "Wait",
        "How long messages waited for their first run, same scale.",
        axis,
        [s.times.wait for s in report.steps],
    )
    if report.reasons:
        yield _failures(report)
    yield _busy(report)


def _axis(report: Report, left: int | None = None) -> TimeAxis:
    names = [_step_name(step, report.step_ms) for step in report.steps]
    first_ms = report.steps[0].at_ms
    return (
        TimeAxis(first_ms, report.step_ms, names)
        if left is None
        else TimeAxis(first_ms, report.step_ms, names, left)
    )


def _step_name(step: Step, step_ms: int) -> str:
    at = datetime.fromtimestamp(step.at_ms / 1000, UTC)
    return at.strftime("%a %d %b" if step_ms % _DAY_MS == 0 else "%a %d %b, %H:%M:%S").removesuffix(":00")


def _throughput(report: Report, axis: TimeAxis) -> Chart:
    counts = [step.counts for step in report.steps]
    series = [
        Series("succeeded", "s1", [each.succeeded for each in counts]),
        Series("failed or crashed", "s2", [each.failed + each.crashes for each in counts]),
    ]
    note = f"Runs that ended, in steps of {duration_label(report.step_ms)}."
    return Chart(
        "Throughput", note, _legend(series) + _scrolling(column_chart("Throughput over time", axis, series))
    )


def _times(title: str, note: str, axis: TimeAxis, histograms: Sequence[Histogram]) -> Chart:
    series = [
        Series(f"p{percent}", style, [each.percentile(percent) for each in histograms])
        for percent, style in zip(PERCENTS, _PERCENT_STYLES, strict=True)
    ]
    drawn = line_chart(f"{title} over time: p50, p95 and p99", axis, series)
    return Chart(title, note, _legend(series) + _scrolling(drawn))


def _failures(report: Report) -> Chart:
    parts_by_task: dict[str, list[Part]] = {}
    for reason in report.reasons:
        part = Part(clean(reason.error), "s2", reason.count)
        parts_by_task.setdefault(clean(reason.task), []).append(part)
    bars = [Bar(task, parts) for task, parts in parts_by_task.items()]
    bars.sort(key=lambda bar: -sum(part.value for part in bar.parts))
    note = "Failed and crashed runs and burials; point at a part to see its error."
    return Chart("Failures by task", note, _scrolling(bar_chart("Failures by task", bars[:MOST_BARS])))


def _busy(report: Report) -> Chart:
    run_ms_by_task: dict[str, float] = {}
    for step in report.steps:
        for task, run_ms in step.run_ms_by_task.items():
            run_ms_by_task[task] = run_ms_by_task.get(task, 0.0) + run_ms
    longest = sorted(run_ms_by_task, key=lambda task: -run_ms_by_task[task])[:MOST_BARS]
    rows = [(clean(task), [step.run_ms_by_task.get(task, 0.0) for step in report.steps]) for task in longest]
    axis = _axis(report, NAMES_LEFT)
    note = f"Run time of each task in steps of {duration_label(report.step_ms)}, the more the stronger."
    return Chart(
        "What kept the workers busy",
        note,
        _scrolling(heat_map("Run time by task and time", axis, rows, duration_label)),
    )


def _legend(series: Sequence[Series]) -> str:
    entries = "".join(f'<li style="--key:var(--{each.style})">{escape(each.name)}</li>' for each in series)
    return f'<ul class="legend">{entries}</ul>'


def _scrolling(svg: str) -> str:
    return f'<div class="scroll">{svg}</div>'
