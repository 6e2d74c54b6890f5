"""Batches that wait in a worker: what came together runs together, but for what was taken back. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from mqworker.model.delivery import Delivery

Pending = deque[tuple[str, Delivery]]
"""With their queues, in the order in which they run."""


class PendingBatches:
    """Which of the deliveries that wait run in one call."""

    def __init__(self) -> None:
        self._first_by_key: dict[tuple[str, int], int] = {}

    def __bool__(self) -> bool:
        return bool(self._first_by_key)

    def note(self, queue: str, deliveries: Sequence[Delivery]) -> None:
        """These wait one behind the other."""
        first = deliveries[0].fence
        self._first_by_key.update({(queue, each.fence): first for each in deliveries})

    def first_of(self, queue: str, fence: int) -> int:
        """By which fence its batch is called, the same for all of it; 0 for what runs by itself."""
        return self._first_by_key.get((queue, fence), 0)

    def take_others(self, queue: str, fence: int, pending: Pending) -> list[Delivery]:
        """What runs together with a delivery that was in front of these."""
        first = self._first_by_key.pop((queue, fence), None)
        others: list[Delivery] = []
        while first is not None and pending:
            key = (pending[0][0], pending[0][1].fence)
            if key[0] != queue or self._first_by_key.get(key) != first:
                break
            del self._first_by_key[key]
            others.append(pending.popleft()[1])
        return others

    def forget(self) -> None:
        """Nothing waits any more."""
        self._first_by_key.clear()
