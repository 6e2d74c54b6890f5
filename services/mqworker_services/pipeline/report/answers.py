"""How a report is made: what is asked together costs one look at each file."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from mqworker_services.pipeline.engine import Engine
from mqworker_services.pipeline.lake import EmptyLake
from mqworker_services.pipeline.losses import beginning_told, book_of
from mqworker_services.pipeline.report.asking import (
    DAY_MS,
    HOUR_MS,
    Distributions,
    Measure,
    ask_cells,
    ask_examples,
    ask_names,
    ask_slos,
    ask_slowest,
    ask_times,
    label,
)
from mqworker_services.pipeline.report.figures import (
    Cell,
    Histogram,
    SlowRun,
    Times,
    groups,
    reasons,
    tally,
    whole,
)
from mqworker_services.pipeline.report.files import (
    EventFiles,
    Extent,
    Selection,
    look_at_files,
)
from mqworker_services.pipeline.report.question import By, Detail, Question, Report, Step, step_ms
from mqworker_services.pipeline.report.time_zones import floored, next_step
from mqworker_services.pipeline.report.trends import (
    Day,
    Forecast,
    Storm,
    by_weekday_and_hour,
    errors_by_step,
    forecast,
    storms,
)


def make_report(engine: Engine, question: Question, extent: Extent) -> Report:
    """Read the lake and answer the question; `extent` is what `look_at_files` found."""
    report = _answer(_event_files(engine, question, extent), question, extent)
    if not question.is_compared:
        return report
    earlier = replace(question, window=question.window.before(), is_compared=False, is_forecast=False)
    try:
        extent = look_at_files(earlier.lake, earlier.window, earlier.queues)
    except EmptyLake:
        return report
    return replace(report, before=_answer(_event_files(engine, earlier, extent), earlier, extent))


def _event_files(engine: Engine, question: Question, extent: Extent) -> EventFiles:
    selection = Selection(question.window, tuple(question.tasks), tuple(question.queues))
    return EventFiles(engine, question.lake, extent.files, selection)


def _answer(rows: EventFiles, question: Question, extent: Extent) -> Report:
    first_ms = max(extent.first_ms, question.window.since_ms or 0)
    last_ms = min(extent.last_ms, question.window.until_ms)
    width_ms, zone = step_ms(last_ms - first_ms), question.zone
    is_page = question.detail is Detail.PAGE
    measures = [Measure.WAIT, Measure.TOTAL] if is_page else [Measure.WAIT]
    cells, times, names, kept = rows.answers(
        ask_cells(question.by, question.sla_ms, zone),
        ask_times(question.by, measures, zone),
        ask_names(question.tasks, question.queues),
        ask_slos(question.slos),
    )
    page = _page_parts(rows, width_ms, zone) if is_page else _PageParts()
    found = groups(cells, *_waits_and_totals(times, question.by, zone))
    everything = whole(found, cells)
    return Report(
        question=question,
        first_ms=first_ms,
        last_ms=last_ms,
        step_ms=width_ms,
        whole=everything,
        groups=found,
        steps=page.steps,
        reasons=reasons(cells, page.examples),
        slow_runs=_slow_runs(rows, question.slowest, everything.times.run),
        gaps=_gaps(question, extent),
        unknown=_unknown(question, names),
        kept=kept,
        storms=page.storms,
        waits_by_hour=page.waits_by_hour,
        forecast=_forecast(rows, first_ms, last_ms, zone) if question.is_forecast else None,
    )


@dataclass(frozen=True, slots=True)
class _PageParts:
    """What a terminal does not show."""

    steps: list[Step] = field(default_factory=list)
    examples: dict[tuple[str, str], str] = field(default_factory=dict)
    storms: list[Storm] = field(default_factory=list)
    waits_by_hour: dict[tuple[int, int], Histogram] = field(default_factory=dict)


def _page_parts(rows: EventFiles, width_ms: int, zone: str) -> _PageParts:
    step_cells, step_times, hourly_waits, examples = rows.answers(
        ask_cells(width_ms, zone=zone),
        ask_times(width_ms, [Measure.WAIT, Measure.RUN, Measure.TOTAL], zone),
        ask_times(HOUR_MS, [Measure.WAIT], zone),
        ask_examples(),
    )
    waits = {int(at_ms): histograms[0] for at_ms, histograms in hourly_waits.items()}
    return _PageParts(
        _steps(step_cells, step_times, width_ms, zone),
        examples,
        storms(step_cells),
        by_weekday_and_hour(waits, zone),
    )


def _unknown(question: Question, names: set[tuple[str, str]]) -> list[str]:
    """Who asks for a task or a queue that is not there has mistyped it, or looks at the wrong time."""
    tasks, queues = {task for task, _ in names}, {queue for _, queue in names}
    told = [f"no event of task {task!r} is in the window" for task in question.tasks if task not in tasks]
    told += [
        f"no event of queue {queue!r} is in the window" for queue in question.queues if queue not in queues
    ]
    told += [
        f"no event of task {slo.task!r} is in the window"
        for slo in question.slos
        if not any(map(slo.is_about, tasks))
    ]
    return told


def _forecast(rows: EventFiles, first_ms: int, last_ms: int, zone: str) -> Forecast | None:
    """From whole days only: the first and the last may have begun late, or end early."""
    days, hours = rows.answers(ask_cells(DAY_MS, zone=zone), ask_cells(HOUR_MS, zone=zone))
    by_day: dict[int, list[Cell]] = {}
    for cell in days:
        by_day.setdefault(int(cell.key), []).append(cell)
    begin, end = floored(first_ms + DAY_MS - 1, DAY_MS, zone), floored(last_ms, DAY_MS, zone)
    whole_days: list[Day] = []
    at_ms = begin
    while at_ms < end:
        counts = tally(by_day.get(at_ms, []))
        whole_days.append(Day(counts.enqueued, counts.run_ms))
        at_ms = next_step(at_ms, DAY_MS, zone)
    by_hour: dict[str, float] = {}
    for cell in hours:
        by_hour[cell.key] = by_hour.get(cell.key, 0.0) + cell.run_ms
    return forecast(whole_days, max(by_hour.values(), default=0.0))


def _gaps(question: Question, extent: Extent) -> list[str]:
    """Of the queues and the window that are asked about; what was before the first event only without one."""
    window, queues = question.window, set(question.queues)
    is_from_start = window.since_ms is None or window.since_ms <= extent.first_ms
    before = extent.checkpoint.dropped_before if is_from_start else {}
    losses = (
        loss for loss in book_of(question.lake).all() if loss.overlaps(window.since_ms, window.until_ms)
    )
    told = [(queue, beginning_told(queue, blocks)) for queue, blocks in sorted(before.items())]
    told += [(loss.queue, loss.told()) for loss in losses]
    return [sentence for queue, sentence in told if not queues or queue in queues]


def _waits_and_totals(
    times: Distributions, by: By, zone: str
) -> tuple[dict[str, Histogram], dict[str, Histogram]]:
    by_name = {label(by, key, zone): histograms for key, histograms in times.items()}
    waits = {name: histograms[0] for name, histograms in by_name.items()}
    totals = {name: histograms[1] for name, histograms in by_name.items() if len(histograms) > 1}
    return waits, totals


def _steps(cells: list[Cell], times: Distributions, width_ms: int, zone: str) -> list[Step]:
    """Every step between the first and the last, also those in which nothing happened."""
    cells_by_step: dict[int, list[Cell]] = {}
    for cell in cells:
        cells_by_step.setdefault(int(cell.key), []).append(cell)
    if not cells_by_step:
        return []
    steps, at_ms = [], min(cells_by_step)
    while at_ms <= max(cells_by_step):
        steps.append(_step(at_ms, cells_by_step.get(at_ms, []), Times(*times.get(at_ms, ()))))
        at_ms = next_step(at_ms, width_ms, zone)
    return steps


def _step(at_ms: int, cells: list[Cell], times: Times) -> Step:
    run_ms_by_task: dict[str, float] = {}
    for cell in cells:
        run_ms_by_task[cell.task] = run_ms_by_task.get(cell.task, 0.0) + cell.run_ms
    errors = errors_by_step(cells).get(at_ms, {})
    return Step(at_ms, tally(cells), times, run_ms_by_task, errors)


def _slow_runs(rows: EventFiles, most: int, run: Histogram) -> list[SlowRun]:
    if not most or not run.total:
        return []
    # Knowing from where on the longest begin, all row groups without such runs are passed over.
    (slow_runs,) = rows.answers(ask_slowest(most, run.floor_of_longest(most)))
    return list(slow_runs)
