"""Plain reasons: what the system's words for a lack mean, and what to do about it. Pure but for the limit."""

from __future__ import annotations

import errno
import resource

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


def reason_of_signal(name: str, shared_file: str) -> str:
    """What a signal means, where its name says little."""
    if name == "SIGBUS":  # the only file that all actors map
        return f"no space left on the disk for {shared_file}, or somebody cut it (SIGBUS)"
    return name
