"""Telemetry on its way from a worker to the exporter: entries of plain values, and run times that add up.

An entry is a list whose first item says what it is: the span of a run (run_span.py), a span that the
application made, or run times. They travel with the report on the deliveries that they are about.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any, TypeAlias

Entry: TypeAlias = list[Any]
"""Any: texts, numbers, and lists and maps of them, as they stand in a mail."""

RUN, APPLICATION_SPAN, RUN_TIMES, SENT, BATCH = "r", "a", "t", "s", "b"
"""`BATCH` comes first and names all that follow: a report that is repeated is recognised by it."""

BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
"""The upper bounds of the convention for `messaging.process.duration`."""
_QUICK_MS = BOUNDS_S[0] * 1000
MOST_KINDS = 200
"""Of queue, task and error together; what is beyond them is one kind."""
OTHER = "other"

RunKind = tuple[str, str, str]
"""Queue, task and error, "" for none."""


def single_run(run_s: float) -> list[int]:
    """The histogram of one run."""
    counts = [0] * (len(BOUNDS_S) + 1)
    counts[bisect_left(BOUNDS_S, run_s)] = 1
    return counts


class RunTimes:
    """How many runs there were of each kind, and how long they took: a histogram each. Adds up."""

    def __init__(self) -> None:
        self._counts: dict[RunKind, list[int]] = {}
        self._total_s: dict[RunKind, float] = {}

    def __bool__(self) -> bool:
        return bool(self._counts)

    def note_all(self, kind: RunKind, runs_ms: Sequence[float]) -> None:
        """More runs of one kind."""
        counts = self._counts.get(kind) or self._begin(kind)
        if max(runs_ms) <= _QUICK_MS:  # nearly always, where there are many
            counts[0] += len(runs_ms)
        else:
            for run_ms in runs_ms:
                counts[bisect_left(BOUNDS_S, run_ms / 1000)] += 1
        self._total_s[kind] += sum(runs_ms) / 1000

    def add(self, kind: RunKind, counts: list[int], total_s: float) -> None:
        """Runs that somebody else counted; kinds beyond the first few hundred are one together."""
        if kind not in self._counts and len(self._counts) >= MOST_KINDS:
            kind = (OTHER, OTHER, OTHER if kind[2] else "")
        known = self._counts.get(kind) or self._begin(kind)
        self._counts[kind] = [one + more for one, more in zip_longest(known, counts, fillvalue=0)]
        self._total_s[kind] += total_s

    def entries(self) -> list[Entry]:
        """Plain values, one entry for each kind; what is quick needs no number for what is slow."""
        return [
            [RUN_TIMES, [*kind], counts if any(counts[1:]) else counts[:1], total_s]
            for kind, counts, total_s in self
        ]

    def __iter__(self) -> Iterator[tuple[RunKind, list[int], float]]:
        return ((kind, counts, self._total_s[kind]) for kind, counts in self._counts.items())

    def _begin(self, kind: RunKind) -> list[int]:
        counts = self._counts[kind] = [0] * (len(BOUNDS_S) + 1)
        self._total_s[kind] = 0.0
        return counts
