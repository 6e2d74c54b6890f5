"""A server of our own for one benchmark: on a unix socket or on loopback, with nothing else in it."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import redis

from mqworker.store.embedded.find import find_binary


@contextmanager
def private_server(*, aof: bool) -> Iterator[str]:
    """Start a server in a throwaway directory and give its URL; `aof` as the embedded server has it."""
    persistence = ["--appendonly", "yes", "--appendfsync", "everysec"] if aof else ["--appendonly", "no"]
    with _directory() as directory:
        socket_path = directory / "s.sock"
        flags = ["--port", "0", "--unixsocket", str(socket_path), *persistence]
        with _server(directory, flags, f"unix://{socket_path}") as url:
            yield url


@contextmanager
def loopback_server() -> Iterator[str]:
    """The same without persistence on a free port of 127.0.0.1, where every client library can reach it."""
    with _directory() as directory:
        port = _free_port()
        flags = ["--bind", "127.0.0.1", "--port", str(port), "--appendonly", "no"]
        with _server(directory, flags, f"redis://127.0.0.1:{port}/0") as url:
            yield url


@contextmanager
def _server(directory: Path, flags: list[str], url: str) -> Iterator[str]:
    everywhere = ["--save", "", "--dir", str(directory), "--loglevel", "warning"]
    process = subprocess.Popen([str(find_binary()), *flags, *everywhere], stdout=subprocess.DEVNULL)
    try:
        with redis.Redis.from_url(url) as client:
            _wait_until_ready(client)
        yield url
    finally:
        process.kill()
        process.wait()


@contextmanager
def _directory() -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="mqw-bench-"))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_until_ready(client: redis.Redis) -> None:
    for _ in range(1000):
        try:
            client.ping()
        except redis.ConnectionError:
            time.sleep(0.01)
        else:
            return
    raise TimeoutError("the private server did not start")
