"""The process of a node, however a test starts it: its log, what its supervisor shows, its end.

`RealNode`, `DrillNode` and `ModelNode` each say what is started and in which environment; this is the rest.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from mqworker.supervisor.status_socket import read_snapshots
from tests.support.deadline import wait_until

ROOT = Path(__file__).parents[2]
ANSWER_S = 5.0
LOG_END = 3_000


def marked_processes(mark: str) -> list[int]:
    """Every process with this text in its environment that has not ended; zombies have none to read."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):
                if mark.encode() in (folder / "environ").read_bytes():
                    found.append(int(folder.name))
    return found


class NodeProcess:
    """One supervisor with everything below it; may be started again after its end."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        log_path: Path,
        data_dir: Path,
        directory: Path = ROOT,
    ) -> None:
        self.log_path = log_path
        self._command = command
        self._environment = environment
        self._data_dir = data_dir
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Begin, or begin again after an end; the log goes on."""
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                cwd=self._directory,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The supervisor's process."""
        assert self._process is not None
        return self._process

    @property
    def is_running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def wait_complete(self, deadline_s: float) -> None:
        """Until all children are ready; fails at once when the node ends."""

        def is_complete() -> bool:
            assert self.is_running, self.log_end()
            return bool(self.snapshot().get("complete"))

        wait_until(is_complete, f"the node is complete: {self.log_path}", deadline_s)

    def snapshot(self) -> dict[str, Any]:
        """What the supervisor shows now; empty while it does not answer."""
        with suppress(OSError):
            return next((each for each in read_snapshots(self._data_dir, ANSWER_S).values() if each), {})
        return {}

    def child(self, name: str) -> dict[str, Any]:
        """One child of the snapshot; empty while there is none."""
        children: list[dict[str, Any]] = self.snapshot().get("children", [])
        return next((child for child in children if child["name"] == name), {})

    def live_children(self) -> dict[str, int]:
        """The pid of each child that is ready."""
        children: list[dict[str, Any]] = self.snapshot().get("children", [])
        return {child["name"]: child["pid"] for child in children if child["state"] == "live"}

    def stop(self, deadline_s: float) -> int:
        """TERM, as an operator does it; the exit code."""
        self.process.terminate()
        return self.process.wait(deadline_s)

    def kill(self) -> None:
        """SIGKILL the supervisor; the kernel ends the others."""
        self.process.kill()
        self.process.wait()

    def log_end(self) -> str:
        """The end of the log, for the text of a failure."""
        return self.log_path.read_text()[-LOG_END:] if self.log_path.exists() else ""
