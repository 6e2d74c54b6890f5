"""Scales of charts: where a value stands, which ticks are worth a line, and how they are labelled. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from itertools import groupby
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


WIDTH: Final = 960
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 12, 12, 30
NAMES_LEFT: Final = 220
"""Room for names in front of bars and rows."""
_LABEL_ROOM: Final = 76
_BAR_STEP: Final = 30
_HEAT_STEP: Final = 24
HEAT_SHADES: Final = 8

Label = Callable[[float], str]
Place = tuple[float, float, float, float]
"""x, y, width and height."""


@dataclass(frozen=True, slots=True)
class Series:
    """Values over time under one name; None where there is nothing to tell."""

    name: str
    style: str
    values: Sequence[float | None]


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """When the steps of a chart begin, how wide they are, and how one is called."""

    first_ms: int
    step_ms: int
    names: Sequence[str]
    left: int = _LEFT

    @property
    def step(self) -> float:
        """The width of one step in the drawing."""
        return (WIDTH - self.left - _RIGHT) / max(1, len(self.names))

    def x_of(self, at_ms: float) -> float:
        """Where an instant stands."""
        return self.left + (at_ms - self.first_ms) / self.step_ms * self.step

    def ticks(self) -> list[tuple[int, str]]:
        """Round instants on the axis."""
        return time_ticks(self.first_ms, self.first_ms + self.step_ms * len(self.names))


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a bar."""

    name: str
    style: str
    value: float


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar of one or more parts."""

    name: str
    parts: Sequence[Part]


def column_chart(title: str, axis: TimeAxis, series: Sequence[Series], label: Label = count_label) -> str:
    """Columns over time, the series on top of each other."""
    sums = [sum(values) for values in zip(*(_known(each) for each in series), strict=True)]
    height = 240
    scale = linear(max(sums, default=0))
    marks = "".join(_columns(axis, series, scale, height, label))
    return _svg(title, height, _frame(axis, scale, height, label) + marks)


def line_chart(title: str, axis: TimeAxis, series: Sequence[Series]) -> str:
    """Times over time, as lines on a logarithmic scale; a gap stays a gap."""
    height, label = 240, duration_label
    scale = durations(value for each in series for value in each.values if value is not None)
    lines = "".join(_line(axis, each, scale, height) for each in series)
    hovers = "".join(_hovers(axis, series, height, label))
    return _svg(title, height, _frame(axis, scale, height, label) + lines + hovers)


def bar_chart(title: str, bars: Sequence[Bar], label: Label = count_label) -> str:
    """Bars that lie, with their names in front and their sums behind."""
    longest = max((sum(part.value for part in bar.parts) for bar in bars), default=0) or 1
    room = (WIDTH - NAMES_LEFT - 90) / longest
    rows = "".join(_bar(number, bar, room, label) for number, bar in enumerate(bars))
    return _svg(title, _BAR_STEP * len(bars) + 4, rows)


def heat_map(
    title: str, axis: TimeAxis, rows: Sequence[tuple[str, Sequence[float]]], label: Label = count_label
) -> str:
    """One row of cells for each name: the darker, the more."""
    highest = max((value for _, values in rows for value in values), default=0) or 1
    height = _HEAT_STEP * len(rows) + _BOTTOM
    cells = "".join(_heat_row(number, row, axis, highest, label) for number, row in enumerate(rows))
    return _svg(title, height, cells + _time_labels(axis, height))


def _svg(title: str, height: float, content: str) -> str:
    return (
        f'<svg class="chart" viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{escape(title)}">'
        f"<title>{escape(title)}</title>{content}</svg>"
    )


def _text(x: float, y: float, anchor: str, text: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _rect(place: Place, style: str, title: str) -> str:
    x, y, width, height = place
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0):.2f}" height="{max(height, 0):.2f}" '
        f'class="{style}"><title>{escape(title)}</title></rect>'
    )


def _y_of(scale: Scale, value: float, height: float) -> float:
    return height - _BOTTOM - scale.share(value) * (height - _BOTTOM - _TOP)


def _frame(axis: TimeAxis, scale: Scale, height: float, label: Label) -> str:
    """Lines across at the ticks, labels beside and below."""
    lines = []
    for tick in scale.ticks:
        y = _y_of(scale, tick, height)
        lines.append(f'<path class="grid" d="M{axis.left} {y:.1f}H{WIDTH - _RIGHT}"/>')
        lines.append(_text(axis.left - 8, y + 4, "end", label(tick)))
    return "".join(lines) + _time_labels(axis, height)


def _time_labels(axis: TimeAxis, height: float) -> str:
    marks, free_from = [], 0.0
    for at_ms, name in axis.ticks():
        x = axis.x_of(at_ms)
        marks.append(f'<path class="tick" d="M{x:.1f} {height - _BOTTOM}v5"/>')
        if free_from <= x < WIDTH - _LABEL_ROOM / 2:
            marks.append(_text(x, height - _BOTTOM + 19, "middle", name))
            free_from = x + _LABEL_ROOM
    return "".join(marks)


def _known(series: Series) -> list[float]:
    return [value or 0.0 for value in series.values]


def _columns(
    axis: TimeAxis, series: Sequence[Series], scale: Scale, height: float, label: Label
) -> Iterator[str]:
    gap = min(2.0, axis.step * 0.2)
    for number, name in enumerate(axis.names):
        title = _told(name, series, number, label)
        below = 0.0
        for each in series:
            value = each.values[number] or 0.0
            top, foot = _y_of(scale, below + value, height), _y_of(scale, below, height)
            below += value
            if value:
                x = axis.left + number * axis.step + gap / 2
                yield _rect((x, top, axis.step - gap, foot - top), each.style, title)


def _told(name: str, series: Sequence[Series], number: int, label: Label) -> str:
    known = ((each.name, each.values[number]) for each in series)
    return "\n".join([name, *(f"{each}: {label(value)}" for each, value in known if value is not None)])


def _line(axis: TimeAxis, series: Series, scale: Scale, height: float) -> str:
    points = [
        None
        if value is None
        else f"{axis.left + (number + 0.5) * axis.step:.1f} {_y_of(scale, value, height):.1f}"
        for number, value in enumerate(series.values)
    ]
    runs = [[each for each in run if each] for is_known, run in groupby(points, key=bool) if is_known]
    # A line of no length with round ends shows a value that stands alone as a dot.
    path = "".join(f"M{run[0]}L{' '.join(run[1:] or run)}" for run in runs)
    return f'<path class="line {series.style}" d="{path}"/>' if path else ""


def _hovers(axis: TimeAxis, series: Sequence[Series], height: float, label: Label) -> Iterator[str]:
    """Unseen columns that carry the titles: a line itself is too thin to be pointed at."""
    for number, name in enumerate(axis.names):
        title = _told(name, series, number, label)
        x = axis.left + number * axis.step
        yield _rect((x, _TOP, axis.step, height - _BOTTOM - _TOP), "hover", title)


def _bar(number: int, bar: Bar, room: float, label: Label) -> str:
    y, x = number * _BAR_STEP + 4, float(NAMES_LEFT)
    marks = [_text(NAMES_LEFT - 10, y + 15, "end", _cut(bar.name))]
    for part in bar.parts:
        title = f"{bar.name}\n{part.name}: {label(part.value)}"
        marks.append(_rect((x, y, part.value * room - 1, _BAR_STEP - 10), part.style, title))
        x += part.value * room
    return "".join(marks) + _text(x + 8, y + 15, "start", label(sum(part.value for part in bar.parts)))


def _heat_row(
    number: int, row: tuple[str, Sequence[float]], axis: TimeAxis, highest: float, label: Label
) -> str:
    name, values = row
    y, gap = number * _HEAT_STEP, min(1.0, axis.step * 0.1)
    cells = [
        _rect(
            (axis.left + step * axis.step, y + 1, axis.step - gap, _HEAT_STEP - 2),
            f"h{_shade(value, highest)}",
            f"{name}\n{axis.names[step]}: {label(value)}",
        )
        for step, value in enumerate(values)
    ]
    return _text(axis.left - 10, y + 16, "end", _cut(name)) + "".join(cells)


def _shade(value: float, highest: float) -> int:
    return 0 if value <= 0 else min(HEAT_SHADES - 1, 1 + int((value / highest) ** 0.5 * (HEAT_SHADES - 1)))


def _cut(name: str, longest: int = 30) -> str:
    return name if len(name) <= longest else f"…{name[1 - longest :]}"
