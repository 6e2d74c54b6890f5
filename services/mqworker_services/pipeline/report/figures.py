"""The figures of a report, and how they follow from the events. Pure; `docs/pipeline.md` has the definitions.

Spark hands over cells: how many events of one kind, of one task, with about the same run time. What such an
event means for the figures is decided here, once, in `tally`. Times are counted in histograms on a
logarithmic scale: small, mergeable, and within 1 % of the exact percentile, for neighbouring buckets differ
by 2 % and a percentile is told as the middle of its bucket.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

GROWTH: Final = 1.02
SHORTEST_MS: Final = 0.001
"""Run times are kept to the microsecond; what is shorter, or negative because two hosts disagree about the
time, counts as nothing."""

_JUST_BELOW: Final = 1 - 1e-9
"""A power and a logarithm may round to different sides of the edge of a bucket."""
_LONGEST_MS: Final = 1e15
_LOG_GROWTH: Final = math.log(GROWTH)


@dataclass(slots=True)
class Histogram:
    """How many times fell into which bucket, and the longest of them exactly."""

    counts: dict[int, int] = field(default_factory=dict)
    max_ms: float = 0.0

    def add(self, bucket: int, count: int, max_ms: float) -> None:
        """Add this many to the bucket; the longest of them took this long."""
        self.counts[bucket] = self.counts.get(bucket, 0) + count
        self.max_ms = max(self.max_ms, max_ms)

    @property
    def total(self) -> int:
        """How many times were counted."""
        return sum(self.counts.values())

    def percentile(self, percent: int) -> float | None:
        """The time within which so many percent of all fell (nearest rank); None when there are none."""
        rank = -(-self.total * percent // 100)
        for bucket in sorted(self.counts):
            rank -= self.counts[bucket]
            if rank <= 0:
                return min(middle_of(bucket), self.max_ms)
        return None

    def floor_of_longest(self, most: int) -> float:
        """A time that at least so many reached, if there are as many."""
        for bucket in sorted(self.counts, reverse=True):
            most -= self.counts[bucket]
            if most <= 0:
                return 0.0 if bucket <= _LOWEST else GROWTH**bucket * _JUST_BELOW
        return 0.0


def merged(histograms: Iterable[Histogram]) -> Histogram:
    """All of them in one."""
    whole = Histogram()
    for each in histograms:
        for bucket, count in each.counts.items():
            whole.add(bucket, count, each.max_ms)
    return whole


def bucket_of(ms: float) -> int:
    """The bucket of a time."""
    return math.floor(math.log(max(ms, SHORTEST_MS)) / _LOG_GROWTH)


# Any: pyarrow ships no types.
def buckets_of(ms: Any) -> Any:  # noqa: ANN401
    """The same for a column of times; null stays null, and what is not a number counts as none."""
    values = np.clip(ms.to_numpy(zero_copy_only=False), SHORTEST_MS, _LONGEST_MS)
    return pa.array(np.floor(np.log(values) / _LOG_GROWTH), pa.float64(), from_pandas=True).cast(pa.int32())


def middle_of(bucket: int) -> float:
    """The time that stands for all in a bucket."""
    return 0.0 if bucket <= _LOWEST else GROWTH ** (bucket + 0.5)


_LOWEST: Final = bucket_of(SHORTEST_MS)


PERCENTS: Final = (50, 95, 99)
NO_NAME: Final = "(none)"
"""Stands for a task, queue or worker that an event does not name."""

# A burial with one of these errors ended a run, although nobody was left to tell when it had begun.
_KILLED_RUN: Final = "HardTimeout"
_CRASHED_RUN: Final = "WorkerCrashed"


@dataclass(frozen=True, slots=True)
class Cell:
    """How many events agree in all of this."""

    key: str
    task: str
    event: str
    error: str | None
    bucket: int | None
    """Of the run time, see `report_histogram`; None when no run ended with the event."""
    count: int
    run_ms: float
    """Of all of them together."""
    max_run_ms: float
    late: int = 0
    """How many of them took longer, from enqueue to end, than was promised."""


@dataclass(slots=True)
class Counts:
    """How often what happened; `started` is the sum of the three ways in which a run ends."""

    enqueued: int = 0
    succeeded: int = 0
    failed: int = 0
    crashes: int = 0
    retried: int = 0
    dead: int = 0
    reclaimed: int = 0
    expired: int = 0
    cancelled: int = 0
    late: int = 0
    events: int = 0
    run_ms: float = 0.0

    @property
    def started(self) -> int:
        """Runs of which it is known how they ended."""
        return self.succeeded + self.failed + self.crashes


@dataclass(frozen=True, slots=True)
class Times:
    """The distributions of three times."""

    wait: Histogram = field(default_factory=Histogram)
    run: Histogram = field(default_factory=Histogram)
    total: Histogram = field(default_factory=Histogram)


@dataclass(frozen=True, slots=True)
class Group:
    """One row of the report: a task, a queue, a worker, an hour or a day."""

    name: str
    counts: Counts
    times: Times


@dataclass(frozen=True, slots=True)
class Reason:
    """Why runs of a task failed, how often, and an example of what was said."""

    task: str
    error: str
    count: int
    example: str = ""


@dataclass(frozen=True, slots=True)
class SlowRun:
    """One of the longest runs."""

    task_id: str
    task: str
    queue: str
    worker: str
    event: str
    attempt: int
    ended_at_ms: int
    wait_ms: float
    run_ms: float


def tally(cells: Iterable[Cell]) -> Counts:
    """What the cells add up to."""
    counts = Counts()
    for cell in cells:
        counts.events += cell.count
        counts.run_ms += cell.run_ms
        counts.late += cell.late
        _count(counts, cell)
    return counts


def _count(counts: Counts, cell: Cell) -> None:
    match cell.event:
        case "enqueued" | "succeeded" | "reclaimed" | "expired" | "cancelled":
            setattr(counts, cell.event, getattr(counts, cell.event) + cell.count)
        case "retried":
            counts.retried += cell.count
            counts.failed += cell.count
        case "crashed":
            counts.crashes += cell.count
        case "buried":
            counts.dead += cell.count
            counts.failed += cell.count * _is_failed_run(cell)
            counts.crashes += cell.count * (cell.error == _CRASHED_RUN)
        case _:
            pass  # released, parked, revived, purged: no figure of the report; they count as events


def _is_failed_run(cell: Cell) -> bool:
    return cell.bucket is not None or cell.error == _KILLED_RUN


def groups(
    cells: Iterable[Cell], waits: Mapping[str, Histogram], totals: Mapping[str, Histogram]
) -> list[Group]:
    """One group for each key, those that took most of the time first."""
    by_key: dict[str, list[Cell]] = {}
    for cell in cells:
        by_key.setdefault(cell.key, []).append(cell)
    found = [
        Group(
            key,
            tally(each),
            Times(waits.get(key, Histogram()), run_times(each), totals.get(key, Histogram())),
        )
        for key, each in by_key.items()
    ]
    return sorted(found, key=lambda group: (-group.counts.run_ms, -group.counts.events, group.name))


def whole(found: Sequence[Group], cells: Iterable[Cell]) -> Group:
    """All groups in one."""
    times = (merged(getattr(group.times, name) for group in found) for name in ("wait", "run", "total"))
    return Group("all", tally(cells), Times(*times))


def run_times(cells: Iterable[Cell]) -> Histogram:
    """The distribution of the run times in the cells."""
    histogram = Histogram()
    for cell in cells:
        if cell.bucket is not None:
            histogram.add(cell.bucket, cell.count, cell.max_run_ms)
    return histogram


def slowest(found: Iterable[Group], most: int) -> list[Group]:
    """The groups with the longest runs, by the time within which 95 % of their runs end."""
    ran = [group for group in found if group.times.run.total]
    return sorted(ran, key=lambda group: -(group.times.run.percentile(95) or 0.0))[:most]


def reasons(cells: Iterable[Cell], examples: Mapping[tuple[str, str], str]) -> list[Reason]:
    """Failed and crashed runs and burials by task and error, the most frequent first."""
    counts: dict[tuple[str, str], int] = {}
    for cell in cells:
        if cell.event in {"retried", "buried", "crashed"}:
            reason = (cell.task, cell.error or cell.event)
            counts[reason] = counts.get(reason, 0) + cell.count
    found = [Reason(*reason, count, examples.get(reason, "")) for reason, count in counts.items()]
    return sorted(found, key=lambda reason: (-reason.count, reason.task, reason.error))
