"""The page of a report: one HTML file that needs no network, no script and nothing beside it. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from pathlib import Path
from string import Template
from typing import Final

from mqworker_services.pipeline.charts_scale import duration_label
from mqworker_services.pipeline.html_charts import charts
from mqworker_services.pipeline.html_text import (
    Column,
    Markup,
    clean,
    moment,
    number,
    rate,
    share,
    share_bar,
    table,
    time,
)
from mqworker_services.pipeline.report import Report
from mqworker_services.pipeline.report_figures import PERCENTS, Group
from mqworker_services.pipeline.report_histogram import Histogram

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
        subtitle=escape(f"{moment(report.first_ms)} to {moment(report.last_ms)} UTC"),
        style=(TEMPLATES / "report.css").read_text(encoding="utf-8").strip(),
        tiles=_tiles(report),
        sections="\n".join(_sections(report)),
        footer=escape(f"{report.whole.counts.events:,} events · mqworker pipeline report"),
    )


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
    yield from (section(chart.title, chart.note, chart.content) for chart in charts(report))
    if report.reasons:
        yield section("Why runs failed", "By task and error, with what was said last.", _reasons(report))
    by = report.question.by.value
    yield section(f"Counts by {by}", "Those that took most of the time come first.", _counts(report))
    yield section(f"Times by {by}", "From enqueue to first start, and of each run.", _times(report))
    if report.slow_runs:
        yield section("Slowest runs", "`mqworker job show ID` tells more about one.", _slow_runs(report))


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


def _times(report: Report) -> str:
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
        *(Column(name, "words") for name in ("task", "id", "queue", "worker", "ended (UTC)", "as")),
        *(Column(name) for name in ("attempt", "wait", "run")),
    ]
    rows: list[list[Markup | str]] = [
        [
            *(clean(text) for text in (run.task, run.task_id, run.queue, run.worker)),
            moment(run.ended_at_ms),
            clean(run.event),
            str(run.attempt),
            time(run.wait_ms),
            time(run.run_ms),
        ]
        for run in report.slow_runs
    ]
    return table(columns, rows)
