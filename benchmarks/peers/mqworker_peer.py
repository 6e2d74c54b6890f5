"""mqworker as one contestant among the others: default settings, the API that users use, no special path."""

from __future__ import annotations

import bench_body
from bench_setup import QUEUES, WORKERS

from mqworker import App

PACKAGES = ("mqworker", "redis", "hiredis")
SETTINGS = ["all default", "tasks that wait are async, 100 at once in each worker by default"]
BULK = "enqueue_many"
DRAIN_HINT = 60_000
HAS_QUEUES = True

app = App("bench")
stamp = app.task(bench_body.stamp)
burn = app.task(bench_body.burn)
rest = app.task(bench_body.rest_async)
carry = app.task(bench_body.carry)
TASKS = {"stamp": stamp, "burn": burn, "rest": rest, "carry": carry}
if len(QUEUES) > 1:
    for name in QUEUES:
        app.queue(name)


WORKER = {
    "argv": ["python", "-m", "mqworker", "run", "mqworker_peer:app", "--workers", str(WORKERS)],
}


def enqueue(task: str, args: tuple[object, ...], queue: str | None) -> None:
    """One call."""
    _on(task, queue).enqueue(*args)


def enqueue_bulk(task: str, batch: list[tuple[object, ...]], queue: str | None) -> None:
    """Many calls."""
    _on(task, queue).enqueue_many(batch)


def _on(task: str, queue: str | None):  # noqa: ANN202 - a task of any signature
    return TASKS[task] if queue is None else TASKS[task].using(queue=queue)
