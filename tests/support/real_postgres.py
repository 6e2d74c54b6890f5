"""A throwaway PostgreSQL server on a unix socket, for tests that need the real thing."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import psycopg

START_DEADLINE_S = 60.0
_PORT = 54329  # names the socket file; nothing listens on TCP


def postgres_folder() -> Path | None:
    """Where initdb and postgres are: on the PATH, or where Debian hides them."""
    on_path = shutil.which("initdb")
    candidates = [Path(on_path).resolve().parent] if on_path else []
    candidates += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((folder for folder in candidates if (folder / "initdb").exists()), None)


class RealPostgres:
    """One server process with its own directory; as root it runs as a lesser user, as PostgreSQL demands."""

    def __init__(self) -> None:
        folder = postgres_folder()
        assert folder is not None
        self._binaries = folder
        self._directory = Path(tempfile.mkdtemp(prefix="mqw-pg-"))
        self._user = _lesser_user() if os.geteuid() == 0 else None
        self._process: subprocess.Popen[bytes] | None = None
        self._databases = 0

    def start(self) -> Self:
        """Make the cluster and wait until it answers. Nothing is synced: the data dies with the test."""
        if self._user:
            os.chown(self._directory, pwd.getpwnam(self._user).pw_uid, -1)
        data = str(self._directory / "data")
        self._run("initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync")
        options = ["-k", str(self._directory), "-p", str(_PORT), "-h", "", "-c", "fsync=off"]
        with (self._directory / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(self._binaries / "postgres"), "-D", data, *options, "-c", "max_connections=200"],
                stdout=log,
                stderr=log,
                user=self._user,
                cwd=self._directory,
            )
        self._wait_until_ready()
        return self

    def new_database(self) -> str:
        """The URL of a new, empty database."""
        self._databases += 1
        name = f"test_{self._databases}"
        self.execute(f"CREATE DATABASE {name}")
        return f"postgresql+psycopg://postgres@/{name}?host={self._directory}&port={_PORT}"

    def execute(self, statement: str) -> None:
        """Run a statement as the administrator, for arranging."""
        address = {"host": str(self._directory), "port": _PORT, "user": "postgres"}
        with psycopg.connect(**address, dbname="postgres", autocommit=True) as connection:
            connection.execute(statement)

    def close(self) -> None:
        """Kill the process and remove its directory."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)  # at once, with all its children
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

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [str(self._binaries / program), *arguments],
            check=True,
            capture_output=True,
            user=self._user,
            cwd=self._directory,
        )

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_DEADLINE_S
        while time.monotonic() < deadline:
            assert self._process is not None
            assert self._process.poll() is None, (self._directory / "server.log").read_text()
            try:
                self.execute("SELECT 1")
            except psycopg.OperationalError:
                time.sleep(0.05)
            else:
                return
        raise AssertionError("the server did not answer in time")


def _lesser_user() -> str:
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name).pw_name
        except KeyError:
            continue
    raise AssertionError("PostgreSQL refuses to run as root, and there is no other user")
