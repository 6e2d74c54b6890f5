"""The report: what happened in a window of the lake, as one value for terminal, JSON and page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path

from mqworker_services.pipeline.lake import Lake
from mqworker_services.pipeline.report_figures import Counts, Group, Reason, SlowRun, Times
from mqworker_services.pipeline.report_query import By
from mqworker_services.pipeline.report_window import Window


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


@dataclass(frozen=True, slots=True)
class Step:
    """What happened in one step of time."""

    at_ms: int
    counts: Counts
    times: Times
    run_ms_by_task: dict[str, float]


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

    @property
    def lake(self) -> Path:
        """Where the events were read."""
        return self.question.lake.root

    @property
    def span_s(self) -> float:
        """How long the window is, as far as there are events."""
        return max(1, self.last_ms - self.first_ms) / 1000

    def per_second(self, group: Counts) -> float:
        """How many runs succeeded in a second."""
        return group.succeeded / self.span_s
