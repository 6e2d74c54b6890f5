"""The report on a terminal: counts, times, the slowest, and why runs failed, as tables that fit the width."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo

import click

from mqworker.cli.table import Cell, Column, Row, table
from mqworker.cli.text import NOTHING, counted, safe, short_count

if TYPE_CHECKING:
    from mqworker_services.pipeline.report.figures import Group, Histogram
    from mqworker_services.pipeline.report.question import Report

MOST_GROUPS: Final = 40
MOST_REASONS: Final = 10

_COUNTS: Final = ("enqueued", "started", "succeeded", "failed", "retried", "dead", "crashes")
_BAD: Final = {"failed": "yellow", "dead": "red", "crashes": "red"}
_PERCENTS: Final = (50, 95, 99)
_MS_PER_S, _MS_PER_MINUTE, _MS_PER_HOUR = 1_000, 60_000, 3_600_000


def report_lines(report: Report, width: int) -> Iterator[str]:
    """All lines."""
    yield from _headline(report)
    yield ""
    if not report.groups:
        yield "no event of the lake fits"
        return
    yield from _tables(report, width)
    yield from _beside(report, width)
    yield from _promises(report, width)
    yield from _outlook(report)
    yield from _slow_runs(report, width)
    yield from _reasons(report, width)


def time(ms: float | None) -> str:
    """A time with three digits and its unit: 0.25 ms, 41.8 ms, 2.42 s, 5.43 min."""
    if ms is None:
        return NOTHING
    for size, unit in ((_MS_PER_HOUR, "h"), (_MS_PER_MINUTE, "min"), (_MS_PER_S, "s")):
        if ms >= size:
            return f"{_three_digits(ms / size)} {unit}"
    return f"{_three_digits(ms)} ms"


def _three_digits(number: float) -> str:
    return f"{number:.0f}" if number >= 100 else f"{number:.3g}"  # noqa: PLR2004 - three digits


def _headline(report: Report) -> Iterator[str]:
    counts = report.whole.counts
    share = f" ({100 * counts.succeeded / counts.started:.1f} % of runs)" if counts.started else ""
    late = "" if report.question.sla_ms is None else f", {counts.late:,} too late"
    zone = report.question.zone
    first, last = _moment(report.first_ms, zone), _moment(report.last_ms, zone)
    yield f"{first} to {last} {zone}, {counted(counts.events, 'event')}"
    yield (
        f"{counts.enqueued:,} enqueued, {counts.succeeded:,} succeeded{share}, {counts.failed:,} failed, "
        f"{counts.dead:,} dead, {counts.crashes:,} crashed{late}"
    )
    for gap in report.gaps:
        yield click.style(f"not in the lake: {safe(gap)}", fg="yellow")


def _tables(report: Report, width: int) -> Iterator[str]:
    by = report.question.by.value
    shown = report.groups[:MOST_GROUPS]
    counts = (Column(by, "<"), *(Column(name) for name in _COUNTS), Column("per s"), Column("time"))
    yield from table(counts, [_counts_row(report, group) for group in shown], width=width)
    yield ""
    times = (
        Column(by, "<"),
        *(
            Column(f"{measure} {name}")
            for measure in ("wait", "run")
            for name in ("p50", "p95", "p99", "max")
        ),
    )
    rows = [_times_row(group) for group in shown if group.times.run.total]
    yield from table(times, rows, width=width) if rows else ["no run ended"]
    if len(report.groups) > MOST_GROUPS:
        more = f"… {len(report.groups) - MOST_GROUPS:,} more; --json and --html show them"
        yield click.style(more, dim=True)


def _counts_row(report: Report, group: Group) -> Row:
    whole_ms = report.whole.counts.run_ms
    return [
        safe(group.name),
        *(_count(name, getattr(group.counts, name)) for name in _COUNTS),
        _rate(report.per_second(group.counts)),
        f"{100 * group.counts.run_ms / whole_ms:.1f} %" if whole_ms else NOTHING,
    ]


def _count(name: str, value: int) -> Cell:
    return Cell(short_count(value), color=_BAD.get(name)) if value else Cell(NOTHING, is_dim=True)


def _rate(per_second: float) -> str:
    return f"{per_second:,.0f}" if per_second >= 100 else f"{per_second:.2g}"  # noqa: PLR2004 - three digits


def _times_row(group: Group) -> Row:
    return [safe(group.name), *_told(group.times.wait), *_told(group.times.run)]


def _told(times: Histogram) -> list[str]:
    percentiles = [time(times.percentile(percent)) for percent in _PERCENTS]
    return [*percentiles, time(times.max_ms if times.total else None)]


def _slow_runs(report: Report, width: int) -> Iterator[str]:
    if not report.slow_runs:
        return
    yield ""
    columns = (
        *(Column("slowest runs", "<"), Column("id", "<"), Column("worker", "<"), Column("ended", "<")),
        *(Column("attempt"), Column("wait"), Column("run")),
    )
    rows = [
        [
            *(
                safe(run.task),
                safe(run.task_id),
                safe(run.worker),
                _moment(run.ended_at_ms, report.question.zone),
            ),
            *(str(run.attempt), time(run.wait_ms), time(run.run_ms)),
        ]
        for run in report.slow_runs
    ]
    yield from table(columns, rows, width=width)


def _reasons(report: Report, width: int) -> Iterator[str]:
    if not report.reasons:
        return
    yield ""
    columns = (Column("failures of", "<"), Column("count"), Column("error", "<"))
    shown = report.reasons[:MOST_REASONS]
    rows = [[safe(reason.task), f"{reason.count:,}", safe(reason.error)] for reason in shown]
    yield from table(columns, rows, width=width)
    if len(report.reasons) > MOST_REASONS:
        more = f"… {len(report.reasons) - MOST_REASONS:,} more; --json and --html show them"
        yield click.style(more, dim=True)


def _beside(report: Report, width: int) -> Iterator[str]:
    """The time before, as long as the window, beside it: what changed."""
    if report.before is None:
        if report.question.is_compared:
            yield click.style("the lake holds nothing of the time before", dim=True)
        return
    earlier = {group.name: group for group in report.before.groups}
    names = ("succeeded", "before", "change", "failed", "before", "run p95", "before", "wait p95", "before")
    yield ""
    rows = [_beside_row(group, earlier.get(group.name)) for group in report.groups[:MOST_GROUPS]]
    yield from table((Column(report.question.by.value, "<"), *map(Column, names)), rows, width=width)


def _beside_row(group: Group, earlier: Group | None) -> Row:
    now, before = group.counts, None if earlier is None else earlier.counts
    return [
        safe(group.name),
        *(short_count(now.succeeded), NOTHING if before is None else short_count(before.succeeded)),
        _change(now.succeeded, 0 if before is None else before.succeeded),
        *(short_count(now.failed), NOTHING if before is None else short_count(before.failed)),
        *(time(None if each is None else each.times.run.percentile(95)) for each in (group, earlier)),
        *(time(None if each is None else each.times.wait.percentile(95)) for each in (group, earlier)),
    ]


def _change(now: int, before: int) -> str:
    return f"{100 * (now - before) / before:+.0f} %" if before else NOTHING


def _promises(report: Report, width: int) -> Iterator[str]:
    if not report.kept:
        return
    yield ""
    columns = (Column("promise", "<"), *map(Column, ("kept", "late", "dead", "budget burned")))
    rows: list[Row] = [
        [
            safe(kept.slo.text),
            NOTHING if kept.share is None else f"{kept.share:.3g} %",
            *(f"{kept.late:,}", f"{kept.dead:,}"),
            Cell(NOTHING) if kept.burned is None else _burned(kept.burned),
        ]
        for kept in report.kept
    ]
    yield from table(columns, rows, width=width)


def _burned(share: float) -> Cell:
    return Cell(f"{100 * share:,.0f} %", color="red" if share > 1 else None)


def _outlook(report: Report) -> Iterator[str]:
    if not report.question.is_forecast:
        return
    yield ""
    found = report.forecast
    if found is None:
        yield "no forecast: the window has fewer than three whole days; take a longer one (--since 14d)"
        return
    yield (
        f"next 7 days, from {found.days} whole days: about {short_count(round(found.enqueued_per_day))} "
        f"enqueued and {found.busy_hours_per_day:,.1f} hours of work a day "
        f"({100 * found.growth_per_week:+.0f} % a week); "
        f"the busiest hour will keep {found.peak_workers:.1f} workers busy"
    )


def _moment(at_ms: int, zone: str) -> str:
    return datetime.fromtimestamp(at_ms / 1000, ZoneInfo(zone)).strftime("%Y-%m-%d %H:%M:%S")
