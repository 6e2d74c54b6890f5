"""Tasks that executors can import, for the tests of `map_on_spark`."""

from __future__ import annotations

from mqworker import App

app = App("mapped")


@app.task
def area(width: int, height: int) -> int:
    """A number."""
    return width * height


@app.task
def describe(width: int, height: int) -> dict[str, int]:
    """Something that is not a column type."""
    return {"longest": max(width, height)}
