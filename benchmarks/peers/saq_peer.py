"""SAQ: one event loop for each process."""

from __future__ import annotations

import asyncio

import bench_body
from bench_setup import IN_FLIGHT, IS_WAITING, URL, VARIANT, WORKERS
from saq import Queue

PACKAGES = ("saq", "redis", "hiredis")
SETTINGS = {
    "tuned": ["concurrency 50: quicker than the default of 10", "ttl -1: no results"],
    "safe": ["as tuned, retries 10, timeout 3 s, sweep every 2 s: lost jobs are looked for often"],
}[VARIANT] + ["100 ms waiting: concurrency 100"]
BULK = "no bulk call: gather(50)"
DRAIN_HINT = 2_800
HAS_QUEUES = False
AT_ONCE = 50
OPTIONS = {"ttl": -1, **({"retries": 10, "timeout": 3} if VARIANT == "safe" else {})}
NAMES = {"stamp": ("index",), "burn": ("index", "ms"), "rest": ("index", "ms"), "carry": ("index", "text")}

queue_of_all = Queue.from_url(URL)


async def stamp(_: dict[str, object], *, index: int) -> None:
    """See bench_body."""
    bench_body.stamp(index)


async def burn(_: dict[str, object], *, index: int, ms: int) -> None:
    """See bench_body."""
    bench_body.burn(index, ms)


async def rest(_: dict[str, object], *, index: int, ms: int) -> None:
    """See bench_body."""
    await bench_body.rest_async(index, ms)


async def carry(_: dict[str, object], *, index: int, text: str) -> None:
    """See bench_body."""
    bench_body.carry(index, text)


settings = {
    "queue": queue_of_all,
    "functions": [stamp, burn, rest, carry],
    "concurrency": IN_FLIGHT if IS_WAITING else 50,
    "timers": {"sweep": 2} if VARIANT == "safe" else {},
}


WORKER = {"argv": ["python", "-m", "saq", "saq_peer.settings", "--workers", str(WORKERS), "--quiet"]}

connect = queue_of_all.connect


async def enqueue(task: str, args: tuple[object, ...], queue: str | None) -> None:
    """One call."""
    await queue_of_all.enqueue(task, **dict(zip(NAMES[task], args, strict=True)), **OPTIONS)


async def enqueue_bulk(task: str, batch: list[tuple[object, ...]], queue: str | None) -> None:
    """Fifty calls at once: there is no other way."""
    for start in range(0, len(batch), AT_ONCE):
        await asyncio.gather(*(enqueue(task, args, queue) for args in batch[start : start + AT_ONCE]))
