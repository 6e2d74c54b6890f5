"""A whole node as `mqworker run` starts it, with default settings: CPU by part, short beside long tasks."""

from __future__ import annotations

import importlib
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from types import MappingProxyType

import psutil
import redis

from benchmarks.private_server import private_server
from benchmarks.rounds import interleave, rate
from benchmarks.table import heading, row
from mqworker.model.keyring import new_key
from mqworker.settings import Settings

DRAIN = 60_000
WORKERS = 2


class NodeBench:
    """A server, an app in this process, and a node beside it when one is started."""

    def __init__(self, url: str, **settings: str) -> None:
        """`settings` go to the app here and to the node."""
        bench_tasks = importlib.reload(
            importlib.import_module("benchmarks.bench_tasks")
        )  # a new app each time
        self.url = url
        self.tasks = bench_tasks
        self.raw = redis.Redis.from_url(url)
        self.noop = bench_tasks.noop  # of this app: another bench loads the module anew
        self._settings = settings
        bench_tasks.app.adopt(Settings(redis_url=url, **settings))  # type: ignore[arg-type]  # checked there
        self.queue = bench_tasks.app.work_queue()

    def done(self) -> int:
        """How many tasks succeeded so far."""
        return self.queue.counts().totals.get("succeeded", 0)

    def wait_for(self, count: int) -> None:
        """Until so many succeeded."""
        while self.done() < count:
            time.sleep(0.005)

    @contextmanager
    def node(self, settings: Mapping[str, str] = MappingProxyType({})) -> Iterator[psutil.Process]:
        """`mqworker run` with two workers."""
        own = {f"MQWORKER_{name.upper()}": value for name, value in self._settings.items()}
        environment = {**os.environ, **own, "MQWORKER_REDIS_URL": self.url, **settings}
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "mqworker",
                "run",
                "benchmarks.bench_tasks:app",
                "--workers",
                str(WORKERS),
            ],
            env=environment,
            stderr=subprocess.DEVNULL,
        )
        try:
            yield psutil.Process(process.pid)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()

    def fill(self, count: int) -> None:
        """Queue so many calls that do nothing."""
        for _ in range(count // 1000):
            self.noop.enqueue_many([()] * 1000)

    def drain(self, count: int) -> float:
        """Queue so many and run them; how many each second."""
        self.queue.pause()
        self.fill(count)
        target = self.done() + count
        return rate(count, lambda: (self.queue.resume(), self.wait_for(target)))

    def raw_lpop(self) -> float:
        """LPOP of a hundred, the yardstick."""
        self.raw.rpush("raw", *[b"x" * 100] * 10_000)
        return rate(10_000, lambda: [self.raw.lpop("raw", 100) for _ in range(100)])


def run(rounds: int) -> None:
    """Print the tables of this benchmark."""
    for aof in (False, True):
        with private_server(aof=aof) as url:
            _drain(NodeBench(url), rounds, "AOF everysec, as embedded" if aof else "no persistence")
    with private_server(aof=False) as url:
        _mixed(NodeBench(url))


def run_sealed(rounds: int) -> None:
    """Drains of a node with plain, signed and encrypted payloads, in turn."""
    with ExitStack() as stack:
        benches = {
            title: NodeBench(stack.enter_context(private_server(aof=False)), **settings)
            for title, settings in {
                "plain": {},
                "signed": {"keys": new_key("k1", "sign")},
                "encrypted": {"keys": new_key("k1", "encrypt")},
            }.items()
        }
        costs: dict[str, list[float]] = {}
        drains: dict[str, Callable[[], float]] = {}
        for title, bench in benches.items():
            node = stack.enter_context(bench.node())
            bench.fill(1_000)
            bench.wait_for(1_000)
            drains[title] = partial(_drained, bench, node, title, costs)
        figures = interleave(drains, rounds)
    heading(f"Node: no-op tasks per second by what is done to payloads, median (range) of {rounds} rounds")
    plain = figures["plain"]
    for series in figures.values():
        row(series.name, series.spread, f"{series.ratio_to(plain):.0%} of plain")
    for part, values in costs.items():
        row(f"  CPU per task, {part}", f"{statistics.median(values):.1f} µs")


def _drained(bench: NodeBench, node: psutil.Process, title: str, costs: dict[str, list[float]]) -> float:
    bench.queue.pause()
    bench.fill(DRAIN)
    target = bench.done() + DRAIN
    before = _cpu_by_part(node, bench.raw)
    began = time.perf_counter()
    bench.queue.resume()
    bench.wait_for(target)
    taken = time.perf_counter() - began
    for part, seconds in _cpu_by_part(node, bench.raw).items():
        used_us = (seconds - before.get(part, 0.0)) / DRAIN * 1e6
        costs.setdefault(f"{title}, {part}".removeprefix(", "), []).append(used_us)
    return DRAIN / taken


def _drain(bench: NodeBench, rounds: int, server: str) -> None:
    costs: dict[str, list[float]] = {}
    with bench.node() as node:
        bench.fill(1_000)
        bench.wait_for(1_000)

        drain = partial(_drained, bench, node, "", costs)
        figures = interleave({"LPOP, batches of 100": bench.raw_lpop, "drain, 2 workers": drain}, rounds)
    heading(f"Node: no-op tasks per second, median (range) of {rounds} rounds; server: {server}")
    lpop, ours = figures.values()
    row(lpop.name, lpop.spread)
    row(ours.name, ours.spread, f"{ours.ratio_to(lpop):.0%} of LPOP")
    for part, values in costs.items():
        row(f"  CPU per task, {part}", f"{statistics.median(values):.1f} µs")


def _cpu_by_part(node: psutil.Process, raw: redis.Redis) -> dict[str, float]:
    children = sorted(node.children(), key=lambda child: child.pid)
    seconds = [sum(child.cpu_times()[:2]) for child in children]
    info = raw.info("cpu")
    return {
        "workers": sum(seconds[-WORKERS:]),
        "dispatcher": seconds[-WORKERS - 1],
        "other actors": sum(seconds[: -WORKERS - 1]),
        "server": info["used_cpu_user"] + info["used_cpu_sys"],
    }


def _mixed(bench: NodeBench) -> None:
    heading("Node: 1 ms and 1 s tasks in one queue, wait of the short ones")
    with bench.node():
        bench.tasks.work.enqueue(1).result(timeout=10)
        began = time.monotonic()
        bench.tasks.work.enqueue(1_000)
        jobs = bench.tasks.stamp.enqueue_many([(began,)] * 300)
        waits = sorted(job.result(timeout=30) for job in jobs)
    row("p50", f"{waits[150]:.1f} ms")
    row("p99", f"{waits[297]:.1f} ms")
