"""A server of our own for one benchmark: on loopback, with nothing else in it."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import redis

from mqworker.store.embedded_binary import find_binary


@contextmanager
def private_server(*, aof: bool) -> Iterator[str]:
    """Start a server in a throwaway directory and give its URL; `aof` as the embedded server has it."""
    directory = Path(tempfile.mkdtemp(prefix="mqw-bench-"))
    socket_path = directory / "s.sock"
    persistence = ["--appendonly", "yes", "--appendfsync", "everysec"] if aof else ["--appendonly", "no"]
    process = subprocess.Popen(
        [
            *(str(find_binary()), "--port", "0", "--unixsocket", str(socket_path), "--save", ""),
            *("--dir", str(directory), "--loglevel", "warning", *persistence),
        ],
        stdout=subprocess.DEVNULL,
    )
    try:
        client = redis.Redis(unix_socket_path=str(socket_path))
        _wait_until_ready(client)
        yield f"unix://{socket_path}"
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(directory, ignore_errors=True)


def _wait_until_ready(client: redis.Redis) -> None:
    for _ in range(1000):
        try:
            client.ping()
        except redis.ConnectionError:
            time.sleep(0.01)
        else:
            return
    raise TimeoutError("the private server did not start")
