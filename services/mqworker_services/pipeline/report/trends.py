"""What figures over time amount to: promises kept, storms of retries, what comes next. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from mqworker.errors import InvalidArgument
from mqworker_services.pipeline.report.figures import Cell, Histogram, merged, tally
from mqworker_services.pipeline.report.time_zones import local

FEWEST_DAYS: Final = 3
"""Of whole days, before anything is said about the next ones."""
FEWEST_RETRIES: Final = 20
_WEEK: Final = 7
_MS_PER_HOUR: Final = 3_600_000
_UNITS: Final = {"ms": 1.0, "s": 1_000.0, "m": 60_000.0, "min": 60_000.0, "h": 3_600_000.0}
_SLO: Final = re.compile(r"\s*(.+?)\s*:\s*([0-9.]+)\s*%\s*<\s*([0-9.]+)\s*(ms|s|min|m|h)\s*")


@dataclass(frozen=True, slots=True)
class Slo:
    """A promise: such a share of a task's messages succeeds within a time, counted from enqueue."""

    task: str
    percent: float
    limit_ms: float
    text: str

    def is_about(self, task: str | None) -> bool:
        """Whether a task is meant: by its name, or by the last part of it."""
        return task is not None and (task == self.task or task.endswith(f".{self.task}"))


@dataclass(frozen=True, slots=True)
class Kept:
    """How a promise was kept: what succeeded in time, what was late, and what was given up."""

    slo: Slo
    good: int
    late: int
    dead: int

    @property
    def share(self) -> float | None:
        """The share that was good, in percent; None when nothing ended."""
        ended = self.good + self.late + self.dead
        return 100 * self.good / ended if ended else None

    @property
    def burned(self) -> float | None:
        """How much of what may fail did fail: 1 is all of it. None when nothing may."""
        allowed = (self.good + self.late + self.dead) * (1 - self.slo.percent / 100)
        return (self.late + self.dead) / allowed if allowed > 0 else None


def parse_slo(text: str) -> Slo:
    """`charge: 99% < 2s`."""
    found = _SLO.fullmatch(text)
    try:
        if found is None:
            raise ValueError(text)  # noqa: TRY301 - same fate
        percent, limit = float(found.group(2)), float(found.group(3))
        if not 0 < percent <= 100 or limit <= 0:  # noqa: PLR2004 - percent
            raise ValueError(text)  # noqa: TRY301 - same fate
    except ValueError as error:
        raise InvalidArgument(
            f"--slo is {text!r}; accepted is such as 'charge: 99% < 2s' (ms, s, min or h)"
        ) from error
    return Slo(found.group(1), percent, limit * _UNITS[found.group(4)], text.strip())


@dataclass(frozen=True, slots=True)
class Storm:
    """A time in which a task was tried again more often than it succeeded."""

    at_ms: int
    task: str
    retried: int
    succeeded: int


def storms(cells: Iterable[Cell]) -> list[Storm]:
    """Steps of time, by task, with many retries and fewer successes; the cells' keys are instants."""
    by_place: dict[tuple[int, str], list[Cell]] = {}
    for cell in cells:
        by_place.setdefault((int(cell.key), cell.task), []).append(cell)
    found = []
    for (at_ms, task), some in sorted(by_place.items()):
        counts = tally(some)
        if counts.retried >= FEWEST_RETRIES and counts.retried > counts.succeeded:
            found.append(Storm(at_ms, task, counts.retried, counts.succeeded))
    return found


def errors_by_step(cells: Iterable[Cell]) -> dict[int, dict[str, int]]:
    """How often which error ended a run, by step; the cells' keys are instants."""
    found: dict[int, dict[str, int]] = {}
    for cell in cells:
        if cell.event in {"retried", "buried", "crashed"}:
            of_step = found.setdefault(int(cell.key), {})
            name = cell.error or cell.event
            of_step[name] = of_step.get(name, 0) + cell.count
    return found


def by_weekday_and_hour(waits: Mapping[int, Histogram], zone: str) -> dict[tuple[int, int], Histogram]:
    """Distributions by hour of the week (0 is Monday), from those by hour."""
    parts: dict[tuple[int, int], list[Histogram]] = {}
    for at_ms, histogram in waits.items():
        here = local(at_ms, zone)
        parts.setdefault((here.weekday(), here.hour), []).append(histogram)
    return {place: merged(some) for place, some in parts.items()}


@dataclass(frozen=True, slots=True)
class Day:
    """What a whole day had."""

    enqueued: int
    run_ms: float


@dataclass(frozen=True, slots=True)
class Forecast:
    """What the next days will bring if they are like those before."""

    days: int
    """How many whole days it was made from."""
    enqueued_per_day: float
    busy_hours_per_day: float
    """Of workers, all together."""
    growth_per_week: float
    """0.1 is ten percent more each week."""
    peak_workers: float
    """How many workers the busiest hour kept busy, with the growth until next week added."""


def forecast(days: Sequence[Day], busiest_hour_ms: float) -> Forecast | None:
    """By the trend of whole days; with two weeks or more, of one week against the week before."""
    if len(days) < FEWEST_DAYS:
        return None
    growth = _growth([day.run_ms or day.enqueued for day in days])
    recent = days[-_WEEK:]
    factor = 1 + growth
    return Forecast(
        days=len(days),
        enqueued_per_day=factor * sum(day.enqueued for day in recent) / len(recent),
        busy_hours_per_day=factor * sum(day.run_ms for day in recent) / len(recent) / _MS_PER_HOUR,
        growth_per_week=growth,
        peak_workers=factor * busiest_hour_ms / _MS_PER_HOUR,
    )


def _growth(values: Sequence[float]) -> float:
    """By how much a week exceeds the one before, at least -1."""
    if len(values) >= 2 * _WEEK:
        before, now = sum(values[-2 * _WEEK : -_WEEK]), sum(values[-_WEEK:])
        return now / before - 1 if before else 0.0
    middle, mean = (len(values) - 1) / 2, sum(values) / len(values)
    spread = sum((position - middle) ** 2 for position in range(len(values)))
    slope = sum((position - middle) * (value - mean) for position, value in enumerate(values)) / spread
    return max(-1.0, _WEEK * slope / mean) if mean else 0.0
