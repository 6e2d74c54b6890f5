"""Dramatiq: processes with threads."""

from __future__ import annotations

import bench_body
import dramatiq
from bench_setup import IN_FLIGHT, IS_WAITING, QUEUES, URL, VARIANT, WORKERS
from dramatiq.brokers.redis import RedisBroker

PACKAGES = ("dramatiq", "redis", "hiredis")
SETTINGS = {
    "tuned": [
        "8 threads for each process, the default",
        "dramatiq_queue_prefetch 200: fewer waits between fetches",
    ],
    "safe": ["as tuned, heartbeat_timeout 5 s, maintenance_chance 5 %: lost tasks are looked for often"],
}[VARIANT] + ["100 ms waiting: 100 threads for each process"]
BULK = "no bulk call: send in a loop"
DRAIN_HINT = 6_000
HAS_QUEUES = True

broker = (
    RedisBroker(url=URL, heartbeat_timeout=5_000, maintenance_chance=50_000)
    if VARIANT == "safe"
    else RedisBroker(url=URL)
)
dramatiq.set_broker(broker)
TASKS = {name: dramatiq.actor(getattr(bench_body, name)) for name in ("stamp", "burn", "rest", "carry")}
if len(QUEUES) > 1:
    for queue_name in QUEUES:
        broker.declare_queue(queue_name)


threads = IN_FLIGHT if IS_WAITING else 8
WORKER = {
    "argv": ["python", "-m", "dramatiq", "dramatiq_peer", "-p", str(WORKERS), "-t", str(threads)],
    "environment": {"dramatiq_queue_prefetch": "200"},
}


def enqueue(task: str, args: tuple[object, ...], queue: str | None) -> None:
    """One call."""
    message = TASKS[task].message(*args)
    broker.enqueue(message if queue is None else message.copy(queue_name=queue))


def enqueue_bulk(task: str, batch: list[tuple[object, ...]], queue: str | None) -> None:
    """One call after the other: there is no other way."""
    for args in batch:
        enqueue(task, args, queue)
