"""taskiq on Redis streams, the broker that acknowledges."""

from __future__ import annotations

import asyncio

import bench_body
from bench_setup import IN_FLIGHT, URL, VARIANT, WORKERS
from taskiq_redis import RedisStreamBroker

PACKAGES = ("taskiq", "taskiq-redis", "redis", "hiredis", "uvloop")
SETTINGS = {
    "tuned": [
        "RedisStreamBroker, no result backend",
        "max-prefetch 100: a full buffer beside the running tasks; uvloop is used when it is there",
    ],
    "safe": ["as tuned, idle_timeout 5 s, unacknowledged_lock_timeout 5 s: lost tasks are claimed by others"],
}[VARIANT]
BULK = "no bulk call: gather(50)"
DRAIN_HINT = 4_500
HAS_QUEUES = False
AT_ONCE = 50

limits = {"idle_timeout": 5_000, "unacknowledged_lock_timeout": 5.0} if VARIANT == "safe" else {}
broker = RedisStreamBroker(URL, **limits)


@broker.task(task_name="stamp")
async def stamp(index: int) -> None:
    """See bench_body."""
    bench_body.stamp(index)


@broker.task(task_name="burn")
async def burn(index: int, ms: int) -> None:
    """See bench_body."""
    bench_body.burn(index, ms)


@broker.task(task_name="rest")
async def rest(index: int, ms: int) -> None:
    """See bench_body."""
    await bench_body.rest_async(index, ms)


@broker.task(task_name="carry")
async def carry(index: int, text: str) -> None:
    """See bench_body."""
    bench_body.carry(index, text)


TASKS = {"stamp": stamp, "burn": burn, "rest": rest, "carry": carry}


WORKER = {
    "argv": [
        *("python", "-m", "taskiq", "worker", "taskiq_peer:broker", "--log-level", "WARNING"),
        *("--workers", str(WORKERS), "--max-async-tasks", str(IN_FLIGHT), "--max-prefetch", "100"),
    ],
}


connect = broker.startup


async def enqueue(task: str, args: tuple[object, ...], queue: str | None) -> None:
    """One call."""
    await TASKS[task].kiq(*args)


async def enqueue_bulk(task: str, batch: list[tuple[object, ...]], queue: str | None) -> None:
    """Fifty calls at once: there is no other way."""
    for start in range(0, len(batch), AT_ONCE):
        await asyncio.gather(*(enqueue(task, args, queue) for args in batch[start : start + AT_ONCE]))
