"""Tasks that take batches: called one row at a time, run many rows at once."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from mqworker.tasks.task import Task

A = TypeVar("A")
R = TypeVar("R")


class BatchTask(Task[[A], R]):
    """A task whose function takes many calls at once, as a list. Callers see ordinary jobs of one row."""

    # Called like the function that it is, it takes a list and gives one: the one way in which it differs.
    def __call__(self, rows: Sequence[A]) -> list[R]:  # type: ignore[override]
        """Run it here: `load([one, other])`."""
        results: list[R] = self._call((rows,), {})
        return results


class AsyncBatchTask(Task[[A], R]):
    """The same for a coroutine function."""

    def __call__(self, rows: Sequence[A]) -> Coroutine[Any, Any, list[R]]:  # type: ignore[override]
        """Run it here: `await load([one, other])`."""
        coroutine: Coroutine[Any, Any, list[R]] = self._call((rows,), {})
        return coroutine
