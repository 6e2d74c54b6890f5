"""What limits cost: no-op tasks per second, plain, with max_running by key, with turns, and with rates."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from benchmarks.node import NodeBench
from benchmarks.private_server import private_server
from benchmarks.rounds import interleave
from benchmarks.table import heading, row
from mqworker import Task

COUNT = 20_000
KEYS = 500
QUEUE = "limits"


def run(rounds: int) -> None:
    """Print the table of this benchmark."""
    with private_server(aof=False) as url:
        bench = NodeBench(url)
        tasks = bench.tasks
        measured: dict[str, Task[..., object]] = {
            "plain": tasks.plain_of_key,
            "max_running=1 of each of 500 keys": tasks.one_of_key,
            "max_running=2 of each, 4 in total": tasks.few_of_key,
            "turns of 500 tenants": tasks.turns_of_key,
        }
        with bench.node():
            bench.tasks.work.enqueue(1).result(timeout=20)
            drains: dict[str, Callable[[], float]] = {
                name: partial(_drain, bench, task) for name, task in measured.items()
            }
            figures = interleave(drains, rounds)
    heading(f"Limits: no-op tasks per second, 2 workers, median (range) of {rounds} rounds")
    plain = next(iter(figures.values()))
    for each in figures.values():
        row(each.name, each.spread, "" if each is plain else f"{each.ratio_to(plain):.0%} of plain")


def _drain(bench: NodeBench, task: Task[..., object]) -> float:
    queue = bench.tasks.app.work_queue(QUEUE)
    queue.pause()
    for start in range(0, COUNT, 1_000):
        task.enqueue_many([(number % KEYS,) for number in range(start, start + 1_000)])
    began, target = time.perf_counter(), queue.counts().totals.get("succeeded", 0) + COUNT
    queue.resume()
    while queue.counts().totals.get("succeeded", 0) < target:
        time.sleep(0.005)
    return COUNT / (time.perf_counter() - began)
