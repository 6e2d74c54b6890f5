"""When a worker may forget a report: it is stored, and the exporter has taken its telemetry. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

LONGEST_UNTAKEN_MS = 200
"""A worker keeps a stored report for at most this long when the exporter does not read."""


def acceptable(stored: Sequence[int], untaken: Mapping[int, int], now_ms: int) -> tuple[list[int], list[int]]:
    """Of the numbers of reports that are stored: those to accept now, and those to accept later.

    `untaken` are reports whose telemetry the exporter has not taken, and since when it could have.
    """
    if not untaken:
        return list(stored), []
    since_ms = now_ms - LONGEST_UNTAKEN_MS
    later = [number for number in stored if untaken.get(number, since_ms) > since_ms]
    return [number for number in stored if number not in later], later
