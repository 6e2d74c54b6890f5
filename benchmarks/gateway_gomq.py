"""GOMQ through its gateway, beside a gRPC method of the same library that does nothing at all.

The empty method shows what grpcio itself costs on this machine, with the same client in the same process.
What limits it, the processor time of the server for each call says: no client, however light, can get more
calls out of the machine than its cores divided by that.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection

import grpc
import psutil

from benchmarks.private_server import private_server
from benchmarks.rounds import interleave
from benchmarks.table import heading, row
from mqworker_services.gateways.gomq.client import AsyncGomqClient

CHANNELS = 20
AT_ONCE = 5
"""Calls under way on each channel."""
MESSAGES = 10_000
PAYLOAD = b"x" * 100


def run_gomq(rounds: int) -> None:
    """Print the table of this benchmark."""
    with private_server(aof=False) as url, _gateway(url) as target, _empty_server() as (empty, server):
        cost = Cost(server)
        figures = interleave(
            {
                "grpcio, an empty method": lambda: cost.of(lambda: asyncio.run(_publish(empty))),
                "GOMQ Publish, stored": lambda: asyncio.run(_publish(target)),
                "GOMQ Observe, records": lambda: asyncio.run(_observe(target)),
            },
            rounds,
        )
    heading(f"GOMQ: per second over {CHANNELS} channels, median (range) of {rounds} rounds")
    empty_method, publish, observe = figures.values()
    row(empty_method.name, empty_method.spread, cost.text)
    row(publish.name, publish.spread, f"{publish.ratio_to(empty_method):.0%} of an empty method")
    row(observe.name, observe.spread)


class Cost:
    """The processor time that the empty server takes for each call; its client's is left out."""

    def __init__(self, server: psutil.Process) -> None:
        self._server = server
        self._seconds = 0.0
        self._calls = 0

    def of(self, measure: Callable[[], float]) -> float:
        """Carry out a measure of as many calls as there are messages; its figure."""
        before = self._server.cpu_times()
        figure = measure()
        after = self._server.cpu_times()
        self._seconds += after.user + after.system - before.user - before.system
        self._calls += MESSAGES + CHANNELS
        return figure

    @property
    def text(self) -> str:
        """What a call costs, and what follows from that."""
        each_s, cores = self._seconds / self._calls, os.cpu_count() or 1
        most = f"{cores} cores full, {cores / each_s:,.0f} a second"
        return f"{each_s * 1e6:,.0f} µs of processor time each: {most}"


async def _publish(target: str) -> float:
    clients = [AsyncGomqClient(target) for _ in range(CHANNELS)]
    await asyncio.gather(*(client.publish("warm", PAYLOAD) for client in clients))
    began = time.perf_counter()
    await asyncio.gather(*(_repeat(client) for client in clients for _ in range(AT_ONCE)))
    took_s = time.perf_counter() - began
    await _close(clients)
    return MESSAGES / took_s


async def _repeat(client: AsyncGomqClient) -> None:
    for _ in range(MESSAGES // CHANNELS // AT_ONCE):
        await client.publish("bench", PAYLOAD)


async def _observe(target: str) -> float:
    """All that was published by the other measure, taken by one peer."""
    async with AsyncGomqClient(target) as client:
        await client.subscribe("bench", "reader")
        await asyncio.sleep(1.5)  # a backlog waits a second for more subscribers
        count, began = 0, time.perf_counter()
        while count < MESSAGES:
            count += len(await client.observe("reader"))
        took_s = time.perf_counter() - began
        await client.unsubscribe("bench", "reader")
        return count / took_s


async def _close(clients: Sequence[AsyncGomqClient]) -> None:
    for client in clients:
        await client.close()


@contextmanager
def _gateway(redis_url: str) -> Iterator[str]:
    """A node with a gateway."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        target = f"127.0.0.1:{probe.getsockname()[1]}"
    with tempfile.TemporaryDirectory(prefix="mqw-bench-") as folder:
        command = [sys.executable, "-m", "mqworker", "serve", "gomq", "--listen", target]
        flags = ["--redis-url", redis_url, "--data-dir", folder, "--log-level", "warning"]
        with subprocess.Popen([*command, *flags]) as node:
            try:
                grpc.channel_ready_future(grpc.insecure_channel(target)).result(timeout=30)
                yield target
            finally:
                node.terminate()


@contextmanager
def _empty_server() -> Iterator[tuple[str, psutil.Process]]:
    """A server whose methods answer at once, in a process of its own."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve_nothing, args=(theirs,), daemon=True)
    process.start()
    try:
        yield f"127.0.0.1:{ours.recv()}", psutil.Process(process.pid)
    finally:
        process.kill()
        process.join()


def _serve_nothing(told: Connection) -> None:
    async def answer(_request: bytes, _context: object) -> bytes:
        return b""

    async def serve() -> None:
        server = grpc.aio.server()
        handler = grpc.unary_unary_rpc_method_handler(answer)
        methods = grpc.method_handlers_generic_handler("routeguide.RouteGuide", {"Publish": handler})
        server.add_generic_rpc_handlers((methods,))
        told.send(server.add_insecure_port("127.0.0.1:0"))
        await server.start()
        await server.wait_for_termination()

    asyncio.run(serve())
