"""Asks a server on a unix socket how it is, and asks it to end: raw bytes, no client library.

`task.enqueue` probes once per process and every command at its start, so this stays far below a millisecond.
"""

import os
import socket
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path

# A healthy server answers in microseconds; one that is loading answers between two blocks of its file.
_ANSWER_DEADLINE_S = 0.5
_REPLY_BYTES = 1024


class Mood(Enum):
    """What a PING found."""

    ABSENT = auto()
    """Nobody listens: no socket, or one that a killed server left behind."""
    SILENT = auto()
    """Somebody listens and does not answer: stopped, or very busy."""
    LOADING = auto()
    """The server reads its data back and will be ready by itself."""
    READY = auto()
    """The server works."""
    REFUSING = auto()
    """The server runs and refuses work, for instance because the disk is full."""
    FOREIGN = auto()
    """The listener does not speak Redis' protocol."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a PING, with the first line of the reply for error texts."""

    mood: Mood
    reply: str = ""


def ping(socket_path: Path) -> Answer:
    """Connect, PING, classify. Never raises for what a server can do."""
    try:
        with _connect(socket_path) as connection:
            connection.sendall(b"PING\r\n")
            return classify(connection.recv(_REPLY_BYTES))
    except TimeoutError:
        return Answer(Mood.SILENT)
    except (FileNotFoundError, ConnectionError):
        return Answer(Mood.ABSENT)
    except BlockingIOError:  # the listen backlog is full, and nobody empties it
        return Answer(Mood.SILENT)
    except OSError as error:  # a directory without permission, a path beyond the limit of the kernel
        return Answer(Mood.ABSENT, str(error))


def classify(reply: bytes) -> Answer:
    """What a reply to PING says about the server."""
    line = reply.split(b"\r\n", 1)[0].decode(errors="replace")
    if line == "+PONG":
        return Answer(Mood.READY, line)
    if not line:  # closed without a word: on its way out
        return Answer(Mood.ABSENT)
    if line.startswith("-LOADING"):
        return Answer(Mood.LOADING, line)
    return Answer(Mood.REFUSING if line.startswith("-") else Mood.FOREIGN, line)


def is_detached(socket_path: Path) -> bool:
    """Whether the server was started in the background, to stay: it knows so itself, no file has to."""
    with suppress(OSError), _connect(socket_path) as connection:
        connection.sendall(b"CONFIG GET daemonize\r\n")
        return b"\r\nyes\r\n" in connection.recv(_REPLY_BYTES)
    return False


def shut_down(socket_path: Path, deadline_s: float) -> str:
    """SHUTDOWN: the server flushes its file and ends. Returns why it did not, or an empty text."""
    try:
        with _connect(socket_path) as connection:
            connection.settimeout(deadline_s)
            connection.sendall(b"SHUTDOWN\r\n")
            # The kernel closes the connection when the process ends; only a refusal is answered with text.
            return connection.recv(_REPLY_BYTES).decode(errors="replace").strip()
    except TimeoutError:
        return f"no end within {deadline_s:g} s"
    except (FileNotFoundError, ConnectionError):
        return ""


def wait_until_gone(socket_path: Path) -> None:
    """Block until the server ends: an idle connection is closed by nothing else."""
    with suppress(FileNotFoundError, ConnectionError), _connect(socket_path) as connection:
        connection.settimeout(None)
        connection.recv(_REPLY_BYTES)


def _connect(socket_path: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(_ANSWER_DEADLINE_S)
    try:
        connection.connect(os.fsencode(socket_path))
    except BaseException:
        connection.close()
        raise
    return connection
