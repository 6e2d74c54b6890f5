"""What tracing costs: the drain of a node that records one run in a hundred, beside one that records none.

The collector is a process that reads and forgets; its CPU time is not the node's, and is not counted.
"""

from __future__ import annotations

import multiprocessing
import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from multiprocessing.connection import Connection

import psutil

from benchmarks.node import NodeBench
from benchmarks.private_server import private_server
from benchmarks.rounds import interleave
from benchmarks.table import heading, row

DRAIN = 100_000
SHARE = "0.01"


class _Forget(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_arguments: object) -> None:
        pass


def run(rounds: int) -> None:
    """Print the table of this benchmark."""
    with private_server(aof=False) as url, _collector() as endpoint:
        bench = NodeBench(url)
        costs: dict[str, list[float]] = {}

        def drain(name: str, settings: dict[str, str]) -> float:
            with bench.node(settings) as node:
                per_second, cpu_us = _drain(bench, node)
            costs.setdefault(name, []).append(cpu_us)
            return per_second

        traced = {
            "MQWORKER_OTEL": "link",
            "MQWORKER_OTEL_SHARE": SHARE,
            "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
        }
        figures = interleave(
            {"off": lambda: drain("off", {}), f"on, {SHARE}": lambda: drain("on", traced)}, rounds
        )
    off, on = figures.values()
    heading(f"Tracing: no-op tasks per second, median (range) of {rounds} rounds of {DRAIN:,}")
    row(off.name, off.spread, f"{statistics.median(costs['off']):.2f} µs of CPU per task")
    row(on.name, on.spread, f"{statistics.median(costs['on']):.2f} µs; {on.ratio_to(off):.1%} of off")
    ratios = [one / other for one, other in zip(costs["on"], costs["off"], strict=True)]
    row("CPU, on to off", f"{statistics.median(ratios):.1%}")


def _drain(bench: NodeBench, node: psutil.Process) -> tuple[float, float]:
    """How many each second, and the CPU time of the node and of the server for each."""
    bench.fill(2_000)
    bench.wait_for(bench.done() + bench.queue.counts().waiting)
    before = _cpu_s(node, bench)
    per_second = bench.drain(DRAIN)
    return per_second, (_cpu_s(node, bench) - before) / DRAIN * 1e6


def _cpu_s(node: psutil.Process, bench: NodeBench) -> float:
    info = bench.raw.info("cpu")
    own_s = sum(sum(child.cpu_times()[:2]) for child in node.children())
    return own_s + info["used_cpu_user"] + info["used_cpu_sys"]


@contextmanager
def _collector() -> Iterator[str]:
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(target=_collect, args=(theirs,), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{ours.recv()}"
    finally:
        process.kill()
        process.join()


def _collect(told: Connection) -> None:
    server = HTTPServer(("127.0.0.1", 0), _Forget)
    told.send(server.server_address[1])
    server.serve_forever()
