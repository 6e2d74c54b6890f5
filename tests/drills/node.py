"""A node as a drill sees it: a process tree to start, look into, strike and stop; nothing of it is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.drills.drill_app import LEDGER_VARIABLE
from tests.drills.evidence import read_log
from tests.support.deadline import wait_until
from tests.support.ledger import LedgerWriter
from tests.support.node_process import NodeProcess, marked_processes

MARK_VARIABLE = "MQW_DRILL_MARK"
APP = "tests.drills.drill_app:app"
DEADLINE_S = 40.0

AS_USERS_DO = ("-m", "mqworker", "run")
PATIENT = ("-m", "tests.support.patient_node")
"""With limits that survive hundreds of kills."""

EVENTS_KEPT = 100_000_000


class DrillNode:
    """One supervisor with everything below it."""

    def __init__(
        self,
        folder: Path,
        url: str | None,
        ledger: LedgerWriter,
        ledger_folder: Path,
        *,
        program: Sequence[str] = AS_USERS_DO,
        inside: Sequence[str] = (),
        app: str = APP,
        workers: int = 2,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self.log_path = folder / "log"
        self.mark = uuid.uuid4().hex
        self._ledger = ledger
        values = {
            "data_dir": folder / "data",
            "workers": workers,
            "heartbeat_interval_s": 0.2,
            "heartbeat_timeout_s": 1.0,
            "events_kept": EVENTS_KEPT,
            "log_format": "json",
            **({} if url is None else {"redis_url": url}),
            **(settings or {}),
        }
        environment = {
            **os.environ,
            **{f"MQWORKER_{name.upper()}": str(value) for name, value in values.items()},
            LEDGER_VARIABLE: str(ledger_folder),
            MARK_VARIABLE: self.mark,
        }
        command = [*inside, sys.executable, *program, app]
        self._node = NodeProcess(command, environment, log_path=self.log_path, data_dir=folder / "data")

    # Life

    def start(self) -> None:
        """Begin, or begin again after an end."""
        self._node.start()

    def wait_complete(self) -> None:
        """Until all children are ready."""
        self._node.wait_complete(DEADLINE_S)

    def wait_exit(self, deadline_s: float = DEADLINE_S) -> int:
        """Its exit code."""
        return self.process.wait(deadline_s)

    def stop(self) -> int:
        """As an operator does it."""
        return self._node.stop(DEADLINE_S)

    def close(self) -> None:
        """Leave nothing behind, even when the drill failed."""
        if self._node.is_running:
            self.resume_all()
            self._node.kill()
        wait_until(lambda: not self.descendants(), "nothing of the node is left")

    # Looking

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The supervisor's process."""
        return self._node.process

    def snapshot(self) -> dict[str, Any]:
        """The supervisor's own view; empty while it does not answer."""
        return self._node.snapshot()

    def child(self, name: str) -> dict[str, Any]:
        """One child of the snapshot; empty while there is none."""
        return self._node.child(name)

    def live_children(self) -> dict[str, int]:
        """The pid of each child that is ready."""
        return self._node.live_children()

    def descendants(self) -> list[int]:
        """Every process that carries our mark and has not ended."""
        return marked_processes(self.mark)

    def log(self) -> list[dict[str, Any]]:
        """The lines of its log, all starts together."""
        return read_log(self.log_path) if self.log_path.exists() else []

    def logged(self, event: str) -> list[dict[str, Any]]:
        """The lines of one event."""
        return [line for line in self.log() if line.get("event") == event]

    # Striking

    def kill(self, name: str, how: signal.Signals = signal.SIGKILL) -> bool:
        """End one child by a signal; False when it is not there to be killed."""
        pid = self.live_children().get(name)
        if pid is None:
            return False
        self._ledger.note("K", pid, name)  # before: what it does from now on may be its last
        with suppress(ProcessLookupError):
            os.kill(pid, how)
        return True

    def kill_supervisor(self) -> None:
        """SIGKILL the supervisor; the kernel ends the others."""
        for name, pid in self.live_children().items():
            self._ledger.note("K", pid, name)
        for pid in self.descendants():
            self._ledger.note("S", pid, "descendant")  # one that was just being started
        self._ledger.note("K", self.process.pid, "supervisor")
        self._node.kill()

    def pause_all(self) -> None:
        """SIGSTOP the whole tree, as a host that hangs."""
        for pid in self.descendants():
            self._ledger.note("S", pid, "node")
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)

    def resume_all(self) -> None:
        """SIGCONT."""
        for pid in self.descendants():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
