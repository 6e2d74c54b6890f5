"""Celery: prefork, as most people run it."""

from __future__ import annotations

import bench_body
from bench_setup import IN_FLIGHT, IS_WAITING, QUEUES, URL, VARIANT, WORKERS
from celery import Celery

PACKAGES = ("celery", "kombu", "redis", "hiredis")
LEAN = ("--without-gossip", "--without-mingle", "--without-heartbeat")
SETTINGS = {
    "stock": ["no flags, no result backend"],
    "tuned": [
        f"{' '.join(LEAN)}: a single node needs no talk between nodes",
        "worker_prefetch_multiplier 100: fewer pauses between short tasks",
        "no result backend, ignore_result",
    ],
    "safe": [
        "as tuned, acks_late and reject_on_worker_lost: acknowledged after the run",
        "visibility_timeout 5 s, unacked_restore_interval 1 s, throttle 1: lost tasks are looked for often",
    ],
}[VARIANT] + ["100 ms waiting: the thread pool, 200 threads"]
BULK = "no bulk call: one producer reused"
DRAIN_HINT = 800
HAS_QUEUES = True

app = Celery("celery_peer", broker=URL)
app.conf.update(task_ignore_result=True, broker_connection_retry_on_startup=True)
if VARIANT != "stock":
    app.conf.worker_prefetch_multiplier = 100
if VARIANT == "safe":
    app.conf.update(
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        broker_transport_options={
            "visibility_timeout": 5,
            "unacked_restore_interval": 1,
            "unacked_restore_throttle": 1,
        },
    )
TASKS = {name: app.task(getattr(bench_body, name), name=name) for name in ("stamp", "burn", "rest", "carry")}


pool = ("-P", "threads", "-c", str(WORKERS * IN_FLIGHT)) if IS_WAITING else ("-c", str(WORKERS))
flags = () if VARIANT == "stock" else LEAN
queue_list = ("-Q", ",".join(QUEUES)) if len(QUEUES) > 1 else ()
WORKER = {
    "argv": [
        "python",
        "-m",
        "celery",
        "-A",
        "celery_peer",
        "worker",
        "-l",
        "WARNING",
        *pool,
        *flags,
        *queue_list,
    ],
}


def enqueue(task: str, args: tuple[object, ...], queue: str | None) -> None:
    """One call."""
    TASKS[task].apply_async(args, queue=queue)


def enqueue_bulk(task: str, batch: list[tuple[object, ...]], queue: str | None) -> None:
    """Many calls through one producer."""
    with app.producer_pool.acquire(block=True) as producer:
        for args in batch:
            TASKS[task].apply_async(args, producer=producer, queue=queue)
