"""Throughput: how quickly a queue fills and empties, from its counters at two moments. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

WINDOW_MS = 10_000
"""Rates are those of the last ten seconds: long enough to be calm, short enough to be now."""
LONGEST_GAP_MS = 12_000
"""Whoever notes samples does so every ten seconds at least: a longer gap means that nobody did."""
SHORTEST_SPAN_MS = 500
"""Over less, a handful of messages would look like a flood."""

_ENTERED = ("enqueued", "revived")
_LEFT = ("succeeded", "buried", "cancelled", "expired")


@dataclass(frozen=True, slots=True)
class Sample:
    """The counters of a queue at one moment. They only ever grow, unless somebody deletes the queue."""

    at_ms: int
    entered: int
    left: int
    buried: int

    @classmethod
    def of(cls, at_ms: int, totals: Mapping[str, int]) -> Sample:
        """From the totals of a queue; sample.lua adds up the same ones."""
        return cls(
            at_ms,
            entered=sum(totals.get(name, 0) for name in _ENTERED),
            left=sum(totals.get(name, 0) for name in _LEFT),
            buried=totals.get("buried", 0),
        )


@dataclass(frozen=True, slots=True)
class Throughput:
    """Messages per second, in and out; and how many were given up in the span."""

    in_per_s: float
    out_per_s: float
    buried: int
    span_ms: int

    @classmethod
    def between(cls, earlier: Sample, later: Sample) -> Throughput | None:
        """None when the two are too close, or when the counters began anew in between."""
        span_ms = later.at_ms - earlier.at_ms
        entered, left = later.entered - earlier.entered, later.left - earlier.left
        if span_ms < SHORTEST_SPAN_MS or entered < 0 or left < 0:
            return None
        return cls(
            entered * 1000 / span_ms,
            left * 1000 / span_ms,
            buried=max(0, later.buried - earlier.buried),
            span_ms=span_ms,
        )

    @classmethod
    def over(cls, samples: Sequence[Sample], now: Sample) -> Throughput | None:
        """That of the last ten seconds; `samples` with the newest first. None when nobody took any lately.

        A sample is written when the counters changed, so each stands for the time up to the next.
        """
        if not samples or now.at_ms - samples[0].at_ms > LONGEST_GAP_MS:
            return None
        earliest_ms = now.at_ms - WINDOW_MS
        chosen = samples[0]
        for sample in samples[1:]:
            if chosen.at_ms <= earliest_ms or chosen.at_ms - sample.at_ms > LONGEST_GAP_MS:
                break
            chosen = sample
        begin = Sample(max(chosen.at_ms, earliest_ms), chosen.entered, chosen.left, chosen.buried)
        return cls.between(begin, now)

    def drain_s(self, ready: int) -> float | None:
        """Seconds until so many are gone at this pace; None when they become more, or none leaves."""
        if ready <= 0:
            return 0.0
        net_per_s = self.out_per_s - self.in_per_s
        return ready / net_per_s if net_per_s > 0 else None
