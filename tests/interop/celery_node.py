"""A node of ours on a queue of Celery: to start, to look into, to kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from mqworker import CeleryQueue
from mqworker.queues.catalogue import as_plain
from tests.support.deadline import wait_until
from tests.support.ledger import read_ledger
from tests.support.node_process import ROOT, NodeProcess

DEADLINE_S = 120.0


class CeleryNode:
    """One node, which may be started again after it was killed; the ledger goes on."""

    def __init__(self, folder: Path, url: str, model: CeleryQueue | None = None, *, app: str = "app") -> None:
        self.folder = folder
        self.killed: set[int] = set()
        """Processes of workers that were killed, or ended with their node."""
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "MQWORKER_REDIS_URL": url,
            "MQWORKER_DATA_DIR": str(folder / "data"),
            "MQW_TEST_MODEL": json.dumps(as_plain(model or CeleryQueue(lease=2))),
            "MQW_TEST_LEDGER": str(folder),
        }
        command = [
            sys.executable,
            "-m",
            "mqworker",
            "run",
            f"tests.interop.celery_app:{app}",
            "--workers",
            "2",
        ]
        self._node = NodeProcess(command, environment, log_path=folder / "log", data_dir=folder / "data")

    def start(self) -> None:
        """Begin, or begin again after an end."""
        self._node.start()

    def begun(self) -> dict[int, list[tuple[int, str]]]:
        """Of each number, the processes that began it, and whose they are."""
        return self._by_number("begun")

    def ended(self) -> dict[int, list[tuple[int, str]]]:
        """The same for those that came to their end."""
        return self._by_number("ended")

    def _by_number(self, word: str) -> dict[int, list[tuple[int, str]]]:
        found: dict[int, list[tuple[int, str]]] = defaultdict(list)
        for line in read_ledger(self.folder):
            if line[0] == word:
                found[int(line[1])].append((int(line[2]), line[3]))
        return found

    def words(self, first: str) -> list[tuple[str, ...]]:
        """The rest of all lines that begin with a word."""
        return [line[1:] for line in read_ledger(self.folder) if line[0] == first]

    def wait_until(self, condition: Callable[[], object], what: str) -> None:
        """Until a condition holds; the failure shows the end of the log."""
        try:
            wait_until(condition, what, DEADLINE_S)
        except AssertionError as failure:
            raise AssertionError(f"{failure}\n{self._node.log_end()}") from None

    def kill(self, child: str) -> None:
        """SIGKILL a child that is ready, as soon as there is one."""
        pids: list[int] = []

        def is_ready() -> bool:
            pids.extend(pid for name, pid in self._node.live_children().items() if name == child)
            return bool(pids)

        wait_until(is_ready, f"{child} is ready", DEADLINE_S)
        self.killed.add(pids[0])
        with suppress(ProcessLookupError):
            os.kill(pids[0], signal.SIGKILL)

    def kill_all(self) -> None:
        """SIGKILL the supervisor; the kernel ends the others."""
        self.killed |= set(self._node.live_children().values())
        self._node.kill()

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """SIGSTOP for all of it, and SIGCONT at the end."""
        pids = [self._node.process.pid, *self._node.live_children().values()]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)

    def log(self) -> str:
        """What it logged so far."""
        return (self.folder / "log").read_text()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._node.is_running:
            return
        try:
            self._node.stop(30)
        except subprocess.TimeoutExpired:
            self._node.kill()
