"""Plain tables on standard output."""

from __future__ import annotations


def heading(text: str) -> None:
    """A title over the rows that follow."""
    print(f"\n{text}")
    print("-" * len(text))


def row(name: str, figure: str, note: str = "") -> None:
    """One line of a table."""
    print(f"  {name:<34} {figure:>34}  {note}".rstrip())
