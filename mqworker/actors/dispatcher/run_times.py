"""How long tasks run, as far as their reports say, and how many of them make one batch. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

BATCH_MS = 10.0
"""The work that one batch should hold: enough to hide a round trip, and little enough to wait for."""
LONG_LINE_BATCH_MS = 40.0
"""The same while more messages wait than there is room for: who comes now waits for the line in any case, and
with fewer, larger batches the cores belong to the tasks."""
LARGEST_BATCH = 250

_OPTIMISM = 0.2  # the weight of the newest report in the moving average


class RunTimes:
    """Moving averages of run times by task."""

    def __init__(self) -> None:
        self._ms_by_task: dict[bytes, float] = {}
        self._typical_ms: float | None = None

    def note(self, run_ms_by_task: Mapping[str, tuple[int, float]]) -> None:
        """Take in a worker's report: how many of each task ran, and for how long together."""
        for task, (count, total_ms) in run_ms_by_task.items():
            mean_ms = total_ms / count
            known = self._ms_by_task.get(task.encode())
            self._ms_by_task[task.encode()] = _moved(known, mean_ms)
            self._typical_ms = _moved(self._typical_ms, mean_ms)

    def of(self, task: bytes) -> float | None:
        """The expected run time of a task, None while it has never been seen."""
        return self._ms_by_task.get(task)

    def batch_ms(self, *, is_line_long: bool) -> float:
        """The work that one batch should hold now; of quick tasks never more than the largest batch."""
        if not is_line_long or self._typical_ms is None:
            return BATCH_MS
        return max(BATCH_MS, min(LONG_LINE_BATCH_MS, LARGEST_BATCH * self._typical_ms))

    def batch_size(self, tasks: Iterable[bytes] | None = None, batch_ms: float = BATCH_MS) -> int:
        """How many messages are about one batch of work; one, while nothing is known.

        Of some tasks only, the slowest counts: nobody knows which of them come next.
        """
        expected_ms = self._typical_ms
        if tasks is not None:
            known = [self._ms_by_task[task] for task in tasks if task in self._ms_by_task]
            expected_ms = max(known, default=None)
        if expected_ms is None:
            return 1
        return max(1, min(LARGEST_BATCH, int(batch_ms / max(expected_ms, 1e-3))))


def _moved(known: float | None, mean_ms: float) -> float:
    # Upwards at once, downwards slowly: to think a slow task quick costs its neighbours more.
    if known is None or mean_ms > known:
        return mean_ms
    return known + _OPTIMISM * (mean_ms - known)
