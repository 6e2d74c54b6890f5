"""What the console costs: the drain of a node beside ten tabs and a search, at a million waiting jobs."""

from __future__ import annotations

import os
import random
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from urllib.request import urlopen

import psutil

from benchmarks.node import NodeBench
from benchmarks.private_server import private_server
from benchmarks.rounds import interleave
from benchmarks.table import heading, row
from mqworker.model.names import MessageId
from mqworker.operate.system import System, opened
from mqworker.settings import Settings

WAITING, DRAIN, LOOKS = 1_000_000, 100_000, 200
TABS = 10
SLOW_US = 5_000
_SEARCH = """
import sys
from mqworker.operate.job_filter import parse_filter
from mqworker.operate.search import search
from mqworker.operate.system import opened
from mqworker.settings import Settings

wanted = parse_filter("queue:backlog args.0:4711 error:nobody")
with opened(Settings(redis_url=sys.argv[1]), client_name="search", retry_for_ms=0) as system:
    cursor = None
    while True:
        cursor = search(system, wanted, cursor).cursor
"""


def run(rounds: int) -> None:
    """Print the tables of this benchmark."""
    with private_server(aof=False) as url, ExitStack() as stack:
        bench = NodeBench(url)
        ids = _fill_backlog(bench)
        bench.raw.config_set("slowlog-log-slower-than", SLOW_US)
        bench.raw.slowlog_reset()
        stack.enter_context(bench.node({"MQWORKER_QUEUES": "default"}))
        bench.drain(10_000)
        system = stack.enter_context(opened(Settings(redis_url=url), client_name="bench", retry_for_ms=0))
        _by_id(system, ids)
        with _console(url) as port:
            _tell_console(port)
            figures = interleave(
                {
                    "alone": lambda: bench.drain(DRAIN),
                    f"{TABS} tabs": lambda: _beside(_tabs(port), bench),
                    "a search": lambda: _beside(_searching(url), bench),
                },
                rounds,
            )
        slow = [entry["duration"] for entry in bench.raw.slowlog_get(1_000)]
    heading(f"Drain beside the console, {WAITING:,} waiting, median (range) of {rounds} rounds of {DRAIN:,}")
    alone, *others = figures.values()
    row(alone.name, alone.spread)
    for each in others:
        row(f"beside {each.name}", each.spread, f"{each.ratio_to(alone):.0%}")
    row(
        f"commands above {SLOW_US / 1000:g} ms (SLOWLOG)",
        f"{len(slow)}",
        f"longest {max(slow, default=0)} µs",
    )


def _fill_backlog(bench: NodeBench) -> Sequence[MessageId]:
    task = bench.tasks.noop.using(queue="backlog")
    ids: list[MessageId] = []
    for start in range(0, WAITING, 1_000):
        jobs = task.enqueue_many([()] * 1_000)
        ids += [job.id for job in jobs[:: 1_000 - 1]] if start % 50_000 == 0 else []
    return ids


def _by_id(system: System, ids: Sequence[MessageId]) -> None:
    chance, times_ms = random.Random(1), []  # noqa: S311 - no secret
    for _ in range(LOOKS):
        wanted = chance.choice(ids)
        began = time.perf_counter()
        system.find(wanted, "backlog")
        times_ms.append((time.perf_counter() - began) * 1000)
    heading(f"One of {WAITING:,} waiting jobs by its id, {LOOKS} times")
    row("p50", f"{statistics.median(times_ms):.2f} ms")
    row("p95", f"{sorted(times_ms)[LOOKS * 95 // 100]:.2f} ms")


def _tell_console(port: int) -> None:
    times_ms = []
    for _ in range(20):
        began = time.perf_counter()
        with urlopen(f"http://127.0.0.1:{port}/", timeout=10) as answer:
            answer.read(1)
            times_ms.append((time.perf_counter() - began) * 1000)
    heading("The console")
    row(
        "first byte of the overview, p50",
        f"{statistics.median(times_ms):.1f} ms",
        f"{max(times_ms):.1f} at most",
    )


@contextmanager
def _console(url: str) -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    command = [sys.executable, "-m", "mqworker", "web", "--listen", f"127.0.0.1:{port}"]
    process = subprocess.Popen(command, env={**os.environ, "MQWORKER_REDIS_URL": url})
    try:
        _wait_for(port)
        yield port
        memory = psutil.Process(process.pid).memory_info().rss / 1024**2
        row("memory of the console", f"{memory:.0f} MiB")
    finally:
        process.terminate()
        process.wait()


def _wait_for(port: int) -> None:
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port)):
                return
        except OSError:
            time.sleep(0.05)


@contextmanager
def _tabs(port: int) -> Iterator[None]:
    """Ten that read every picture they get."""
    streams = [urlopen(f"http://127.0.0.1:{port}/live?path=/&query=", timeout=60) for _ in range(TABS)]
    for stream in streams:
        threading.Thread(target=_read_all, args=(stream,), daemon=True).start()
    try:
        yield
    finally:
        for stream in streams:
            stream.close()


# Any stream: what urlopen gives has no type of its own.
def _read_all(stream: object) -> None:
    try:
        for _ in stream:  # type: ignore[attr-defined]
            pass
    except (OSError, ValueError, AttributeError):
        pass  # it was closed


@contextmanager
def _searching(url: str) -> Iterator[None]:
    process = subprocess.Popen([sys.executable, "-c", _SEARCH, url])
    time.sleep(0.5)  # its imports are not what is measured
    try:
        yield
    finally:
        process.kill()
        process.wait()


def _beside(company: object, bench: NodeBench) -> float:
    with company:  # type: ignore[attr-defined]
        return bench.drain(DRAIN)
