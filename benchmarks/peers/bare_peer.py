"""No queue at all: processes that divide the calls among them. The most that bodies allow."""

from __future__ import annotations

import json
import signal
from concurrent.futures import ThreadPoolExecutor

import bench_body
import redis
from bench_setup import IN_FLIGHT, IS_WAITING, URL, WORKERS

PACKAGES = ("redis", "hiredis")
SETTINGS = ["each process reads all calls once, before the first, and runs its share of them"]
BULK = "a list of calls"
DRAIN_HINT = 400_000
HAS_QUEUES = False
CALLS, STARTED = "bare:calls", "bare:started"

server = redis.Redis.from_url(URL)
WORKER = {"argv": ["python", "-m", "bare_peer"], "copies": WORKERS}


def enqueue(task: str, args: tuple[object, ...], queue: str | None) -> None:
    """One call."""
    enqueue_bulk(task, [args], queue)


def enqueue_bulk(task: str, batch: list[tuple[object, ...]], queue: str | None) -> None:
    """Many calls."""
    server.rpush(CALLS, *[json.dumps([task, *args]) for args in batch])


def main() -> None:
    """Run a share of what is there now."""
    share = int(server.incr(STARTED)) - 1
    calls = [json.loads(call) for call in server.lrange(CALLS, 0, -1)[share::WORKERS]]
    with ThreadPoolExecutor(IN_FLIGHT if IS_WAITING else 1) as pool:
        list(pool.map(run, calls))
    signal.pause()  # the harness ends it


def run(call: list[object]) -> None:
    """One call."""
    task, *args = call
    getattr(bench_body, str(task))(*args)


if __name__ == "__main__":
    main()
