"""streaQ on Redis streams."""

from __future__ import annotations

import bench_body
from bench_setup import IN_FLIGHT, IS_WAITING, URL, VARIANT, WORKERS
from streaq import Worker

PACKAGES = ("streaq", "coredis", "uvloop")
SETTINGS = {
    "tuned": [
        "concurrency 16, the default: more was not quicker",
        "ttl 0 and silent: no results, no log lines",
    ],
    "safe": ["as tuned, idle_timeout 5 s: lost tasks are claimed by others"],
}[VARIANT] + ["100 ms waiting: concurrency 100"]
BULK = "enqueue_many(500)"
DRAIN_HINT = 1_700
HAS_QUEUES = False

idle_limit = {"idle_timeout": 5} if VARIANT == "safe" else {}
app = Worker(redis_url=URL, concurrency=IN_FLIGHT if IS_WAITING else 16, **idle_limit)


async def stamp(index: int) -> None:
    """See bench_body."""
    bench_body.stamp(index)


async def burn(index: int, ms: int) -> None:
    """See bench_body."""
    bench_body.burn(index, ms)


async def rest(index: int, ms: int) -> None:
    """See bench_body."""
    await bench_body.rest_async(index, ms)


async def carry(index: int, text: str) -> None:
    """See bench_body."""
    bench_body.carry(index, text)


TASKS = {
    function.__name__: app.task(ttl=0, silent=True, name=function.__name__)(function)
    for function in (stamp, burn, rest, carry)
}


WORKER = {"argv": ["python", "-m", "streaq", "run", "streaq_peer:app", "-w", str(WORKERS)]}


async def connect() -> None:
    """Open the connection for good: leaving the context would close it under the calls."""
    await app.__aenter__()


async def enqueue(task: str, args: tuple[object, ...], queue: str | None) -> None:
    """One call."""
    await TASKS[task].enqueue(*args)


async def enqueue_bulk(task: str, batch: list[tuple[object, ...]], queue: str | None) -> None:
    """Many calls in one pipeline."""
    await app.enqueue_many([TASKS[task].enqueue(*args) for args in batch])
