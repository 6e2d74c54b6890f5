"""A whole node in a process of its own: the supervisor, its actors and the gateways a test asks for.

Children can be killed by name; the node starts them again, without a pause and as often as a test likes.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support.deadline import wait_until
from tests.support.node_process import ROOT, NodeProcess

DEADLINE_S = 60.0


class RealNode:
    """`mqworker run` or `serve`, as typed, on a server of the test's."""

    def __init__(self, redis_url: str, *arguments: str, settings: dict[str, str] | None = None) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="mqw-node-"))
        self.log_path = self.directory / "log"
        environment = os.environ | {"PYTHONPATH": str(ROOT), "MQWORKER_REDIS_URL": redis_url}
        self._node = NodeProcess(
            [sys.executable, "-m", "tests.support.patient_node", "--quick-pings", *arguments],
            environment | (settings or {}),
            log_path=self.log_path,
            data_dir=self.directory / ".mqworker",
            directory=self.directory,
        )

    def start(self) -> Self:
        """Start it and wait until all children are ready."""
        self._node.start()
        self._node.wait_complete(DEADLINE_S)
        return self

    def is_complete(self) -> bool:
        """Whether all children are live."""
        assert self._node.is_running, self.log()
        return bool(self.snapshot().get("complete"))

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The supervisor's process."""
        return self._node.process

    def snapshot(self) -> dict[str, Any]:
        """The node, as the supervisor shows it now."""
        return self._node.snapshot()

    def child(self, name: str) -> dict[str, Any]:
        """One child, as the supervisor shows it now."""
        found = self._node.child(name)
        assert found, f"no child {name}: {self.log()}"
        return found

    def facts(self, name: str) -> dict[str, Any]:
        """What a child says of itself; waits for its first word."""
        wait_until(lambda: self.child(name)["facts"], f"facts of {name}", DEADLINE_S)
        facts: dict[str, Any] = self.child(name)["facts"]
        return facts

    def kill(self, name: str) -> None:
        """SIGKILL a child and wait until another is there in its place."""
        generation, pid = self.child(name)["generation"], self.child(name)["pid"]
        os.kill(pid, signal.SIGKILL)
        wait_until(
            lambda: self.child(name)["generation"] > generation and self.child(name)["state"] == "live",
            f"{name} is back",
            DEADLINE_S,
        )

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the supervisor."""
        self._node.process.send_signal(number)

    def stop(self) -> int:
        """TERM; its exit code."""
        return self._node.stop(DEADLINE_S)

    def log(self) -> str:
        """The whole log."""
        return self.log_path.read_text()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._node.is_running:
            self._node.kill()
        shutil.rmtree(self.directory, ignore_errors=True)
