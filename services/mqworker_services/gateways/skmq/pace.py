"""The token bucket of the document: permits per second, at most one second's worth saved up. Pure.

It starts empty, the first request never waits, and who takes many at once makes the next one wait for them.
"""

from __future__ import annotations


class Pace:
    """Says how long to wait; the caller does the waiting. Times are seconds of any steady clock."""

    def __init__(self, rate: int, now_s: float) -> None:
        self._rate = rate
        self._stored = 0.0
        self._next_free_s = now_s

    def take(self, permits: int, now_s: float) -> float:
        """Take permits; the seconds to wait before they may be used."""
        if now_s > self._next_free_s:
            self._stored = min(self._rate, self._stored + (now_s - self._next_free_s) * self._rate)
            self._next_free_s = now_s
        wait_s = self._next_free_s - now_s
        from_stored = min(permits, self._stored)
        self._stored -= from_stored
        self._next_free_s += (permits - from_stored) / self._rate
        return wait_s
