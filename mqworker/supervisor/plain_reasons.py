"""Plain reasons: what the system's errors about resources mean, and what to do. Pure but for the limit."""

from __future__ import annotations

import errno
import resource
from typing import Literal

from mqworker.actors.frame import NO_MAIL

Cause = Literal[
    "retired",  # a worker that had run enough, or was to be replaced, and left by itself
    "stopped",  # somebody in this node had it ended: a time-out, a cancellation, a restart
    "silent",  # it did not answer, or did not read its mail
    "killed",  # SIGKILL that nobody in this node had sent: an operator, or the kernel for lack of memory
    "crashed",  # any other signal: SIGSEGV, SIGABRT, SIGBUS
    "unavailable",  # it could not be started, or could not do without Redis
    "configuration",  # it said itself that another start is of no use
    "failed",  # any other exit code
]
"""Why a process ended, in as many words as a label of a metric may have."""

NOT_ANSWERING, NOT_READING, PIPE_CLOSED = (
    "does not answer",
    "does not read its mail",
    "closed its control pipe",
)
SILENT_REASONS = frozenset({NOT_ANSWERING, NOT_READING, PIPE_CLOSED, NO_MAIL})

_NO_SPACE = {errno.ENOSPC, errno.EDQUOT}
_NO_DESCRIPTOR = {errno.EMFILE, errno.ENFILE}
_NO_PROCESS = {errno.EAGAIN, errno.ENOMEM}


def reason_of(error: OSError) -> str:
    """One sentence for an operator."""
    if error.errno in _NO_SPACE:
        place = f" for {error.filename}" if error.filename else ""
        return f"no space left on the disk{place}; make room ({error.strerror})"
    if error.errno in _NO_DESCRIPTOR:
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return (
            f"too few file descriptors, the limit is {limit}; raise it with ulimit -n, or LimitNOFILE= of the"
            f" service ({error.strerror})"
        )
    if error.errno in _NO_PROCESS:
        return f"no memory or no process left; see ulimit -u and the limits of the service ({error.strerror})"
    return f"{type(error).__name__}: {error}"


def cause_of(code: int | None, signal_name: str | None, kill_reason: str | None) -> Cause:
    """One word for how a process ended; a signal, or a code, and what it was killed for by its node."""
    if signal_name is not None and kill_reason is not None:
        return "silent" if kill_reason in SILENT_REASONS else "stopped"
    match code:
        case None:
            return "killed" if signal_name == "SIGKILL" else "crashed"
        case 0:
            return "retired"
        case 69:
            return "unavailable"
        case 78:
            return "configuration"
        case _:
            return "failed"


def reason_of_signal(name: str, shared_file: str) -> str:
    """What a signal means, where its name says little."""
    if name == "SIGBUS":  # the only file that all actors map
        return f"no space left on the disk for {shared_file}, or somebody cut it (SIGBUS)"
    return name
