"""The page of a report: one HTML file that needs no network, no script and nothing beside it. Pure.

Foreign words are made harmless, figures short, and tables are made of both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from html import escape
from pathlib import Path
from string import Template
from typing import Final

from mqworker.redaction import masked_text
from mqworker_services.pipeline.report.charts import (
    NAMES_LEFT,
    Bar,
    Part,
    Series,
    TimeAxis,
    bar_chart,
    column_chart,
    duration_label,
    heat_map,
    line_chart,
)
from mqworker_services.pipeline.report.figures import PERCENTS, Group, Histogram
from mqworker_services.pipeline.report.question import Report, Step
from mqworker_services.pipeline.report.time_zones import UTC_NAME, local

NOTHING: Final = '<span class="none">–</span>'  # noqa: RUF001 - an en dash: there is no value
_TENTHS_BELOW: Final = 100
_HUNDREDTHS_BELOW: Final = 10


@dataclass(frozen=True, slots=True)
class Markup:
    """Text that is HTML already; everything else is escaped when it is put into a table."""

    text: str


@dataclass(frozen=True, slots=True)
class Column:
    """A heading, and the class of its cells: none for numbers, `words` or `words long` for text."""

    heading: str
    style: str = ""


def clean(text: str) -> str:
    """Foreign text without secrets, and without what would change how the text around it is read."""
    masked = masked_text(text)
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape", "backslashreplace").decode()
        for each in masked
    )


def table(columns: Sequence[Column], rows: Iterable[Sequence[Markup | str]]) -> str:
    """A table that scrolls sideways where the window is too narrow."""
    head = "".join(f'<th scope="col"{_class(column)}>{escape(column.heading)}</th>' for column in columns)
    body = "".join(
        f"<tr>{''.join(_cell(*each) for each in zip(columns, row, strict=True))}</tr>" for row in rows
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def number(value: int) -> Markup:
    """A count; nothing is shown as such, so that the eye finds what is there."""
    return Markup(f"{value:,}" if value else NOTHING)


def time(ms: float | None) -> Markup:
    """A duration; no-break, so that the unit stays with its number."""
    return Markup(NOTHING if ms is None else escape(duration_label(ms)).replace(" ", "&nbsp;"))


def rate(per_second: float) -> str:
    """A rate in a second, with only the digits that mean something."""
    if per_second >= _TENTHS_BELOW:
        return f"{per_second:,.0f}"
    return f"{per_second:.1f}" if per_second >= _HUNDREDTHS_BELOW else f"{per_second:.2g}"


def share(part: float, whole: float) -> str:
    """A share in percent; never rounded to all or nothing when it is neither."""
    percent = 100 * part / whole if whole else 0.0
    if 0 < percent < 0.05:  # noqa: PLR2004 - half of the last digit shown
        return "< 0.1 %"
    return f"{min(percent, 99.9) if part < whole else percent:.1f} %"


def share_bar(part: float, whole: float) -> Markup:
    """A share as a small bar with its number."""
    percent = 100 * part / whole if whole else 0.0
    bar = f'<span class="share" aria-hidden="true"><i style="width:{percent:.1f}%"></i></span>'
    return Markup(f"{bar}{escape(share(part, whole))}")


def moment(at_ms: int, zone: str = UTC_NAME) -> str:
    """An instant, to the second."""
    return local(at_ms, zone).strftime("%Y-%m-%d %H:%M:%S")


def _cell(column: Column, value: Markup | str) -> str:
    if isinstance(value, Markup):
        return f"<td{_class(column)}>{value.text}</td>"
    return f'<td{_class(column)} title="{escape(value)}">{escape(value)}</td>'


def _class(column: Column) -> str:
    return f' class="{column.style}"' if column.style else ""


MOST_BARS: Final = 12

_DAY_MS: Final = 86_400_000
_PERCENT_STYLES: Final = ("s3", "s4", "s5")
_ERROR_STYLES: Final = ("s2", "s5", "s4", "s3", "s1")
_HOUR_MS: Final = 3_600_000
_WEEKDAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


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
        yield _errors(report, axis)
    yield _busy(report)
    if report.waits_by_hour:
        yield _wait_by_hour(report)


def _axis(report: Report, left: int | None = None) -> TimeAxis:
    zone = report.question.zone
    names = [_step_name(step, report.step_ms, zone) for step in report.steps]
    # The axis goes by the clock on the wall, as it went when the first step began.
    offset = local(report.steps[0].at_ms, zone).utcoffset() or timedelta()
    first_ms = report.steps[0].at_ms + round(offset.total_seconds() * 1000)
    return (
        TimeAxis(first_ms, report.step_ms, names)
        if left is None
        else TimeAxis(first_ms, report.step_ms, names, left)
    )


def _step_name(step: Step, step_ms: int, zone: str) -> str:
    at = local(step.at_ms, zone)
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


def _errors(report: Report, axis: TimeAxis) -> Chart:
    totals: dict[str, int] = {}
    for step in report.steps:
        for error, count in step.errors.items():
            totals[error] = totals.get(error, 0) + count
    frequent = sorted(totals, key=lambda error: (-totals[error], error))[: len(_ERROR_STYLES)]
    series = [
        Series(clean(error), style, [step.errors.get(error, 0) for step in report.steps])
        for error, style in zip(frequent, _ERROR_STYLES, strict=False)
    ]
    drawn = column_chart("Errors over time", axis, series)
    return Chart("Errors over time", "The most frequent ones.", _legend(series) + _scrolling(drawn))


def _wait_by_hour(report: Report) -> Chart:
    hours = [f"{hour:02d}:00" for hour in range(24)]
    rows = [
        (name, [_p95(report.waits_by_hour.get((weekday, hour))) for hour in range(24)])
        for weekday, name in enumerate(_WEEKDAYS)
    ]
    axis = TimeAxis(0, _HOUR_MS, hours, NAMES_LEFT)
    drawn = heat_map("Wait by weekday and hour, p95", axis, rows, duration_label)
    note = (
        f"p95 of the wait for the first run, by the clock of {report.question.zone}; the longer the stronger."
    )
    return Chart("When messages waited", note, _scrolling(drawn))


def _p95(waits: Histogram | None) -> float:
    return 0.0 if waits is None else waits.percentile(95) or 0.0


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


TEMPLATES: Final = Path(__file__).parent / "templates"
MOST_GROUPS: Final = 200
"""More rows than anybody reads; JSON has them all."""

_COUNTS: Final = ("enqueued", "started", "succeeded", "failed", "retried", "dead", "crashes")
_TIMES: Final = (*(f"p{percent}" for percent in PERCENTS), "max")


def page(report: Report) -> str:
    """The whole page."""
    template = Template((TEMPLATES / "report.html").read_text(encoding="utf-8"))
    heading = f"What {_subject(report)} did"
    return template.substitute(
        title=escape(f"{heading} · mqworker"),
        heading=escape(heading),
        subtitle=escape(_span(report)),
        style=(TEMPLATES / "report.css").read_text(encoding="utf-8").strip(),
        tiles=_tiles(report),
        sections="\n".join(_sections(report)),
        footer=escape(f"{report.whole.counts.events:,} events · mqworker pipeline report"),
    )


def _span(report: Report) -> str:
    zone = report.question.zone
    return f"{moment(report.first_ms, zone)} to {moment(report.last_ms, zone)} {zone}"


def section(title: str, note: str, content: str) -> str:
    """A titled part of the page; the note and the title are plain text."""
    return f"<section><h2>{escape(title)}</h2><p>{escape(note)}</p>{content}</section>"


def _subject(report: Report) -> str:
    names = [clean(name) for name in (*report.question.tasks, *report.question.queues)]
    return " and ".join(names) if names else "your tasks"


def _tiles(report: Report) -> str:
    counts, times = report.whole.counts, report.whole.times
    tiles = [
        ("Enqueued", f"{counts.enqueued:,}", f"{counts.started:,} runs"),
        ("Succeeded", f"{counts.succeeded:,}", f"{share(counts.succeeded, counts.started)} of all runs"),
        (
            "Failed runs",
            f"{counts.failed:,}",
            f"{counts.retried:,} tried again, {counts.crashes:,} crashes beside",
        ),
        (
            "Dead letters",
            f"{counts.dead:,}",
            f"{counts.expired:,} expired, {counts.cancelled:,} cancelled beside",
        ),
        ("Throughput", f"{rate(report.per_second(counts))}/s", "successful runs, over the whole time"),
        ("Wait, p95", _told(times.wait, 95), f"half within {_told(times.wait, 50)}"),
        ("Run time, p95", _told(times.run, 95), f"half within {_told(times.run, 50)}"),
        ("Enqueue to success, p95", _told(times.total, 95), _promise(report)),
    ]
    return f'<dl class="tiles">{"".join(_tile(*tile) for tile in tiles)}</dl>'


def _promise(report: Report) -> str:
    counts, sla_ms = report.whole.counts, report.question.sla_ms
    if sla_ms is None:
        return f"half within {_told(report.whole.times.total, 50)}"
    return f"{counts.late:,} took more than {duration_label(sla_ms)}"


def _tile(name: str, value: str, note: str) -> str:
    figure = f'<dd>{escape(value)}</dd><dd class="note">{escape(note)}</dd>'
    return f'<div class="tile"><dt>{escape(name)}</dt>{figure}</div>'


def _told(times: Histogram, percent: int) -> str:
    ms = times.percentile(percent)
    return "no runs" if ms is None else duration_label(ms)


def _sections(report: Report) -> Iterator[str]:
    if report.gaps:
        items = "".join(f"<li>{escape(clean(gap))}</li>" for gap in report.gaps)
        yield section("Not in the lake", "The figures are without these events.", f"<ul>{items}</ul>")
    yield from (section(chart.title, chart.note, chart.content) for chart in charts(report))
    if report.reasons:
        yield section("Why runs failed", "By task and error, with what was said last.", _reasons(report))
    if report.kept:
        yield section("Promises", "What was late or given up counts against them.", _promises(report))
    if report.storms:
        yield section(
            "Storms of retries",
            "Times in which a task was tried again more often than it succeeded.",
            _storms(report),
        )
    by = report.question.by.value
    if report.before is not None:
        yield section(
            f"Beside the time before, by {by}", _span(report.before), _beside(report, report.before)
        )
    yield section(f"Counts by {by}", "Those that took most of the time come first.", _counts(report))
    yield section(f"Times by {by}", "From enqueue to first start, and of each run.", _times_table(report))
    if report.slow_runs:
        yield section("Slowest runs", "`mqworker job show ID` tells more about one.", _slow_runs(report))


def _promises(report: Report) -> str:
    columns = [Column("promise", "words"), *map(Column, ("kept", "late", "dead", "budget burned"))]
    rows: list[list[Markup | str]] = [
        [
            clean(kept.slo.text),
            Markup(NOTHING) if kept.share is None else f"{kept.share:.4g} %",
            number(kept.late),
            number(kept.dead),
            Markup(NOTHING) if kept.burned is None else f"{100 * kept.burned:,.0f} %",
        ]
        for kept in report.kept
    ]
    return table(columns, rows)


def _storms(report: Report) -> str:
    columns = [Column("from", "words"), Column("task", "words"), Column("retried"), Column("succeeded")]
    rows: list[list[Markup | str]] = [
        [
            moment(storm.at_ms, report.question.zone),
            clean(storm.task),
            number(storm.retried),
            number(storm.succeeded),
        ]
        for storm in report.storms[:MOST_GROUPS]
    ]
    return table(columns, rows)


def _beside(report: Report, before: Report) -> str:
    earlier = {group.name: group for group in before.groups}
    columns = [
        Column(report.question.by.value, "words"),
        *(
            Column(name)
            for measure in ("succeeded", "failed", "wait p95", "run p95")
            for name in (measure, "before")
        ),
    ]
    rows: list[list[Markup | str]] = [
        [clean(group.name), *_pairs(group, earlier.get(group.name))] for group in report.groups[:MOST_GROUPS]
    ]
    return table(columns, rows)


def _pairs(group: Group, earlier: Group | None) -> Iterator[Markup]:
    both = (group, earlier)
    for name in ("succeeded", "failed"):
        yield from (number(0 if each is None else getattr(each.counts, name)) for each in both)
    for name in ("wait", "run"):
        yield from (time(None if each is None else getattr(each.times, name).percentile(95)) for each in both)


def _counts(report: Report) -> str:
    columns = [
        Column(report.question.by.value, "words"),
        *(Column(name) for name in _COUNTS),
        Column("per second"),
        Column("time"),
    ]
    rows = [_counts_row(report, group) for group in report.groups[:MOST_GROUPS]]
    return table(columns, rows)


def _counts_row(report: Report, group: Group) -> list[Markup | str]:
    return [
        clean(group.name),
        *(number(getattr(group.counts, name)) for name in _COUNTS),
        rate(report.per_second(group.counts)),
        share_bar(group.counts.run_ms, report.whole.counts.run_ms),
    ]


def _times_table(report: Report) -> str:
    columns = [
        Column(report.question.by.value, "words"),
        *(Column(f"{measure} {name}") for measure in ("wait", "run") for name in _TIMES),
    ]
    ran = [group for group in report.groups[:MOST_GROUPS] if group.times.run.total]
    return table(columns, [[clean(group.name), *_times_row(group)] for group in ran])


def _times_row(group: Group) -> Iterator[Markup]:
    for times in (group.times.wait, group.times.run):
        yield from (time(times.percentile(percent)) for percent in PERCENTS)
        yield time(times.max_ms if times.total else None)


def _reasons(report: Report) -> str:
    columns = [
        Column("task", "words"),
        Column("error", "words"),
        Column("count"),
        Column("example", "words long"),
    ]
    rows: list[list[Markup | str]] = [
        [clean(reason.task), clean(reason.error), number(reason.count), clean(reason.example)]
        for reason in report.reasons[:MOST_GROUPS]
    ]
    return table(columns, rows)


def _slow_runs(report: Report) -> str:
    columns = [
        *(Column(name, "words") for name in ("task", "id", "queue", "worker", "ended", "as")),
        *(Column(name) for name in ("attempt", "wait", "run")),
    ]
    rows: list[list[Markup | str]] = [
        [
            *(clean(text) for text in (run.task, run.task_id, run.queue, run.worker)),
            moment(run.ended_at_ms, report.question.zone),
            clean(run.event),
            str(run.attempt),
            time(run.wait_ms),
            time(run.run_ms),
        ]
        for run in report.slow_runs
    ]
    return table(columns, rows)
