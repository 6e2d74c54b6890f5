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
from tests.support.deadline import wait_until
from tests.support.ledger import SUFFIX, read_lines
from tests.support.node_process import ROOT, NodeProcess
from tests.system.model_app import LEDGER_VARIABLE, MODEL_VARIABLE, make_models

DEADLINE_S = 60.0


class ModelNode:
    """One node, which may be started again after it was killed; the ledger goes on."""

    def __init__(self, folder: Path, url: str, model: Model, workers: int = 2) -> None:
        self.folder = folder
        self.ledger = folder / f"node{SUFFIX}"
        self.log = folder / "log"
        self.url = url
        self.model = model
        self.tasks = make_models(model, url)
        self._node = self._make_node(workers)

    def start(self) -> None:
        """Begin, or begin again after an end."""
        self._node.start()

    def _make_node(self, workers: int) -> NodeProcess:
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "MQWORKER_REDIS_URL": self.url,
            "MQWORKER_DATA_DIR": str(self.folder / "data"),
            MODEL_VARIABLE: json.dumps(as_plain(self.model)),
            LEDGER_VARIABLE: str(self.ledger),
        }
        command = [sys.executable, "-m", "mqworker", "run", "tests.system.model_app:app"]
        return NodeProcess(
            [*command, "--workers", str(workers)],
            environment,
            log_path=self.log,
            data_dir=self.folder / "data",
        )

    def lines(self, word: str) -> list[list[str]]:
        """The rest of all lines that begin with a word."""
        return [rest for first, *rest in read_lines(self.ledger) if first == word]

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
        return self._node.live_children()

    def kill(self, child: str) -> None:
        """SIGKILL a child that is ready, as soon as there is one."""
        pids: list[int] = []

        def is_ready() -> bool:
            pids.extend(pid for name, pid in self.children().items() if name == child)
            return bool(pids)

        wait_until(is_ready, f"{child} is ready", DEADLINE_S)
        with suppress(ProcessLookupError):
            os.kill(pids[0], signal.SIGKILL)

    def kill_all(self) -> None:
        """SIGKILL the supervisor; the kernel ends the others."""
        self._node.kill()

    def stop(self) -> None:
        """As an operator does it."""
        self.tasks.app.close()
        self.stop_node()

    def stop_node(self) -> None:
        """The node alone: what it did can still be asked."""
        if not self._node.is_running:
            return
        try:
            self._node.stop(30)
        except subprocess.TimeoutExpired:
            self._node.kill()

    def tail(self) -> str:
        """The end of its log, for the text of a failure."""
        return self._node.log_end()
