"""Scales of charts: where a value stands, which ticks are worth a line, and how they are labelled. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

_MINUTE, _HOUR, _DAY = 60_000, 3_600_000, 86_400_000
_TIME_TICKS: Final = (
    *(1_000 * count for count in (1, 5, 10, 30)),
    *(_MINUTE * count for count in (1, 5, 10, 30)),
    *(_HOUR * count for count in (1, 3, 6, 12)),
    *(_DAY * count for count in (1, 2, 7, 14, 28, 56, 112, 364)),
)
_MOST_TIME_TICKS: Final = 9
_COARSE_MS: Final = (
    *(0.001, 0.01, 0.1, 1, 10, 100, 1_000, 10_000),
    *(_MINUTE, 10 * _MINUTE, _HOUR, 6 * _HOUR, _DAY, 7 * _DAY, 70 * _DAY, 700 * _DAY),
)
_FINE_MS: Final = (
    *(10.0**power * part for power in range(-3, 3) for part in (1, 2, 5)),
    *(1_000 * seconds for seconds in (1, 2, 5, 10, 30)),
    *(_MINUTE * minutes for minutes in (1, 2, 5, 10, 30)),
    *(_HOUR * hours for hours in (1, 2, 6, 12)),
    *(_DAY * days for days in (1, 2, 7)),
)
_MOST_FINE_TICKS: Final = 7
_TICKS_WANTED: Final = 4


@dataclass(frozen=True, slots=True)
class Scale:
    """From values to shares of the axis, 0 to 1, with the ticks on it."""

    share: Callable[[float], float]
    ticks: tuple[float, ...]


def linear(highest: float) -> Scale:
    """From zero to a round number above the highest value."""
    step = _round_step(highest / _TICKS_WANTED)
    top = step * max(1, math.ceil(highest / step - 1e-9))
    ticks = tuple(step * number for number in range(round(top / step) + 1))
    return Scale(lambda value: value / top, ticks)


def durations(values: Iterable[float]) -> Scale:
    """Logarithmic, for times in milliseconds that differ by powers of ten, between two round times."""
    positive = [value for value in values if value > 0] or [1.0]
    fine = _between(min(positive), max(positive), _FINE_MS)
    ticks = fine if len(fine) <= _MOST_FINE_TICKS else _between(min(positive), max(positive), _COARSE_MS)
    low, high = math.log10(ticks[0]), math.log10(ticks[-1])
    return Scale(lambda ms: max(0.0, (math.log10(max(ms, ticks[0])) - low) / (high - low)), ticks)


def _between(least: float, most: float, marks: Sequence[float]) -> tuple[float, ...]:
    begin = max((number for number, mark in enumerate(marks) if mark <= least), default=0)
    end = min((number for number, mark in enumerate(marks) if mark >= most), default=len(marks) - 1)
    begin = min(begin, len(marks) - 2)
    return tuple(marks[begin : max(end, begin + 1) + 1])


def time_ticks(first_ms: int, last_ms: int) -> list[tuple[int, str]]:
    """Round instants between two, with labels: dates where a day begins, hours between them (UTC)."""
    span = last_ms - first_ms
    every = next((tick for tick in _TIME_TICKS if span / tick < _MOST_TIME_TICKS), _TIME_TICKS[-1])
    begin = -(-first_ms // every) * every
    return [(at_ms, _instant(at_ms, every)) for at_ms in range(begin, last_ms + 1, every)]


def count_label(value: float) -> str:
    """1,200 as 1.2k, 3,000,000 as 3M."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


def duration_label(ms: float) -> str:
    """In the unit that fits: 250 µs, 5 ms, 2 s, 10 min, 3 h."""
    if 0 < ms < 1:
        return f"{ms * 1000:.3g} µs"
    for size, unit in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "min"), (1000, "s")):
        if ms >= size:
            return f"{ms / size:.3g} {unit}"
    return f"{ms:.3g} ms"


def _round_step(raw: float) -> float:
    if raw <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(raw))
    return next(power * part for part in (1, 2, 2.5, 5, 10) if raw <= power * part * (1 + 1e-9))


def _instant(at_ms: int, every_ms: int) -> str:
    at = datetime.fromtimestamp(at_ms / 1000, UTC)
    if at_ms % _DAY == 0:
        return at.strftime("%a %d %b")
    return at.strftime("%H:%M" if every_ms >= _MINUTE else "%H:%M:%S")
