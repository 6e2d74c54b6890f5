"""Figures: how many runs of each task ended how, and how long they waited and ran, as histograms. Pure.

A histogram counts in buckets that grow by a quarter of a power of two: whatever is read from it is right
within an eighth, about. How many runs there were, how long they took together and how long the longest took
is exact. Where tasks are so quick that looking at each run would cost more than a hundredth of their time, a
few of them, evenly spread, stand for the others in the histograms, and for all that is said of waits.

    Figures.note         one run                     Figures.note_runs    a batch, as a worker has it
    Figures.take         what was noted, as plain values, and begin anew; `add` is the other end
    Figures.snapshot     the same, and go on counting
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mqworker.model.delivery import Delivery
from mqworker.model.settlement import Ack, Bury, RetryAt

OUTCOMES = ("succeeded", "retried", "buried", "crashed")
MOST_TASKS = 200
OTHER = "(other)"
"""Stands for all tasks beyond MOST_TASKS of a queue; no task can have this name."""

Ran = Ack | RetryAt | Bury
Histogram = dict[int, int]
Key = tuple[str, str]
"""Queue and task."""
# Any: numbers, and lists of numbers, as they stand in a mail or in Redis.
Plain = list[Any]

_MOST_OF_A_BATCH = 16
_MOST_LOOKED_AT = 500
"""From one `take` to the next, a second as a rule; of what comes then, one in ONE_OF is looked at."""
_ONE_OF = 64
_SMALLEST_MS = 0.001
_LAST_BUCKET = 4 * 45
"""About a year."""
_NUMBERS = 8


@dataclass(slots=True)
class TaskFigures:
    """The figures of one task in one queue."""

    succeeded: int = 0
    retried: int = 0
    buried: int = 0
    crashed: int = 0
    wait_sum_ms: float = 0.0
    wait_max_ms: float = 0.0
    run_sum_ms: float = 0.0
    run_max_ms: float = 0.0
    waits: Histogram = field(default_factory=dict)
    """Of first attempts: a retry waits on purpose."""
    runs: Histogram = field(default_factory=dict)

    @property
    def ended(self) -> int:
        """How many runs there were."""
        return self.succeeded + self.failed

    @property
    def failed(self) -> int:
        """How many of them failed, whether they were tried again or not."""
        return self.retried + self.buried + self.crashed

    def count(self, outcome: str, number: int = 1) -> None:
        """Note how runs ended, one of OUTCOMES."""
        setattr(self, outcome, getattr(self, outcome) + number)

    def note_wait(self, ms: float, number: int = 1) -> None:
        """Note how long a run had waited, which stands for so many."""
        self.wait_sum_ms += ms * number
        self.wait_max_ms = max(self.wait_max_ms, ms)
        bucket = bucket_of(ms)
        self.waits[bucket] = self.waits.get(bucket, 0) + number

    def note_run(self, ms: float, number: int = 1) -> None:
        """Note in the histogram how long a run took, which stands for so many."""
        bucket = bucket_of(ms)
        self.runs[bucket] = self.runs.get(bucket, 0) + number

    def stretch(self, number: int) -> None:
        """Let the most common run time stand for so many more."""
        if self.runs:
            self.runs[max(self.runs, key=lambda bucket: self.runs[bucket])] += number

    def add(self, other: TaskFigures) -> None:
        """Count what the other one counted, too."""
        for outcome in OUTCOMES:
            self.count(outcome, getattr(other, outcome))
        # Sums of whole microseconds: the same in any order, so that a total never falls by a rounding error.
        self.wait_sum_ms = round(self.wait_sum_ms + other.wait_sum_ms, 3)
        self.run_sum_ms = round(self.run_sum_ms + other.run_sum_ms, 3)
        self.wait_max_ms = max(self.wait_max_ms, other.wait_max_ms)
        self.run_max_ms = max(self.run_max_ms, other.run_max_ms)
        for into, more in ((self.waits, other.waits), (self.runs, other.runs)):
            for bucket, number in more.items():
                into[bucket] = into.get(bucket, 0) + number

    def plain(self) -> Plain:
        """As numbers: counts, sums, maxima; then both histograms, each as bucket and count by turns."""
        return [
            self.succeeded,
            self.retried,
            self.buried,
            self.crashed,
            round(self.wait_sum_ms, 3),
            round(self.wait_max_ms, 3),
            round(self.run_sum_ms, 3),
            round(self.run_max_ms, 3),
            [number for pair in self.waits.items() for number in pair],
            [number for pair in self.runs.items() for number in pair],
        ]


class Figures:
    """The figures of many tasks, at most MOST_TASKS of a queue; the rest is counted together as OTHER."""

    def __init__(self) -> None:
        self.by_task: dict[Key, TaskFigures] = {}
        self._looked_at = 0
        self._unseen: dict[Key, int] = {}
        """Runs for which no other stands yet."""

    def __bool__(self) -> bool:
        """Whether anything was noted."""
        return bool(self.by_task)

    def note(self, task: str, queue: str, wait_ms: float | None, run_ms: float | None, outcome: str) -> None:
        """Note one run; no `wait_ms`: it is a later attempt; no `run_ms`: nobody knows how long it ran."""
        figures = self._of((queue, task))
        figures.count(outcome)
        if wait_ms is not None:
            figures.note_wait(max(0.0, wait_ms))
        if run_ms is not None:
            figures.run_sum_ms += run_ms
            figures.run_max_ms = max(figures.run_max_ms, run_ms)
            figures.note_run(run_ms)

    def note_runs(self, queue: str, task: str, ended: Sequence[Ran], runs_ms: Sequence[float]) -> None:
        """Note runs of one task that a worker reports together, and how long each of them took."""
        figures = self._of((queue, task))
        if {*map(type, ended)} == _ONLY_ACKS:
            figures.succeeded += len(ended)
        else:
            for kind, number in Counter(map(type, ended)).items():
                figures.count(_OUTCOME_BY_KIND[kind], number)
        figures.run_sum_ms += sum(runs_ms)
        figures.run_max_ms = max(figures.run_max_ms, *runs_ms)
        if self._looked_at < _MOST_LOOKED_AT:
            step = -(-len(ended) // _MOST_OF_A_BATCH)
            self._looked_at += -(-len(ended) // step)
            self._look_at(figures, ended, step)
            return
        unseen = self._unseen.get((queue, task), 0) + len(ended)
        self._unseen[queue, task] = unseen if unseen < _ONE_OF else 0
        if unseen >= _ONE_OF:
            _look_at(figures, ended[0], unseen)

    def _look_at(self, figures: TaskFigures, ended: Sequence[Ran], step: int) -> None:
        rest = len(ended)
        for each in ended[::step]:
            _look_at(figures, each, min(step, rest))
            rest -= step

    def add(self, plain: Iterable[Plain]) -> None:
        """Count what `take` or `snapshot` of another gave."""
        for queue, task, *numbers in plain:
            counted = task_figures_of(numbers)  # first: it raises where somebody else wrote it
            self._of((queue, task)).add(counted)

    def take(self) -> list[Plain]:
        """What was noted since the last time, as queue, task and numbers."""
        for key, number in self._unseen.items():
            self._of(key).stretch(number)
        taken = self.snapshot()
        self.by_task, self._unseen, self._looked_at = {}, {}, 0
        return taken

    def snapshot(self) -> list[Plain]:
        """All that was noted, as queue, task and numbers."""
        return [[queue, task, *figures.plain()] for (queue, task), figures in self.by_task.items()]

    def _of(self, key: Key) -> TaskFigures:
        figures = self.by_task.get(key)
        if figures is None:
            known = sum(queue == key[0] for queue, _ in self.by_task)
            known_or_other = key if known < MOST_TASKS else (key[0], OTHER)
            figures = self.by_task.setdefault(known_or_other, TaskFigures())
        return figures


def task_figures_of(numbers: Sequence[Any]) -> TaskFigures:
    """The figures again; raises ValueError or TypeError where somebody else wrote them."""
    waits, runs = numbers[_NUMBERS:]
    if not all(type(number) in (int, float) for number in numbers[:_NUMBERS]):
        raise ValueError("figures are numbers")
    figures = TaskFigures(*numbers[:_NUMBERS])
    figures.waits, figures.runs = _pairs(waits), _pairs(runs)
    return figures


def bucket_of(ms: float) -> int:
    """The bucket that counts a duration."""
    if ms < _SMALLEST_MS:
        return 0
    mantissa, exponent = math.frexp(ms * 1000)
    return min(_LAST_BUCKET, 4 * exponent + int(mantissa * 8) - 4)


def bounds_ms(bucket: int) -> tuple[float, float]:
    """From where to where a bucket counts; what is as long as the second is in the next one."""
    if bucket < _FIRST_BUCKET:
        return 0.0, _SMALLEST_MS
    exponent, quarter = divmod(bucket, 4)
    return (quarter + 4) / 8 * 2.0**exponent / 1000, (quarter + 5) / 8 * 2.0**exponent / 1000


def percentile_ms(histogram: Mapping[int, int], share: float, most_ms: float) -> float | None:
    """How long the share of them took that took no longer, of 1; never more than the known maximum."""
    total = sum(histogram.values())
    if not total:
        return None
    rank, below = share * total, 0
    for bucket in sorted(histogram):
        number = histogram[bucket]
        if below + number >= rank:
            low, high = bounds_ms(bucket)
            return min(most_ms, low + (high - low) * max(0.0, rank - below) / number)
        below += number
    return most_ms


_FIRST_BUCKET = bucket_of(_SMALLEST_MS)
_OUTCOME_BY_KIND: Mapping[type, str] = {Ack: "succeeded", RetryAt: "retried", Bury: "buried"}


_ONLY_ACKS = {Ack}


def _look_at(figures: TaskFigures, ended: Ran, number: int) -> None:
    run, delivery = ended.run, ended.delivery
    if run is None or not isinstance(delivery, Delivery):
        return
    figures.note_run(run.run_ms, number)
    if not delivery.deliveries:
        figures.note_wait(max(0, run.started_at_ms - delivery.enqueued_at_ms), number)


def _pairs(flat: Sequence[int]) -> Histogram:
    return {int(bucket): int(number) for bucket, number in zip(flat[::2], flat[1::2], strict=True)}
