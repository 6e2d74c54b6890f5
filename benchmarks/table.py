"""Plain tables on standard output, kept in a list as well while somebody is recording."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Table:
    """A title and its rows: name, figure, note."""

    title: str
    rows: list[tuple[str, str, str]] = field(default_factory=list)


# A measure only prints; whoever runs it decides whether the tables are kept.
_recording: ContextVar[list[Table] | None] = ContextVar("recording", default=None)


@contextmanager
def recorded() -> Iterator[list[Table]]:
    """Give the list that receives every table printed inside this block."""
    tables: list[Table] = []
    token = _recording.set(tables)
    try:
        yield tables
    finally:
        _recording.reset(token)


def heading(text: str) -> None:
    """A title over the rows that follow."""
    print(f"\n{text}")
    print("-" * len(text))
    if (tables := _recording.get()) is not None:
        tables.append(Table(text))


def row(name: str, figure: str, note: str = "") -> None:
    """One line of a table."""
    print(f"  {name:<34} {figure:>34}  {note}".rstrip(), flush=True)
    if tables := _recording.get():
        tables[-1].rows.append((name, figure, note))
