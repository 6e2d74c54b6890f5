"""Tasks beside raw redis-py on the same server: enqueue one, enqueue many, encode, decode and run."""

from __future__ import annotations

from collections.abc import Callable

import redis

from benchmarks.private_server import private_server
from benchmarks.rounds import interleave, rate
from benchmarks.table import heading, row
from mqworker import App
from mqworker.model.clock import SystemClock
from mqworker.model.delivery import Delivery
from mqworker.model.envelope import decode_call, encode_call
from mqworker.model.names import MessageId
from mqworker.tasks.running.run import TaskRunner

SINGLES = 3_000
BULK = 30_000
CALLS = 50_000
RAW_BODY = b"x" * 60
"""About what a record with a small call takes in all."""


class TaskBench:
    """One server, one app, one list of raw redis-py."""

    def __init__(self, url: str) -> None:
        self.raw = redis.Redis.from_url(url)
        self.app = App("bench", redis_url=url)
        self.add = self.app.task(queue="bench", result_ttl=0)(_add)
        self.runner = TaskRunner(self.app.registry, worker="w", node="n", clock=SystemClock())

    def raw_single(self) -> float:
        """RPUSH one by one."""
        return rate(SINGLES, lambda: [self.raw.rpush("raw", RAW_BODY) for _ in range(SINGLES)])

    def our_single(self) -> float:
        """task.enqueue one by one."""
        return rate(SINGLES, lambda: [self.add.enqueue(1, 2) for _ in range(SINGLES)])

    def raw_many(self) -> float:
        """RPUSH of a thousand."""
        return rate(BULK, lambda: [self.raw.rpush("raw", *[RAW_BODY] * 1000) for _ in range(BULK // 1000)])

    def our_many(self) -> float:
        """task.enqueue_many."""
        return rate(BULK, lambda: self.add.enqueue_many((number, 2) for number in range(BULK)))

    def run_calls(self) -> float:
        """Deliveries of a task that does next to nothing, from body to settlement."""
        delivery = Delivery(1, MessageId("id"), self.add.name, encode_call((1, 2), {}), 0)
        run = self.runner.run
        return rate(CALLS, lambda: [run(delivery, "bench") for _ in range(CALLS)])


def run(rounds: int) -> None:
    """Print the tables of this benchmark."""
    with private_server(aof=False) as url:
        bench = TaskBench(url)
        bench.add.enqueue(1, 2)  # opens the connection
        _compare(bench, rounds)
    heading("Tasks, without a server: microseconds each")
    body = encode_call((1, 2), {})
    row("encode a call", f"{_microseconds(lambda: encode_call((1, 2), {})):.2f}")
    row("decode a call", f"{_microseconds(lambda: decode_call(body)):.2f}")
    row("run a delivery", f"{1e6 / max(bench.run_calls() for _ in range(rounds)):.2f}")


def _compare(bench: TaskBench, rounds: int) -> None:
    figures = interleave(
        {
            "RPUSH, one": bench.raw_single,
            "task.enqueue, one": bench.our_single,
            "RPUSH, batches of 1,000": bench.raw_many,
            "task.enqueue_many": bench.our_many,
        },
        rounds,
    )
    heading(f"Tasks: calls per second, median (range) of {rounds} rounds; server without persistence")
    series = list(figures.values())
    for raw, ours in zip(series[::2], series[1::2], strict=True):
        row(raw.name, raw.spread)
        row(ours.name, ours.spread, f"{ours.ratio_to(raw):.0%} of raw")


def _add(a: int, b: int) -> int:
    return a + b


def _microseconds(work: Callable[[], object]) -> float:
    return 1e6 / max(rate(CALLS, lambda: [work() for _ in range(CALLS)]) for _ in range(5))
