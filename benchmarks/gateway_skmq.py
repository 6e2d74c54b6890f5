"""SKMQ through its gateway: frames that are acknowledged after they are stored."""

from __future__ import annotations

import asyncio
import itertools
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.private_server import loopback_server
from benchmarks.rounds import interleave
from benchmarks.table import heading, row
from mqworker.queues import SkmqClient, SkmqUnavailable
from mqworker.queues.skmq.frame import encode_frame

CONNECTIONS, FRAMES, WINDOW = 50, 20_000, 100
SINGLES = 1_000
CONTENT = b"x" * 100
APP = "bench"
START_S = 30.0

_numbers = itertools.count()


def run_skmq(rounds: int) -> None:
    """Print the table of this benchmark."""
    with loopback_server() as url, _gateway(url) as port:
        figures = interleave(
            {
                "50 connections": lambda: asyncio.run(_throughput(port, CONNECTIONS, FRAMES, WINDOW)),
                "1 connection, pipelined": lambda: asyncio.run(_throughput(port, 1, FRAMES, WINDOW)),
                "1 connection, one by one": lambda: asyncio.run(_throughput(port, 1, SINGLES, 1)),
            },
            rounds,
        )
    heading(f"SKMQ: frames stored per second, {len(CONTENT)} bytes each, median (range) of {rounds} rounds")
    for name, series in figures.items():
        row(name, series.spread, "")


async def _throughput(port: int, connections: int, frames: int, window: int) -> float:
    """Frames each second, so many of each connection unanswered; they are made before the clock runs."""
    share = frames // connections
    prepared = [[_frame() for _ in range(share)] for _ in range(connections)]
    began = time.perf_counter()
    await asyncio.gather(*(_send(port, some, window) for some in prepared))
    return frames / (time.perf_counter() - began)


async def _send(port: int, frames: list[bytes], window: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    sent, stored, rest = 0, 0, b""
    while stored < len(frames):
        ahead = min(window - (sent - stored), len(frames) - sent)
        if ahead > 0:
            writer.write(b"".join(frames[sent : sent + ahead]))
            sent += ahead
        data = await reader.read(65_536)
        if not data:
            raise SkmqUnavailable("the gateway closed the connection")
        stored += (rest + data).count(b"\r\n\r\n")
        rest = (rest + data)[-3:]  # an end may have been cut; what is left is too short to be counted twice
    writer.close()


def _frame() -> bytes:
    return encode_frame("queue", appid=APP, msgid=f"b{next(_numbers)}", content=CONTENT)


@contextmanager
def _gateway(url: str) -> Iterator[int]:
    """A node with the gateway; its port. The queue is paused, for nobody is there to take from it."""
    port = _free_port()
    command = [sys.executable, "-m", "mqworker", "serve", "skmq", "--listen", f"127.0.0.1:{port}"]
    with tempfile.TemporaryDirectory(prefix="mqw-bench-") as directory:
        options = ["--redis-url", url, "--data-dir", directory, "--log-level", "error"]
        process = subprocess.Popen([*command, *options])
        try:
            _send_the_first(port)
            pause = [sys.executable, "-m", "mqworker", "queue", "--redis-url", url, "pause", f"skmq.{APP}"]
            subprocess.run(pause, check=True, stdout=subprocess.DEVNULL)
            yield port
        finally:
            process.terminate()
            process.wait(30)


def _send_the_first(port: int) -> None:
    ends_at = time.monotonic() + START_S
    while True:
        try:
            with SkmqClient(port=port) as client:
                client.send(APP, "first", CONTENT)
                return
        except SkmqUnavailable:
            if time.monotonic() > ends_at:
                raise
            time.sleep(0.05)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
