"""The real RSMQ clients: npm `rsmq` through a small driver, PyPI `pyrsmq`, and the `rsmqctl` command."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NPM_VERSION = "0.12.4"
DRIVER = Path(__file__).with_name("rsmq_driver.js")
INSTALL_DEADLINE_S = 180
ANSWER_DEADLINE_S = 60


class CannotInstall(Exception):
    """The client is not there and cannot be fetched: the reason to skip."""


class NodeError(Exception):
    """What the npm client said."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(f"{name}: {message}")
        self.name = name
        self.message = message


class NodeRsmq:
    """One npm client in a process of its own."""

    def __init__(self, modules: Path, port: int) -> None:
        self._process = subprocess.Popen(
            ["node", str(DRIVER), str(modules), str(port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __call__(self, operation: str, **options: object) -> Any:  # noqa: ANN401 - whatever the client answers
        """Ask and wait for the answer."""
        self.ask(operation, **options)
        return self.answer()

    def ask(self, operation: str, **options: object) -> None:
        """Ask; the answer is taken later, so that several clients can work at once."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"operation": operation, "options": options}) + "\n")
        self._process.stdin.flush()

    def answer(self) -> Any:  # noqa: ANN401 - same
        """The answer to the oldest question."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the Node.js driver ended"
        reply = json.loads(line)
        if "error" in reply:
            raise NodeError(**reply["error"])
        return reply.get("result")

    def close(self) -> None:
        """End the process."""
        self._process.communicate(timeout=ANSWER_DEADLINE_S)


def npm_modules(cache: Path) -> Path:
    """The folder with the npm client, fetched once."""
    return npm_packages(cache / f"npm-rsmq-{NPM_VERSION}", f"rsmq@{NPM_VERSION}")


def npm_packages(folder: Path, *packages: str) -> Path:
    """The folder with npm packages, which are fetched once into the folder above it."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        raise CannotInstall("Node.js and npm are not on this machine")

    def install() -> None:
        _run("npm", "install", "--no-audit", "--no-fund", "--prefix", str(folder), *packages)

    _once(folder, install)
    return folder / "node_modules"


def rsmqctl_program(cache: Path) -> Path:
    """The `rsmqctl` of a virtualenv of its own: it pins an older PyRSMQ and click."""
    folder = cache / f"rsmqctl-{sys.version_info.major}.{sys.version_info.minor}"

    def install() -> None:
        _run(sys.executable, "-m", "venv", "--clear", str(folder))
        _run(
            str(folder / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check", "rsmqctl==1.0.0"
        )

    _once(folder, install)
    return folder / "bin" / "rsmqctl"


def rsmqctl(program: Path, url: str, *arguments: str) -> tuple[int, str, str]:
    """Exit code, output and errors of one command."""
    done = subprocess.run(
        [program, *arguments],
        env={**os.environ, "REDIS_URL": url},
        capture_output=True,
        text=True,
        timeout=ANSWER_DEADLINE_S,
        check=False,
    )
    return done.returncode, done.stdout.strip(), done.stderr.strip()


def _once(folder: Path, install: Callable[[], None]) -> None:
    complete = folder / ".complete"
    with _lock(folder.with_suffix(".lock")):
        if not complete.exists():
            folder.mkdir(parents=True, exist_ok=True)
            install()
            complete.touch()


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """One installation at a time, also between test processes."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _run(*command: str) -> None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=INSTALL_DEADLINE_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise CannotInstall(f"{command[0]} did not end in {INSTALL_DEADLINE_S} s") from error
    if done.returncode != 0:
        last_line = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
        raise CannotInstall(f"{' '.join(command[:2])} failed: {' '.join(last_line)}")
