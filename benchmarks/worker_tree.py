"""The worker processes of a peer, with all their children: started, watched, stopped, killed."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

STOP_LIMIT_S = 3.0
_GONE = (psutil.NoSuchProcess, psutil.AccessDenied, ProcessLookupError)


class WorkerTree:
    """One or more commands, each in a session of its own, so that no descendant is overlooked."""

    def __init__(
        self, argv: Sequence[str], copies: int, environment: Mapping[str, str], directory: Path
    ) -> None:
        self.started_at_ns = time.monotonic_ns()
        with (directory / "workers.log").open("ab") as log:
            self._commands = [
                subprocess.Popen(
                    argv,
                    env=environment,
                    cwd=directory,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
                for _ in range(copies)
            ]

    def processes(self) -> list[psutil.Process]:
        """All that live now, also those whose parent is gone."""
        sessions = {command.pid for command in self._commands}
        members = [process for process in psutil.process_iter() if _session(process.pid) in sessions]
        return [process for process in members if _is_alive(process)]

    def has_ended(self) -> bool:
        """None of the commands runs any more: something is wrong with the peer."""
        return all(command.poll() is not None for command in self._commands)

    def cpu_seconds(self) -> float:
        """Processor time of all that live."""
        return sum(_cpu_seconds(process) for process in self.processes())

    def pss_bytes(self) -> int:
        """Memory of all that live; what they share is counted once."""
        return sum(_pss_bytes(process) for process in self.processes())

    def stop(self) -> None:
        """Ask, wait a little, kill."""
        for command in self._commands:
            command.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + STOP_LIMIT_S
        while self.processes() and time.monotonic() < deadline:
            for command in self._commands:
                command.poll()
            time.sleep(0.02)
        self.kill()

    def kill(self) -> None:
        """SIGKILL for all at once, until nothing is left."""
        while remaining := self.processes():
            for process in remaining:
                _kill(process.pid)
            for command in self._commands:
                command.poll()
            time.sleep(0.005)
        for command in self._commands:
            command.wait()


def _session(pid: int) -> int:
    try:
        return os.getsid(pid)
    except OSError:
        return -1


def _is_alive(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except _GONE:
        return False


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _cpu_seconds(process: psutil.Process) -> float:
    try:
        return float(sum(process.cpu_times()[:2]))
    except _GONE:
        return 0.0


def _pss_bytes(process: psutil.Process) -> int:
    try:
        info = process.memory_full_info()
        # Only Linux divides shared pages among their users; elsewhere what a process has alone comes closest.
        return int(getattr(info, "pss", info.uss))
    except _GONE:
        return 0
