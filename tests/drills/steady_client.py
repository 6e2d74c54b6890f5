"""A well-behaved client in a process of its own, and a control that says what the machine itself costs.

    python -m tests.drills.steady_client calls <redis url> <redismq port>
    python -m tests.drills.steady_client control <redis url of a bare server>
    python -m tests.drills.steady_client echo <redis url of a bare server>

The control sends words through a bare server to a bare echo and back, the way of a call without mqworker.
While it has no answer either, nobody on this machine gets one. Each works until its input ends; then it
prints what it noted as JSON. Times are of the machine's monotonic clock, so that they can be compared.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import redis

from mqworker import App
from tests.support.node_process import ROOT
from tests.support.resp_client import RespClient
from tests.system.foreign_app import QUEUE, echo

SLOW_S = 0.1
PAUSE_S = 0.02
_LINE, _ANSWERS = "line", "answers"


@dataclass
class Notes:
    """How many answers came, and which of them took long: what it was, from when to when."""

    answers: int = 0
    slow: list[tuple[str, float, float]] = field(default_factory=list)
    trouble: list[str] = field(default_factory=list)

    def longest_s(self) -> float:
        """The longest wait for one answer."""
        return max((end - start for _, start, end in self.slow), default=0.0)

    def time(self, what: str, ask: Callable[[], object]) -> None:
        """Ask, and note how long the answer took."""
        start = time.monotonic()
        ask()
        end = time.monotonic()
        self.answers += 1
        if end - start >= SLOW_S:
            self.slow.append((what, start, end))


def beyond(notes: Notes, control: Notes, delays: RunDelays) -> list[tuple[str, float]]:
    """The slow answers without what the machine itself took of them, the longest first.

    That is the time in which the control had no answer either, or, if more, the time in which processes on
    the way were ready to run and had no processor. On a machine of one's own both are nothing.
    """
    left = []
    for what, start, end in notes.slow:
        unanswered_s = sum(max(0.0, min(end, b) - max(start, a)) for _, a, b in control.slow)
        left.append((what, end - start - max(unanswered_s, delays.between(start, end))))
    return sorted(left, key=lambda each: -each[1])


class RunDelays:
    """How long some processes were ready to run and did not, as the kernel counts it; sampled in a thread."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._pids = pids
        self._samples: list[tuple[float, float]] = [(time.monotonic(), self._total_s())]
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Sample no more."""
        self._is_over.set()
        self._thread.join()

    def between(self, start: float, end: float) -> float:
        """The sum over all processes in this time, from the samples around it."""
        before = max((sample for sample in self._samples if sample[0] <= start), default=self._samples[0])
        after = min((sample for sample in self._samples if sample[0] >= end), default=self._samples[-1])
        return after[1] - before[1]

    def _sample(self) -> None:
        while not self._is_over.wait(0.1):
            self._samples.append((time.monotonic(), self._total_s()))
        self._samples.append((time.monotonic(), self._total_s()))

    def _total_s(self) -> float:
        waited_ns = 0
        for pid in self._pids:
            for path in Path(f"/proc/{pid}/task").glob("*/schedstat"):
                with suppress(OSError):  # a thread that ended; without such files nothing is subtracted
                    waited_ns += int(path.read_text().split()[1])
        return waited_ns / 1e9


class ClientProcess:
    """One of the three, as a process."""

    def __init__(self, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.drills.steady_client", *arguments],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def stop(self) -> Notes:
        """Let it end and read what it noted."""
        told, _ = self._process.communicate(timeout=120)
        # Any: what JSON holds.
        found: dict[str, Any] = json.loads(told)
        return Notes(found["answers"], [(what, a, b) for what, a, b in found["slow"]], found["trouble"])

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def kill(self) -> None:
        """End it, if it has not ended."""
        self._process.kill()
        self._process.wait()


def _call(notes: Notes, is_over: threading.Event, url: str, port: int) -> None:
    app = App("foreign", redis_url=url)
    task = app.task(queue=QUEUE, name=echo.name)(_echo)
    number = 0
    with RespClient(port) as gateway:
        while not is_over.is_set():
            number += 1
            try:
                notes.time("task", lambda: _ask(task.enqueue(f"w{number}").result(timeout=30), f"w{number}"))  # noqa: B023 - called at once
                pushed = _timed(notes, "push", gateway, "MQ.PUSH", "calm", f"e{number}")
                popped = _timed(notes, "pop", gateway, "MQ.POP", "1", "calm")
                assert popped[0][1] == f"e{number}".encode(), (pushed, popped)
                assert _timed(notes, "ack", gateway, "MQ.ACK", "calm", popped[0][0])
            except Exception as error:  # noqa: BLE001 - the drill tells of it
                notes.trouble.append(repr(error)[:500])
            is_over.wait(PAUSE_S)
    app.close()


def _ask(answer: object, expected: object) -> None:
    assert answer == expected, (answer, expected)


# Any: whatever the gateway answers.
def _timed(notes: Notes, what: str, gateway: RespClient, *words: Any) -> Any:  # noqa: ANN401
    answers: list[Any] = []
    notes.time(what, lambda: answers.append(gateway.say(*words)))
    return answers[0]


def _control(notes: Notes, is_over: threading.Event, url: str) -> None:
    with redis.Redis.from_url(url) as client:
        while not is_over.is_set():
            notes.time("echo", lambda: (client.rpush(_LINE, b"word"), client.blpop([_ANSWERS], timeout=60)))
            is_over.wait(PAUSE_S)


def _serve_echo(is_over: threading.Event, url: str) -> None:
    with redis.Redis.from_url(url) as client:
        while not is_over.is_set():
            found = client.blpop([_LINE], timeout=1)
            if found is not None:
                client.rpush(_ANSWERS, found[1])


def _echo(word: str) -> str:
    return word


def _wait_for_end(is_over: threading.Event) -> None:
    sys.stdin.read()
    is_over.set()


def main(role: str, *arguments: str) -> None:
    """Work until the input ends, and say how it went."""
    notes, is_over = Notes(), threading.Event()
    threading.Thread(target=_wait_for_end, args=(is_over,), daemon=True).start()
    match role, arguments:
        case "calls", (url, port):
            _call(notes, is_over, url, int(port))
        case "control", (url,):
            _control(notes, is_over, url)
        case "echo", (url,):
            _serve_echo(is_over, url)
        case _:
            raise SystemExit(__doc__)
    print(json.dumps({"answers": notes.answers, "slow": notes.slow, "trouble": notes.trouble}))  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
