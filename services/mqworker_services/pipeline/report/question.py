"""What a report is asked, and what it answers: one value for terminal, JSON and page. Pure.

The window says from when to when, and how wide the steps of the charts are.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum, StrEnum, auto
from typing import Final

from mqworker.errors import InvalidArgument
from mqworker_services.pipeline.lake import Lake
from mqworker_services.pipeline.report.figures import Counts, Group, Histogram, Reason, SlowRun, Times
from mqworker_services.pipeline.report.time_zones import UTC_NAME, instant_ms
from mqworker_services.pipeline.report.trends import Forecast, Kept, Slo, Storm

MOST_STEPS: Final = 84
"""A week in steps of two hours: more would be finer than the eye sees on a page."""

_SECOND, _MINUTE, _HOUR, _DAY = 1_000, 60_000, 3_600_000, 86_400_000
_UNITS: Final = {"s": _SECOND, "m": _MINUTE, "h": _HOUR, "d": _DAY, "w": 7 * _DAY}
_STEPS: Final = (
    *(_SECOND * count for count in (1, 2, 5, 10, 15, 30)),
    *(_MINUTE * count for count in (1, 2, 5, 10, 15, 30)),
    *(_HOUR * count for count in (1, 2, 3, 6, 12)),
    *(_DAY * count for count in (1, 7, 28)),
)
_AGO = re.compile(r"([0-9]{1,6})([smhdw])")


@dataclass(frozen=True, slots=True)
class Window:
    """Events at or after `since_ms` and before `until_ms`; no beginning means all there are."""

    since_ms: int | None
    until_ms: int

    @property
    def dates(self) -> tuple[str | None, str]:
        """The first and the last folder of the lake that may hold such events."""
        first = None if self.since_ms is None else _date_of(self.since_ms)
        return first, _date_of(self.until_ms - 1)

    def before(self) -> Window:
        """The window of the same length that ends where this one begins; raises without a beginning."""
        if self.since_ms is None:
            raise InvalidArgument(
                "--compare is given without --since; accepted is both: --since 7d --compare"
            )
        return Window(max(0, 2 * self.since_ms - self.until_ms), self.since_ms)


def window(since: str | None, until: str | None, now_ms: int, zone: str = UTC_NAME) -> Window:
    """The window that `--since` and `--until` ask for."""
    until_ms = now_ms if until is None else parse_instant("--until", until, now_ms, zone)
    since_ms = None if since is None else parse_instant("--since", since, now_ms, zone)
    if since_ms is not None and since_ms >= until_ms:
        raise InvalidArgument(
            f"--since is {since!r}, which is not before --until ({until!r}); accepted is an earlier instant"
            if until is not None
            else f"--since is {since!r}, which is not in the past; accepted is an earlier instant"
        )
    return Window(since_ms, until_ms)


def parse_instant(option: str, text: str, now_ms: int, zone: str = UTC_NAME) -> int:
    """`7d` (ago), `2026-01-31` or `2026-01-31T18:00+01:00`, in ms; in the zone unless it says another."""
    ago = _AGO.fullmatch(text)
    if ago:
        return max(0, now_ms - int(ago.group(1)) * _UNITS[ago.group(2)])
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            return max(0, instant_ms(moment, zone))
        return max(0, int(moment.timestamp() * 1000))
    except (ValueError, OverflowError) as error:
        raise InvalidArgument(
            f"{option} is {text!r}; accepted is a time ago such as 90m, 24h, 7d or 2w, "
            "a date such as 2026-01-31, or a moment such as 2026-01-31T18:00"
        ) from error


def step_ms(span_ms: int) -> int:
    """The width of a step, so that the whole span has no more than a page can show."""
    fitting = (step for step in _STEPS if span_ms <= step * MOST_STEPS)
    return next(fitting, span_ms // MOST_STEPS + _DAY)


def _date_of(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).date().isoformat()


class By(StrEnum):
    """What the rows of a report stand for."""

    TASK = "task"
    QUEUE = "queue"
    WORKER = "worker"
    NODE = "node"
    HOUR = "hour"
    DAY = "day"


class Detail(Enum):
    """How much is asked of Spark: a terminal shows no times over time and no examples."""

    TABLE = auto()
    PAGE = auto()


@dataclass(frozen=True, slots=True)
class Question:
    """What the report shall be about."""

    lake: Lake
    window: Window
    by: By = By.TASK
    tasks: Sequence[str] = ()
    queues: Sequence[str] = ()
    slowest: int = 10
    sla_ms: float | None = None
    detail: Detail = Detail.TABLE
    zone: str = UTC_NAME
    """Whose days and hours are meant."""
    slos: Sequence[Slo] = ()
    is_compared: bool = False
    """Whether the time before, as long as the window, stands beside it."""
    is_forecast: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """What happened in one step of time."""

    at_ms: int
    counts: Counts
    times: Times
    run_ms_by_task: dict[str, float]
    errors: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Report:
    """All figures. Rates are over the span that the events of the window cover."""

    question: Question
    first_ms: int
    last_ms: int
    step_ms: int
    whole: Group
    groups: list[Group]
    steps: list[Step]
    reasons: list[Reason]
    slow_runs: list[SlowRun]
    gaps: list[str]
    """What the lake does not hold of the window, a sentence each."""
    unknown: list[str] = field(default_factory=list)
    """Tasks and queues that were asked for and have no event in the window, a sentence each."""
    kept: list[Kept] = field(default_factory=list)
    storms: list[Storm] = field(default_factory=list)
    waits_by_hour: dict[tuple[int, int], Histogram] = field(default_factory=dict)
    """By weekday (0 is Monday) and hour."""
    before: Report | None = None
    """The same for the time before."""
    forecast: Forecast | None = None

    @property
    def lake(self) -> str:
        """Where the events were read."""
        return self.question.lake.root

    @property
    def span_s(self) -> float:
        """How long the window is, as far as there are events."""
        return max(1, self.last_ms - self.first_ms) / 1000

    def per_second(self, group: Counts) -> float:
        """How many runs succeeded in a second."""
        return group.succeeded / self.span_s
