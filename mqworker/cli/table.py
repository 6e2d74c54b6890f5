"""Tables of plain text: aligned columns that fit the terminal; styles are put on after the padding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import click

from mqworker.cli.text import cut

_GAP = "  "
_SHORTEST_FIRST = 8


@dataclass(frozen=True, slots=True)
class Cell:
    """A text, and how it looks on a terminal."""

    text: str
    color: str | None = None
    is_dim: bool = False


@dataclass(frozen=True, slots=True)
class Column:
    """A heading, and on which side the cells stand: '<' for words, '>' for numbers."""

    heading: str
    side: str = ">"
    is_whole: bool = False
    """Whether its cells are never cut: half an id is of no use."""


Row = Sequence[Cell | str]


def table(columns: Sequence[Column], rows: Sequence[Row], *, width: int, indent: str = "") -> list[str]:
    """The lines of a table. Where it is too wide the last column is cut, then the first, if it may be."""
    cells = [[cell if isinstance(cell, Cell) else Cell(cell) for cell in row] for row in rows]
    widths = [
        max(len(column.heading), *(len(row[i].text) for row in cells), 0) for i, column in enumerate(columns)
    ]
    _squeeze(widths, columns, width - len(indent) - len(_GAP) * (len(columns) - 1))
    heading = [Cell(column.heading, is_dim=True) for column in columns]
    return [indent + _line(row, columns, widths) for row in [heading, *cells]]


def _squeeze(widths: list[int], columns: Sequence[Column], room: int) -> None:
    for position in (len(widths) - 1, 0):
        excess = sum(widths) - room
        if excess > 0 and columns[position].side == "<" and not columns[position].is_whole:
            least = max(_SHORTEST_FIRST, len(columns[position].heading))
            widths[position] = max(least, widths[position] - excess)


def _line(row: Sequence[Cell], columns: Sequence[Column], widths: Sequence[int]) -> str:
    texts = [
        f"{cut(cell.text, width):{column.side}{width}}"
        for cell, column, width in zip(row, columns, widths, strict=True)
    ]
    texts[-1] = texts[-1].rstrip()
    shown = [_styled(cell, text) for cell, text in zip(row, texts, strict=True)]
    return _GAP.join(shown if texts[-1] else shown[:-1])


def _styled(cell: Cell, padded: str) -> str:
    if not padded or (cell.color is None and not cell.is_dim):
        return padded
    return click.style(padded, fg=cell.color, dim=cell.is_dim or None)
