"""When a worker has lived long enough."""

from __future__ import annotations

from mqworker.actors.worker.lifetime import LOOK_EVERY_MS, WorkerLimits


def test_without_limits_nothing_is_reached() -> None:
    assert WorkerLimits().reached(10**9, 10**9) is None


def test_so_many_tasks_are_enough() -> None:
    limits = WorkerLimits(max_tasks=3)

    assert limits.reached(2, 0) is None
    assert limits.reached(3, 0) == "ran 3 tasks, of 3"


def test_memory_is_looked_at_by_the_time_whatever_the_number_of_tasks() -> None:
    sizes = iter([50, 101])
    limits = WorkerLimits(max_memory_bytes=100, memory_bytes=lambda: next(sizes))

    assert limits.reached(1, 1_000) is None
    assert limits.reached(7, 1_000 + LOOK_EVERY_MS - 1) is None
    assert limits.reached(7, 1_000 + LOOK_EVERY_MS) == "uses 101 bytes, of 100"
