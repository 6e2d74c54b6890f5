"""When a report is accepted, and its worker forgets it: it is stored, and its telemetry was taken. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

LONGEST_UNTAKEN_MS = 200
"""So long a report that is stored is kept by its worker for an exporter that does not read."""


def acceptable(stored: Sequence[int], untaken: Mapping[int, int], now_ms: int) -> tuple[list[int], list[int]]:
    """Of the numbers of reports that are stored: those to accept now, and those to accept later.

    `untaken` are reports whose telemetry the exporter has not taken, and since when it could have.
    """
    if not untaken:
        return list(stored), []
    since_ms = now_ms - LONGEST_UNTAKEN_MS
    later = [number for number in stored if untaken.get(number, since_ms) > since_ms]
    return [number for number in stored if number not in later], later
