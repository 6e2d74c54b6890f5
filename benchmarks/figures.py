"""Figures from instants: rates, waiting times, percentiles. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

NS_PER_S = 1_000_000_000
NS_PER_MS = 1_000_000


def steady_rate(instants_ns: Sequence[int]) -> float:
    """Tasks per second between the first and the last tenth: neither the start nor the tail counts.

    A zero stands for a task that did not run and is left out. Too few instants have no rate: 0.
    """
    ran = sorted(instant for instant in instants_ns if instant)
    low, high = len(ran) // 10, len(ran) - 1 - len(ran) // 10
    if high <= low or ran[high] == ran[low]:
        return 0.0
    return (high - low) * NS_PER_S / (ran[high] - ran[low])


def waits_ms(sent_ns: Sequence[int], ran_ns: Sequence[int]) -> list[float]:
    """How long each task waited, shortest first; those that did not run are left out."""
    pairs = zip(sent_ns, ran_ns, strict=True)
    return sorted((ran - sent) / NS_PER_MS for sent, ran in pairs if ran)


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The value that so many percent of the others do not exceed (nearest rank)."""
    if not ordered:
        raise ValueError("percentile: got no values; accepted: one or more, in order")
    rank = -(-len(ordered) * percent // 100)
    return ordered[max(int(rank), 1) - 1]


def ran_twice(runs: bytes) -> int:
    """How many tasks ran more than once."""
    return sum(1 for count in runs if count > 1)


def never_ran(runs: bytes) -> int:
    """How many tasks did not run."""
    return runs.count(0)


def apart(falling: Sequence[float], gap: float) -> list[float]:
    """The same values, moved as little up and down as it takes to lie a factor of `gap` apart."""
    lowered: list[float] = []
    for value in falling:
        lowered.append(min(value, lowered[-1] / gap) if lowered else value)
    raised: list[float] = []
    for value in reversed(falling):
        raised.append(max(value, raised[-1] * gap) if raised else value)
    return [math.sqrt(low * high) for low, high in zip(lowered, reversed(raised), strict=True)]
