"""Figures by task over the last minutes to a day, from what dispatchers kept: runs, failures, waits."""

from __future__ import annotations

from dataclasses import dataclass

from mqworker.errors import InvalidArgument
from mqworker.model.figures import Figures, TaskFigures, percentile_ms
from mqworker.operate.system import System
from mqworker.queues.work.figures import MINUTES, QUARTERS, read_figures

LONGEST_MS = 24 * 3600 * 1000
_FINE_MS = 2 * 3600 * 1000
"""Up to here minutes are added up, beyond that quarters of an hour."""
_SHARES = (0.5, 0.95, 0.99)


@dataclass(frozen=True, slots=True)
class TaskRow:
    """One task in one queue, over the whole time."""

    queue: str
    task: str
    runs: int
    failed: int
    retried: int
    buried: int
    crashed: int
    per_s: float
    wait_ms: tuple[float | None, ...]
    """Half of them, 95 and 99 of a hundred waited no longer; then the longest."""
    run_ms: tuple[float | None, ...]
    spread: tuple[int, ...]
    """Runs in each stretch."""


@dataclass(frozen=True, slots=True)
class Statistics:
    """All tasks, the busiest first, and all of them together in each stretch."""

    from_ms: int
    until_ms: int
    stretch_s: int
    rows: tuple[TaskRow, ...]
    at_s: tuple[int, ...]
    runs_per_s: tuple[float, ...]
    failed_per_s: tuple[float, ...]
    wait_p95_ms: tuple[float | None, ...]
    run_p95_ms: tuple[float | None, ...]


def read_statistics(
    system: System, last_ms: int, *, queue: str | None = None, task: str | None = None
) -> Statistics:
    """What ran in the last so many ms, up to a day; of one queue, or of tasks with this in their name."""
    if not 0 < last_ms <= LONGEST_MS:
        raise InvalidArgument(f"the time is {last_ms / 1000:g} s; accepted is up to a day")
    now_ms = system.now_ms()
    resolution = MINUTES if last_ms <= _FINE_MS else QUARTERS
    last = resolution.number(now_ms)
    first = resolution.number(now_ms - last_ms)
    numbers = range(first, last + 1)
    parts = [
        _of(figures, queue, task)
        for figures in read_figures(system.store, system.settings.namespace, resolution, numbers)
    ]
    from_ms = first * resolution.stretch_s * 1000
    sums = [_sum(part) for part in parts]
    # The newest stretch has only begun: what is divided by its whole length would look like a drop.
    lengths_s = [resolution.stretch_s] * (len(parts) - 1) + [
        max(1.0, now_ms / 1000 - last * resolution.stretch_s)
    ]
    pairs = list(zip(sums, lengths_s, strict=True))
    return Statistics(
        from_ms,
        now_ms,
        resolution.stretch_s,
        tuple(_rows(parts, max(1.0, (now_ms - from_ms) / 1000))),
        tuple(number * resolution.stretch_s for number in numbers),
        tuple(round(each.ended / length_s, 3) for each, length_s in pairs),
        tuple(round(each.failed / length_s, 3) for each, length_s in pairs),
        tuple(_rounded(percentile_ms(each.waits, 0.95, each.wait_max_ms)) for each in sums),
        tuple(_rounded(percentile_ms(each.runs, 0.95, each.run_max_ms)) for each in sums),
    )


def _of(figures: Figures, queue: str | None, task: str | None) -> Figures:
    figures.by_task = {
        (name, its): counted
        for (name, its), counted in figures.by_task.items()
        if (queue is None or name == queue) and (task is None or task in its)
    }
    return figures


def _sum(figures: Figures) -> TaskFigures:
    total = TaskFigures()
    for counted in figures.by_task.values():
        total.add(counted)
    return total


def _rows(parts: list[Figures], length_s: float) -> list[TaskRow]:
    totals: dict[tuple[str, str], TaskFigures] = {}
    for part in parts:
        for key, counted in part.by_task.items():
            totals.setdefault(key, TaskFigures()).add(counted)
    rows = [_row(key, total, parts, length_s) for key, total in totals.items()]
    return sorted(rows, key=lambda row: (-row.runs, row.queue, row.task))


def _row(key: tuple[str, str], total: TaskFigures, parts: list[Figures], length_s: float) -> TaskRow:
    waits = [percentile_ms(total.waits, share, total.wait_max_ms) for share in _SHARES]
    runs = [percentile_ms(total.runs, share, total.run_max_ms) for share in _SHARES]
    return TaskRow(
        *key,
        total.ended,
        total.failed,
        total.retried,
        total.buried,
        total.crashed,
        round(total.ended / length_s, 3),
        (*map(_rounded, waits), _rounded(total.wait_max_ms if total.waits else None)),
        (*map(_rounded, runs), _rounded(total.run_max_ms if total.runs else None)),
        tuple(part.by_task[key].ended if key in part.by_task else 0 for part in parts),
    )


def _rounded(ms: float | None) -> float | None:
    return None if ms is None else round(ms, 3)
