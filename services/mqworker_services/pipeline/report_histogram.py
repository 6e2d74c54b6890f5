"""Histograms of times on a logarithmic scale: small, mergeable, and within 1 % of the exact percentile.

Neighbouring buckets differ by 2 %, and a percentile is told as the middle of its bucket: never more than 1 %
beside the value it stands for. Buckets are counted where the files are read; the rest is done here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
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
        """So many more in this bucket, the longest of which took this long."""
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
    """The same for a column of times; null stays null, and what is no number counts as none."""
    values = np.clip(ms.to_numpy(zero_copy_only=False), SHORTEST_MS, _LONGEST_MS)
    return pa.array(np.floor(np.log(values) / _LOG_GROWTH), pa.float64(), from_pandas=True).cast(pa.int32())


def middle_of(bucket: int) -> float:
    """The time that stands for all in a bucket."""
    return 0.0 if bucket <= _LOWEST else GROWTH ** (bucket + 0.5)


_LOWEST: Final = bucket_of(SHORTEST_MS)
