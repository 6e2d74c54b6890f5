"""Starts compared with what a rate allows, over all windows at once. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from mqworker.model.rate import Rate


def most_over(starts: Sequence[int], rate: Rate) -> int:
    """By how many starts the worst of all windows passes burst + rate * window; 0 or less: by none."""
    per_us = rate.count / (rate.period_ms * 1_000)
    worst = -float("inf")
    # n starts from i to j: j - i + 1 - burst - rate * (t_j - t_i) is largest where the part of i is least.
    least = float("inf")
    for index, at_us in enumerate(starts):
        least = min(least, index - per_us * at_us)
        worst = max(worst, index - per_us * at_us - least + 1)
    return int(worst - rate.burst + 0.999_999)
