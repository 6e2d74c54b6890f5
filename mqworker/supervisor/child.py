"""A child process as the supervisor holds it: started, signalled and reaped by handle, never by number.

On Linux children are forked, which takes 4 ms and shares memory; that is safe because the supervisor has one
thread and no connections. Elsewhere they are spawned. Both look the same from outside.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from enum import Enum, auto
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any, Protocol, TypeAlias

from mqworker.actors.child_start import ChildStart
from mqworker.actors.mailbox import Mailbox, open_pipe
from mqworker.supervisor.child_entry import LONGEST_WORDS_BYTES, live_forked, live_spawned
from mqworker.supervisor.child_plan import StartFunction

# Any: what is sent over it, and nothing is; only its descriptor is of use.
AnyConnection: TypeAlias = "Connection[Any, Any]"

# ru_maxrss counts kibibytes, on macOS bytes.
_RSS_UNIT = 1 if sys.platform == "darwin" else 1024


class StartMethod(Enum):
    """How a process is started."""

    FORK = auto()
    SPAWN = auto()


USUAL_METHOD = StartMethod.FORK if sys.platform == "linux" else StartMethod.SPAWN


@dataclass(frozen=True, slots=True)
class Ending:
    """How a process ended: with a code or by a signal, its largest memory, and what it said last."""

    code: int | None
    signal: str | None
    rss_bytes: int
    words: str = ""

    @property
    def cause(self) -> str:
        """For people."""
        how = self.signal or f"exit code {self.code}"
        return f"{how}: {self.words}" if self.words else how


class Process(Protocol):
    """What fork and spawn have in common."""

    pid: int

    def fileno(self) -> int:
        """Readable once the process has ended."""

    def send(self, number: signal.Signals) -> None:
        """Signal this very process; nothing happens when it has ended."""

    def reap(self) -> tuple[int, int] | None:
        """Exit code (negative: a signal) and largest memory in bytes; None while it lives."""

    def close(self) -> None:
        """Let go of the handle of a process that was reaped."""


class Child:
    """One generation of one child: the process and the two pipes to it."""

    def __init__(self, process: Process, control: Mailbox, words: int) -> None:
        self.process = process
        self.control = control
        self._words = words

    def reap(self) -> Ending | None:
        """How it ended, once; None while it lives."""
        reaped = self.process.reap()
        if reaped is None:
            return None
        status, rss_bytes = reaped
        with suppress(BlockingIOError):
            words = os.read(self._words, LONGEST_WORDS_BYTES).decode(errors="replace")
            return _ending(status, rss_bytes, words)
        return _ending(status, rss_bytes, "")

    def close(self) -> None:
        """Close all handles."""
        self.control.close()
        self.process.close()
        os.close(self._words)


def start_child(run: StartFunction, start: ChildStart, method: StartMethod = USUAL_METHOD) -> Child:
    """Start a process that lives `run`."""
    with ExitStack() as on_failure, ExitStack() as always:
        ours, theirs = open_pipe()
        on_failure.callback(os.close, ours)
        always.callback(os.close, theirs)
        heard, said = os.pipe()
        on_failure.callback(os.close, heard)
        always.callback(os.close, said)
        os.set_blocking(heard, False)
        process = (_fork if method is StartMethod.FORK else _spawn)(run, start, theirs, said)
        on_failure.pop_all()
    return Child(process, Mailbox(ours), heard)


class ForkedProcess:
    """Held by a pidfd: its number may be given to another process, the handle may not."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        # No race: until it is reaped, which only we do, the number is not given away.
        self._handle = os.pidfd_open(pid)

    def fileno(self) -> int:
        """The pidfd."""
        return self._handle

    def send(self, number: signal.Signals) -> None:
        """Signal it, if it lives."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._handle, number)

    def reap(self) -> tuple[int, int] | None:
        """Collect it, and kill what it left behind if it did not end well."""
        ended = os.waitid(os.P_PIDFD, self._handle, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is None:
            return None
        if ended.si_code != os.CLD_EXITED or ended.si_status:
            # Before it is collected: so long the number of its group cannot be anybody else's.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
        _, status, usage = os.wait4(self.pid, 0)
        return os.waitstatus_to_exitcode(status), usage.ru_maxrss * _RSS_UNIT

    def close(self) -> None:
        """Close the pidfd."""
        os.close(self._handle)


class SpawnedProcess:
    """Held by multiprocessing, which collects it nowhere but here."""

    def __init__(self, process: SpawnProcess) -> None:
        self._process = process
        self.pid = process.pid or 0  # it was started, so it has one

    def fileno(self) -> int:
        """The end of a pipe that closes with the process."""
        return self._process.sentinel

    def send(self, number: signal.Signals) -> None:
        """Signal it, if it lives."""
        if self._process.exitcode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def reap(self) -> tuple[int, int] | None:
        """Collect it; its memory is not known."""
        status = self._process.exitcode
        return None if status is None else (status, 0)

    def close(self) -> None:
        """Close what multiprocessing holds."""
        self._process.close()


def _fork(run: StartFunction, start: ChildStart, control: int, words: int) -> Process:
    # Or what is in the buffers would be written twice.
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        live_forked(run, start, control, words)
    try:
        return ForkedProcess(pid)
    except OSError:  # out of descriptors: it could not be ended later, so it ends now
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise


def _spawn(run: StartFunction, start: ChildStart, control: int, words: int) -> Process:
    # Connections, because multiprocessing knows how to hand those over.
    ends = [Connection(os.dup(descriptor)) for descriptor in (control, words)]
    process = multiprocessing.get_context("spawn").Process(target=_begin, args=(run, start, *ends))
    process.start()
    for end in ends:
        end.close()
    return SpawnedProcess(process)


def _begin(run: StartFunction, start: ChildStart, control: AnyConnection, words: AnyConnection) -> None:
    live_spawned(run, start, os.dup(control.fileno()), os.dup(words.fileno()))


def _ending(status: int, rss_bytes: int, words: str) -> Ending:
    if status >= 0:
        return Ending(status, None, rss_bytes, words)
    try:
        name = signal.Signals(-status).name
    except ValueError:  # a real-time signal
        name = f"signal {-status}"
    return Ending(None, name, rss_bytes, words)
