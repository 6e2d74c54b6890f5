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

from mqworker.supervisor.status_socket import read_snapshots
from tests.support.deadline import wait_until

ROOT = Path(__file__).parents[2]
DEADLINE_S = 60.0


class RealNode:
    """`mqworker run` or `serve`, as typed, on a server of the test's."""

    def __init__(self, redis_url: str, *arguments: str, settings: dict[str, str] | None = None) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="mqw-node-"))
        self.log_path = self.directory / "log"
        self._arguments = arguments
        self._environment = os.environ | {"PYTHONPATH": str(ROOT), "MQWORKER_REDIS_URL": redis_url}
        self._environment |= settings or {}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Self:
        """Start it and wait until everybody in it is there."""
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.patient_node", *self._arguments],
                cwd=self.directory,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        wait_until(self.is_complete, f"the node is complete: {self.log_path}", DEADLINE_S)
        return self

    def is_complete(self) -> bool:
        """Whether all children are live."""
        assert self._process is not None
        assert self._process.poll() is None, self.log_path.read_text()
        return any(snapshot["complete"] for snapshot in self._snapshots())

    def snapshot(self) -> dict[str, Any]:
        """The node, as the supervisor shows it now."""
        return next(iter(self._snapshots()), {})

    def child(self, name: str) -> dict[str, Any]:
        """One child, as the supervisor shows it now."""
        for snapshot in self._snapshots():
            for child in snapshot["children"]:
                if child["name"] == name:
                    found: dict[str, Any] = child
                    return found
        raise AssertionError(f"no child {name}: {self.log_path.read_text()}")

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
        assert self._process is not None
        self._process.send_signal(number)

    def stop(self) -> int:
        """TERM; its exit code."""
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(DEADLINE_S)

    def log(self) -> str:
        """Everything it said."""
        return self.log_path.read_text()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _snapshots(self) -> list[dict[str, Any]]:
        snapshots = read_snapshots(self.directory / ".mqworker", 5.0).values()
        return [snapshot for snapshot in snapshots if snapshot]
