"""What waiting costs: jobs awaited in a line that stands still; a node whose queues only have results."""

from __future__ import annotations

import time
from typing import Any

from benchmarks.node import NodeBench
from benchmarks.private_server import private_server
from benchmarks.table import heading, row
from mqworker import wait_all
from mqworker.errors import ResultTimeout

AWAITED = (1_000, 5_000)
AWAITED_S = 10.0
QUEUES = 20
START_LIMIT_S = 60.0
SETTLE_S = 5.0
IDLE_S = 10.0


def run(rounds: int) -> None:
    """Print both tables; shares of time, so one round is as good as many."""
    del rounds
    with private_server(aof=False) as url:
        _awaited(NodeBench(url))
    with private_server(aof=False) as url:
        _idle(NodeBench(url))


def _awaited(bench: NodeBench) -> None:
    heading(
        f"Jobs awaited by one program in a line that stands still, for {AWAITED_S:.0f} s: share of a core"
    )
    bench.queue.pause()
    for count in AWAITED:
        jobs = bench.noop.enqueue_many([()] * count)
        began, caller_s, server_s = time.perf_counter(), time.process_time(), _server_seconds(bench)
        try:
            wait_all(jobs, timeout=AWAITED_S)
        except ResultTimeout:
            taken = time.perf_counter() - began
            caller, server = time.process_time() - caller_s, _server_seconds(bench) - server_s
            row(f"{count:,} jobs", f"caller {caller / taken:.1%}", f"server {server / taken:.1%}")


def _idle(bench: NodeBench) -> None:
    names = [f"q{number}" for number in range(QUEUES)]
    for name in names:
        bench.tasks.app.queue(name)
    jobs = [bench.noop.using(queue=name).enqueue() for name in names]
    with bench.node({"MQWORKER_QUEUES": ",".join(names)}):
        wait_all(jobs, timeout=START_LIMIT_S)
        time.sleep(SETTLE_S)
        before, scripts, server_s = bench.raw.info("stats"), _scripts(bench), _server_seconds(bench)
        time.sleep(IDLE_S)
        done = bench.raw.info("stats")["total_commands_processed"] - before["total_commands_processed"]
        heading(f"A node with {QUEUES} queues that have nothing but results")
        row("commands each second, those of scripts included", f"{done / IDLE_S:.0f}")
        row("scripts each second", f"{(_scripts(bench) - scripts) / IDLE_S:.1f}")
        row("server, share of a core", f"{(_server_seconds(bench) - server_s) / IDLE_S:.2%}")


def _server_seconds(bench: NodeBench) -> float:
    info = _info(bench, "cpu")
    return float(info["used_cpu_user"] + info["used_cpu_sys"])


def _scripts(bench: NodeBench) -> int:
    return int(_info(bench, "commandstats").get("cmdstat_evalsha", {}).get("calls", 0))


# Any: INFO has fields of many types.
def _info(bench: NodeBench, section: str) -> dict[str, Any]:
    found: dict[str, Any] = bench.raw.info(section)
    return found
