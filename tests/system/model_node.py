"""A real node that runs tasks of a queue of another model: to start, to look into, to kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from mqworker.queues.catalogue import Model, as_plain
from mqworker.supervisor.status_socket import read_snapshots
from tests.support.deadline import wait_until
from tests.system.model_app import LEDGER_VARIABLE, MODEL_VARIABLE, make_models

ROOT = Path(__file__).parents[2]
DEADLINE_S = 60.0


class ModelNode:
    """One node, which may be started again after it was killed; the ledger goes on."""

    def __init__(self, folder: Path, url: str, model: Model, workers: int = 2) -> None:
        self.folder = folder
        self.ledger = folder / "ledger"
        self.log = folder / "log"
        self.url = url
        self.model = model
        self.tasks = make_models(model, url)
        self._workers = workers
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "MQWORKER_REDIS_URL": self.url,
            "MQWORKER_DATA_DIR": str(self.folder / "data"),
            MODEL_VARIABLE: json.dumps(as_plain(self.model)),
            LEDGER_VARIABLE: str(self.ledger),
        }
        command = [sys.executable, "-m", "mqworker", "run", "tests.system.model_app:app"]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "--workers", str(self._workers)],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def lines(self, word: str) -> list[list[str]]:
        """The rest of all lines that begin with a word."""
        written = self.ledger.read_text().splitlines() if self.ledger.exists() else []
        return [rest for first, *rest in map(str.split, written) if first == word]

    def counted(self, word: str) -> Counter[int]:
        """How often each number has that word in the ledger."""
        return Counter(int(rest[0]) for rest in self.lines(word) if rest[0].isdigit())

    def wait(self, word: str, count: int = 1) -> None:
        """Until so many lines begin with a word."""
        self.wait_until(lambda: len(self.lines(word)) >= count, f"{count} x {word}")

    def wait_until(self, condition: Callable[[], object], what: str) -> None:
        """Until a condition holds; the failure shows the end of the log."""
        try:
            wait_until(condition, what, DEADLINE_S)
        except AssertionError as failure:
            raise AssertionError(f"{failure}\n{self.tail()}") from None

    def children(self) -> dict[str, int]:
        """The pid of every child that is ready."""
        found: dict[str, int] = {}
        with suppress(OSError):
            for snapshot in read_snapshots(self.folder / "data", 5.0).values():
                for child in snapshot["children"] if snapshot else []:
                    if child["state"] == "live" and child["pid"]:
                        found[child["name"]] = child["pid"]
        return found

    def kill(self, child: str) -> None:
        """SIGKILL a child that is ready, as soon as there is one."""
        wait_until(lambda: child in self.children(), f"{child} is ready", DEADLINE_S)
        with suppress(ProcessLookupError):
            os.kill(self.children()[child], signal.SIGKILL)

    def kill_all(self) -> None:
        """SIGKILL the supervisor; the kernel ends the others."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """As an operator does it."""
        self.tasks.app.close()
        if self._process is None or self._process.poll() is not None:
            return
        self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def tail(self) -> str:
        """The end of its log, for the text of a failure."""
        return self.log.read_text()[-2_000:] if self.log.exists() else ""
