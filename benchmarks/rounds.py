"""Rounds: every contestant once per round, in turn, so that a drifting machine is fair to all of them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Series:
    """What one contestant reached in each round."""

    name: str
    values: tuple[float, ...]

    @property
    def median(self) -> float:
        """The middle of the rounds."""
        return statistics.median(self.values)

    @property
    def spread(self) -> str:
        """The median with the range, as the tables show it."""
        return f"{self.median:,.0f} ({min(self.values):,.0f} to {max(self.values):,.0f})"

    def ratio_to(self, other: Series) -> float:
        """The median of the ratios within each round."""
        return statistics.median(a / b for a, b in zip(self.values, other.values, strict=True))


def interleave(contestants: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, Series]:
    """Run all contestants `rounds` times in turn; each returns its figure for that round."""
    figures: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, measure in contestants.items():
            figures[name].append(measure())
    return {name: Series(name, tuple(values)) for name, values in figures.items()}


def rate(count: int, work: Callable[[], object]) -> float:
    """How many per second when `work` does `count` of them."""
    began = time.perf_counter()
    work()
    return count / (time.perf_counter() - began)
