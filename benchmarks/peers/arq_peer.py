"""arq: one event loop for each process; a process is started by hand for each worker."""

from __future__ import annotations

import asyncio

import bench_body
from arq import create_pool
from arq.connections import ArqRedis, RedisSettings
from bench_setup import IN_FLIGHT, URL, VARIANT, WORKERS

PACKAGES = ("arq", "redis", "hiredis", "uvloop")
SETTINGS = {
    "tuned": [
        f"max_jobs {IN_FLIGHT}, poll_delay 10 ms: the default of 0.5 s is a fifth as quick",
        "keep_result 0",
    ],
    "safe": ["as tuned, job_timeout 5 s: a lost job is free again after it"],
}[VARIANT]
BULK = "no bulk call: gather(50)"
DRAIN_HINT = 1_300
HAS_QUEUES = False
AT_ONCE = 50


async def stamp(_: dict[str, object], index: int) -> None:
    """See bench_body."""
    bench_body.stamp(index)


async def burn(_: dict[str, object], index: int, ms: int) -> None:
    """See bench_body."""
    bench_body.burn(index, ms)


async def rest(_: dict[str, object], index: int, ms: int) -> None:
    """See bench_body."""
    await bench_body.rest_async(index, ms)


async def carry(_: dict[str, object], index: int, text: str) -> None:
    """See bench_body."""
    bench_body.carry(index, text)


class WorkerSettings:
    """What `arq arq_peer.WorkerSettings` reads."""

    functions = (stamp, burn, rest, carry)
    redis_settings = RedisSettings.from_dsn(URL)
    max_jobs = IN_FLIGHT
    poll_delay = 0.01
    keep_result = 0
    log_results = False
    job_timeout = 5 if VARIANT == "safe" else 300


WORKER = {
    "argv": [
        *("python", "-c", "import uvloop; uvloop.install(); from arq.cli import cli; cli()"),
        "arq_peer.WorkerSettings",
    ],
    "copies": WORKERS,
}


_pools: list[ArqRedis] = []


async def connect() -> None:
    """One pool for all calls."""
    _pools.append(await create_pool(RedisSettings.from_dsn(URL)))


async def enqueue(task: str, args: tuple[object, ...], queue: str | None) -> None:
    """One call."""
    await _pools[0].enqueue_job(task, *args)


async def enqueue_bulk(task: str, batch: list[tuple[object, ...]], queue: str | None) -> None:
    """Fifty calls at once: there is no other way."""
    for start in range(0, len(batch), AT_ONCE):
        await asyncio.gather(*(enqueue(task, args, queue) for args in batch[start : start + AT_ONCE]))
