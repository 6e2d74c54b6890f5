"""Huey: one process for each worker."""

from __future__ import annotations

import bench_body
from bench_setup import IN_FLIGHT, IS_WAITING, URL, WORKERS
from huey import RedisHuey

PACKAGES = ("huey", "redis", "hiredis")
SETTINGS = [
    "-k process: threads share one interpreter and are slower",
    "results=False, -q",
    "100 ms waiting: -k thread, 200 threads",
]
BULK = "no bulk call: a loop"
DRAIN_HINT = 4_500
HAS_QUEUES = False

huey = RedisHuey("bench", url=URL, results=False)
TASKS = {name: huey.task()(getattr(bench_body, name)) for name in ("stamp", "burn", "rest", "carry")}


workers = ("thread", "-w", str(WORKERS * IN_FLIGHT)) if IS_WAITING else ("process", "-w", str(WORKERS))
WORKER = {"argv": ["python", "-m", "huey.bin.huey_consumer", "huey_peer.huey", "-q", "-k", *workers]}


def enqueue(task: str, args: tuple[object, ...], queue: str | None) -> None:
    """One call."""
    TASKS[task](*args)


def enqueue_bulk(task: str, batch: list[tuple[object, ...]], queue: str | None) -> None:
    """One call after the other: there is no other way."""
    for args in batch:
        enqueue(task, args, queue)
