"""Starts the server process for a data directory, and says in one sentence why one did not come up.

The process inherits the descriptor of `server.lock` and keeps it open, so the lock says "a server process is
alive here" from before its first instruction until the kernel has buried it. No second server ever opens the
same files, whichever of starter and server is killed at whatever moment.
"""

import re
import subprocess
from enum import Enum
from pathlib import Path

from mqworker.errors import ConfigurationError, MqworkerError, StoreUnavailable
from mqworker.store.embedded.find import find_binary
from mqworker.store.embedded.state import ServerPlace

_LINES_QUOTED = 3
_LOG_TAIL_BYTES = 4096
# "1234:M 01 Jan 2026 00:00:00.000 # text": who and when help nobody in an error text.
_LOG_PREFIX = re.compile(r"^\d+:\w [^*#.-]*\.\d{3} [*#.-] ")
_DAMAGED_DATA = (
    "Bad file format reading the append only file",
    "Unrecoverable error reading the append only file",
    "Unexpected end of file reading the append only file",
    "Invalid AOF manifest file format",
    "Error reading the RDB preamble",
    "RDB file was saved with checksum",
    "Wrong signature trying to load DB",
    "Internal error in RDB reading",
)


class Attachment(Enum):
    """Whose the server process is."""

    CHILD = "no"
    """A child of the starter, who can wait for it. Not bound to the starter's terminal or life."""
    DETACHED = "yes"
    """Nobody's child: it stays in the background when the starter ends."""


def launch(place: ServerPlace, attachment: Attachment, lock: int) -> subprocess.Popen[bytes]:
    """Start a server that takes over the lock; for `DETACHED` the result is its short-lived parent."""
    command = [find_binary(), *_options(place, place.choose_socket(), attachment)]
    place.rotate_log()
    try:
        with place.log_path.open("ab") as log:
            return subprocess.Popen(  # noqa: S603 - our own arguments, no shell
                command,
                cwd=place.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(lock,),
                # A session of its own: Ctrl-C and Procfile runners signal the whole group of the starter, and
                # the server has to outlive everybody who still has something to write.
                start_new_session=True,
                umask=0o077,
                # Nothing of the user's environment: an unknown locale would end the server at once.
                env={"LC_ALL": "C"},
            )
    except OSError as error:
        raise ConfigurationError(f"the embedded server cannot be started: {error}") from error


def explain_failure(place: ServerPlace, log: str) -> MqworkerError:
    """The error for a server that ended before it was ready, from what it logged."""
    quoted = "; ".join(_last_lines(log)) or "it wrote nothing to its log"
    if "No space left on device" in log or "Disk quota exceeded" in log:
        return StoreUnavailable(f"the disk with data_dir {place.data_dir} is full; the server said: {quoted}")
    if any(sign in log for sign in _DAMAGED_DATA):
        return ConfigurationError(
            f"the embedded server's data in {place.directory} is damaged and was left as it is; restore the "
            f"directory from a copy, or repair one with valkey-check-aof --fix; the server said: {quoted}"
        )
    if "Permission denied" in log or "Read-only file system" in log:
        return ConfigurationError(
            f"data_dir: the server may not write to {place.directory}; the server said: {quoted}"
        )
    return StoreUnavailable(
        f"the embedded server of {place.data_dir} ended while it started, see {place.log_path}; "
        f"the server said: {quoted}"
    )


def log_size(place: ServerPlace) -> int:
    """How long the log is now: what follows belongs to the next start."""
    return place.log_path.stat().st_size if place.log_path.exists() else 0


def log_since(path: Path, offset: int) -> str:
    """What was logged after `offset`, at most the end of it."""
    with path.open("rb") as log:
        end = log.seek(0, 2)
        log.seek(max(offset if offset <= end else 0, end - _LOG_TAIL_BYTES))
        return log.read().decode(errors="replace")


def _options(place: ServerPlace, socket_path: Path, attachment: Attachment) -> list[str]:
    option_by_name = {
        "port": "0",  # no TCP at all
        "unixsocket": str(socket_path),
        "unixsocketperm": "700",
        "timeout": "0",  # an idle connection is kept: it tells that the server lives
        "dir": str(place.directory),
        "logfile": str(place.log_path),
        "daemonize": attachment.value,
        "pidfile": str(place.directory / "server.pid"),
        "appendonly": "yes",
        "appendfsync": "everysec",
        "aof-load-truncated": "yes",  # half a command at the end was never acknowledged as written to disk
        "save": "",  # the append-only file is complete; snapshots would only cost
        "maxmemory-policy": "noeviction",  # eviction would drop leases and messages without a word
    }
    return [word for name, value in option_by_name.items() for word in (f"--{name}", value)]


def _last_lines(log: str) -> list[str]:
    lines = (_LOG_PREFIX.sub("", line).strip() for line in log.splitlines())
    return [line for line in lines if line][-_LINES_QUOTED:]
