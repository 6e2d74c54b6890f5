"""A throwaway MariaDB server on a unix socket, for tests that need the real thing."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import pymysql

START_DEADLINE_S = 60.0
_SYSTEM_PROGRAMS = "/usr/sbin"  # where Debian has the server, and not on everybody's PATH
_SWITCHES = [
    "--no-defaults",
    "--skip-networking",
    "--skip-grant-tables",  # the socket's folder is ours alone
    "--innodb-flush-log-at-trx-commit=0",  # nothing is synced: the data dies with the test
    "--innodb-buffer-pool-size=64M",
    "--max-connections=200",
]


def mariadb_server() -> str | None:
    """The program of the server."""
    return shutil.which("mariadbd", path=f"{os.environ.get('PATH', '')}:{_SYSTEM_PROGRAMS}")


def mariadb_missing() -> str:
    """Why there can be no server here; empty where there can."""
    if mariadb_server() is None:
        return "MariaDB: no mariadbd on the PATH"
    return "" if shutil.which("mariadb-install-db") else "MariaDB: no mariadb-install-db on the PATH"


class RealMariadb:
    """One server process with its own directory."""

    def __init__(self) -> None:
        server = mariadb_server()
        assert server is not None
        self._server = server
        self._directory = Path(tempfile.mkdtemp(prefix="mqw-maria-"))
        self._socket = str(self._directory / "socket")
        self._process: subprocess.Popen[bytes] | None = None
        self._databases = 0

    def start(self) -> Self:
        """Make the data directory and wait until the server answers."""
        data = f"--datadir={self._directory / 'data'}"
        me = ["--user=root"] if os.geteuid() == 0 else []  # it runs as root only when told so
        subprocess.run(
            ["mariadb-install-db", "--no-defaults", data, "--skip-test-db", *me],
            check=True,
            capture_output=True,
            cwd=self._directory,
        )
        with (self._directory / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._server, *_SWITCHES, data, f"--socket={self._socket}", *me],
                stdout=log,
                stderr=log,
                cwd=self._directory,
            )
        self._wait_until_ready()
        return self

    def new_database(self) -> str:
        """The URL of a new, empty database."""
        self._databases += 1
        name = f"test_{self._databases}"
        self.execute(f"CREATE DATABASE {name}")
        return f"mysql+pymysql://root@/{name}?unix_socket={self._socket}"

    def execute(self, statement: str) -> None:
        """Run a statement as the administrator, for arranging."""
        with pymysql.connect(unix_socket=self._socket, user="root") as connection:
            connection.cursor().execute(statement)

    def close(self) -> None:
        """Kill the process and remove its directory."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(START_DEADLINE_S)
            self._process = None
        shutil.rmtree(self._directory, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_DEADLINE_S
        while time.monotonic() < deadline:
            assert self._process is not None
            assert self._process.poll() is None, (self._directory / "server.log").read_text()
            # Not by the driver: it leaves its socket open when nobody answers.
            with socket.socket(socket.AF_UNIX) as knock:
                if knock.connect_ex(self._socket) == 0:
                    return
            time.sleep(0.05)
        raise AssertionError("the server did not answer in time")
