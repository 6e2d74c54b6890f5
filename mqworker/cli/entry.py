"""Where the `mqworker` command begins: a probe is answered at once, everything else goes to `cli/main.py`.

A service manager starts `mqworker health` every few seconds, on every node. Click, the settings and the
client of Redis take five times as long to import as the question and its answer take together, so the usual
form of it is answered with bare sockets: the supervisor knows how its node is. Whatever is not usual (a help,
a mistake, another server, a long path) is left to the full command.
"""

from __future__ import annotations

import os
import sys
import time

from mqworker.model.readiness import NOT_HEARD, answer_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

_ANSWER_S = 2.0
_LOOKS, _LOOK_EVERY_S = 15, 0.1
_CHUNK_BYTES = 65_536
_LONGEST_ADDRESS = 100
"""What fits into the address of a unix socket on every system."""
_QUESTIONS = {"--live": "live", "--ready": "ready"}


def main() -> None:
    """Entry point of the console script and of `python -m mqworker`."""
    if sys.argv[1:2] == ["health"]:
        answer = quick_answer(sys.argv[2:], os.environ)
        if answer is not None:
            print(answer[0])
            sys.exit(answer[1])
    from mqworker.cli.main import main as full  # noqa: PLC0415 - see the module's first lines

    full()


def quick_answer(arguments: Sequence[str], environ: Mapping[str, str]) -> tuple[str, int] | None:
    """The line and the exit code; None: ask the full command."""
    question, data_dir = None, None
    rest = iter(arguments)
    for argument in rest:
        if argument in _QUESTIONS and question is None:
            question = _QUESTIONS[argument]
        elif argument == "--data-dir" and data_dir is None:
            data_dir = next(rest, None)
        else:
            return None
    if question is None:
        return None
    data_dir = data_dir or environ.get("MQWORKER_DATA_DIR") or _configured_data_dir(os.getcwd())
    return None if data_dir is None else patient_answer(question, _ask, data_dir)


def patient_answer(
    question: str, ask: Callable[[str], Mapping[str, Mapping[str, Any] | None] | None], data_dir: str
) -> tuple[str, int] | None:
    """What supervisors know of Redis may be a second old: when they say no, they are asked once more."""
    for looks_left in reversed(range(_LOOKS)):
        answers = ask(data_dir)
        if answers is None:
            return None
        text, code = answer_of(question, answers, data_dir)
        if NOT_HEARD not in text or not looks_left:
            return text, code
        time.sleep(_LOOK_EVERY_S)
    return None


def _configured_data_dir(directory: str) -> str | None:
    """As the nearest pyproject.toml has it, else the default; None where somebody else has to look."""
    while True:
        try:
            with open(os.path.join(directory, "pyproject.toml"), "rb") as file:
                is_set = b"data_dir" in file.read()
        except (FileNotFoundError, NotADirectoryError):
            above = os.path.dirname(directory)
            if above == directory:
                return ".mqworker"
            directory = above
        except OSError:
            return None
        else:
            return None if is_set else ".mqworker"


def _ask(data_dir: str) -> dict[str, dict[str, Any] | None] | None:
    """What each supervisor of a directory shows, None where it hangs; None: this way leads nowhere."""
    try:
        names = sorted(
            name for name in os.listdir(data_dir) if name.startswith("supervisor") and name.endswith(".sock")
        )
    except FileNotFoundError:
        return {}
    except OSError:
        return None
    answers: dict[str, dict[str, Any] | None] = {}
    for name in names:
        path = os.path.join(data_dir, name)
        if len(path.encode()) > _LONGEST_ADDRESS:
            return None
        try:
            answers[name] = _snapshot_at(path)
        except (FileNotFoundError, ConnectionError):
            continue  # left by one that was killed
        except OSError:
            return None
    return answers


def _snapshot_at(path: str) -> dict[str, Any] | None:
    import json  # noqa: PLC0415 - only where somebody answers
    import socket  # noqa: PLC0415 - same

    with socket.socket(socket.AF_UNIX) as link:
        link.settimeout(_ANSWER_S)
        link.connect(path)
        data = b""
        try:
            while piece := link.recv(_CHUNK_BYTES):
                data += piece
            snapshot: dict[str, Any] = json.loads(data)
        except (TimeoutError, ValueError):
            return None
        return snapshot
