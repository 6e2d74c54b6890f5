"""RQ: a pool of workers that do not fork for each job; for `safe`, the ones that do."""

from __future__ import annotations

import bench_body
from bench_setup import QUEUES, URL, VARIANT, WORKERS
from redis import Redis
from rq import Queue, Retry

PACKAGES = ("rq", "redis", "hiredis")
SETTINGS = {
    "tuned": ["SimpleWorker: no fork for each job, which is four times as quick", "result_ttl 0, -q"],
    "safe": [
        "the forking worker: only it notices the death of a job",
        "Retry(max=5), maintenance 5 s, monitoring 5 s, worker-ttl 20 s: lost jobs are looked for often",
    ],
}[VARIANT]
BULK = "enqueue_many(500)"
DRAIN_HINT = 300
HAS_QUEUES = True
OPTIONS = {"result_ttl": 0, **({"retry": Retry(max=5)} if VARIANT == "safe" else {})}

connection = Redis.from_url(URL)
queues = {name: Queue(name, connection=connection) for name in ("default", *QUEUES)}


names = QUEUES if len(QUEUES) > 1 else ["default"]
pool = ("worker-pool", "-w", "rq.worker.SimpleWorker", "-n", str(WORKERS))
forking = ("worker", "--worker-ttl", "20", "--maintenance-interval", "5", "--job-monitoring-interval", "5")
WORKER = {
    "argv": ["bin/rq", *(forking if VARIANT == "safe" else pool), "-u", URL, "-q", *names],
    "copies": WORKERS if VARIANT == "safe" else 1,
}


def enqueue(task: str, args: tuple[object, ...], queue: str | None) -> None:
    """One call."""
    queues[queue or "default"].enqueue_call(getattr(bench_body, task), args=args, **OPTIONS)


def enqueue_bulk(task: str, batch: list[tuple[object, ...]], queue: str | None) -> None:
    """Many calls in one pipeline."""
    function = getattr(bench_body, task)
    queues[queue or "default"].enqueue_many(
        [Queue.prepare_data(function, args=args, **OPTIONS) for args in batch]
    )
