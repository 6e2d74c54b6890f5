"""RedisMQ through its gateway, beside a plain RPUSH on the same server, raw and by redis-benchmark."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import hiredis
import redis

from benchmarks.private_server import loopback_server
from benchmarks.rounds import interleave, rate
from benchmarks.table import heading, row

ELEMENT = b"x" * 100
PIPELINED, BATCH = 50_000, 1_000
SINGLES = 2_000
START_S = 30.0


def run_redismq(rounds: int) -> None:
    """Print the table of this benchmark."""
    with loopback_server() as url, _gateway(url) as port:
        server = urlsplit(url).port or 0
        rpush, push, pop = (
            _packed("RPUSH", "raw"),
            _packed("MQ.PUSH", "bench"),
            _packed("MQ.POP", "1", "bench"),
        )
        figures = interleave(
            {
                "RPUSH, pipelined": lambda: _throughput(server, _with_element(rpush), PIPELINED, BATCH),
                "MQ.PUSH, pipelined": lambda: _throughput(port, _with_element(push), PIPELINED, BATCH),
                "MQ.POP, pipelined": lambda: _throughput(port, pop, PIPELINED, BATCH),
                "RPUSH, one by one": lambda: _throughput(server, _with_element(rpush), SINGLES, 1),
                "MQ.PUSH, one by one": lambda: _throughput(port, _with_element(push), SINGLES, 1),
                "MQ.POP, one by one": lambda: _throughput(port, pop, SINGLES, 1),
            },
            rounds,
        )
        peer = _redis_benchmark(server)
    heading(f"RedisMQ: commands per second on one connection, median (range) of {rounds} rounds")
    for name, series in figures.items():
        beside = figures["RPUSH, one by one" if name.endswith("one") else "RPUSH, pipelined"]
        row(name, series.spread, "" if series is beside else f"{series.ratio_to(beside):.0%} of RPUSH")
    if peer is not None:
        row("redis-benchmark RPUSH -P 1000", f"{peer:,.0f}", "once, over 50 connections")


@contextmanager
def _gateway(url: str) -> Iterator[int]:
    """A node with the gateway; the port where it listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    command = [sys.executable, "-m", "mqworker", "serve", "redismq", "--listen", f"127.0.0.1:{port}"]
    with tempfile.TemporaryDirectory(prefix="mqw-bench-") as directory:
        options = ["--redis-url", url, "--data-dir", directory, "--log-level", "error"]
        process = subprocess.Popen([*command, *options])
        try:
            _wait_until_open(port)
            yield port
        finally:
            process.terminate()
            process.wait(30)


def _wait_until_open(port: int) -> None:
    ends_at = time.monotonic() + START_S
    while True:
        try:
            with redis.Redis(port=port) as client:
                client.ping()
                return
        except redis.ConnectionError:
            if time.monotonic() > ends_at:
                raise
            time.sleep(0.05)


def _throughput(port: int, command: bytes, count: int, batch: int) -> float:
    """Commands each second, so many of them in one write."""
    with socket.create_connection(("127.0.0.1", port), 60) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return rate(count, lambda: [_exchange(connection, command, batch) for _ in range(count // batch)])


def _exchange(connection: socket.socket, command: bytes, batch: int) -> None:
    connection.sendall(command * batch)
    reader, left = hiredis.Reader(), batch
    while left:
        reader.feed(connection.recv(1_048_576))
        while (reply := reader.gets()) is not False:
            if isinstance(reply, hiredis.ReplyError):
                raise reply
            left -= 1


def _redis_benchmark(port: int) -> float | None:
    """RPUSH by the server's own tool, None where it is not installed."""
    program = shutil.which("redis-benchmark") or shutil.which("valkey-benchmark")
    if program is None:
        return None
    command = [program, "-p", str(port), "-t", "rpush", "-n", "500000", "-P", str(BATCH), "--csv"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return float(lines[-1].split(",")[1].strip('"'))


def _packed(*words: str) -> bytes:
    parts = [word.encode() for word in words]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%b\r\n" % (len(part), part) for part in parts)


def _with_element(command: bytes) -> bytes:
    """The same command with one word more."""
    return command.replace(b"*2\r\n", b"*3\r\n", 1) + b"$%d\r\n%b\r\n" % (len(ELEMENT), ELEMENT)
