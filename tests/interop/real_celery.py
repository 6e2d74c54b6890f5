"""A real Celery in a virtualenv of its own: its producers, its workers, its results."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support.deadline import wait_until
from tests.support.node_process import ROOT

SIDE = Path(__file__).with_name("celery_side.py")
REQUIREMENTS = ("celery[redis]==5.7.0", "msgpack")
INSTALL_DEADLINE_S = 300
ANSWER_DEADLINE_S = 300
URL_VARIABLE, LEDGER_VARIABLE = "MQW_TEST_CELERY_URL", "MQW_TEST_LEDGER"


class CannotInstall(Exception):
    """Celery is not there and cannot be fetched: the reason to skip."""


def celery_python() -> Path:
    """The interpreter that has Celery; made once, beside the packages of this virtualenv."""
    folder = Path(sys.prefix) / "celery"
    python = folder / "bin" / "python"
    with (Path(sys.prefix) / ".celery.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (folder / ".complete").exists():
            return python
        try:
            subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, capture_output=True)
            subprocess.run(
                [
                    str(python),
                    "-m",
                    "pip",
                    "install",
                    "--quiet",
                    "--disable-pip-version-check",
                    *REQUIREMENTS,
                ],
                check=True,
                capture_output=True,
                text=True,
                timeout=INSTALL_DEADLINE_S,
            )
        except subprocess.CalledProcessError as error:
            raise CannotInstall(str(error.stderr)[-500:]) from error
        except (OSError, subprocess.TimeoutExpired) as error:
            raise CannotInstall(str(error)) from error
        (folder / ".complete").touch()
    return python


class RealCelery:
    """An application of Celery on a server of the test's."""

    def __init__(self, socket: Path, folder: Path) -> None:
        self._python = celery_python()
        self._folder = folder
        self._environment = {
            **os.environ,
            URL_VARIABLE: f"redis+socket://{socket}",
            LEDGER_VARIABLE: str(folder),
            "C_FORCE_ROOT": "1",  # it accepts pickle, and tests may run as root
            "PYTHONPATH": str(ROOT),
        }

    def run(self, command: str, *words: object) -> Any:  # noqa: ANN401 - JSON
        """What celery_side.py prints for a command."""
        done = subprocess.run(
            [str(self._python), str(SIDE), command, *map(str, words)],
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=ANSWER_DEADLINE_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3_000:]
        return json.loads(done.stdout)

    def worker(self, queues: Sequence[str] = ("celery",)) -> RealCeleryWorker:
        """One of its workers, with two processes; to be used in a `with` block."""
        command = [str(self._python), "-m", "celery", "-A", "tests.interop.celery_side", "worker"]
        options = ["-c", "2", "-Q", ",".join(queues), "--without-gossip", "--without-mingle", "-l", "INFO"]
        return RealCeleryWorker([*command, *options], self._environment, self._folder / "celery.log")


class RealCeleryWorker:
    """A worker of Celery, from its readiness until its warm shutdown."""

    def __init__(self, command: Sequence[str], environment: dict[str, str], log: Path) -> None:
        self._command = command
        self._environment = environment
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, env=self._environment, cwd=ROOT, stdout=log, stderr=log, start_new_session=True
            )
        wait_until(lambda: " ready." in self._log.read_text(), f"Celery's worker is ready: {self._log}", 60)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
