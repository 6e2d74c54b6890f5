"""The producer of a peer, seen from the harness: told what to send, it says how long that took."""

from __future__ import annotations

import json
import select
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ANSWER_LIMIT_S = 180


class PeerFailed(Exception):
    """A peer did something else than it was asked to; the text says what."""


@dataclass(frozen=True, slots=True)
class Sent:
    """What a producer sent, and how long that took."""

    count: int
    seconds: float

    @property
    def rate(self) -> float:
        """Tasks per second."""
        return self.count / self.seconds


@dataclass(frozen=True, slots=True)
class Description:
    """What an adapter says about its peer; see `peers/bench_driver.py`."""

    argv: tuple[str, ...]
    copies: int
    environment: Mapping[str, str]
    settings: tuple[str, ...]
    bulk: str
    drain_hint: float
    has_queues: bool
    versions: Mapping[str, str]


class Producer:
    """Speaks JSON lines with the process of the peer."""

    def __init__(self, argv: Sequence[str], environment: Mapping[str, str], directory: Path) -> None:
        self._log = directory / "producer.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                argv,
                env=environment,
                cwd=directory,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def describe(self) -> Description:
        """Ask who it is."""
        answer = self._ask({"do": "describe"})
        worker = answer["worker"]
        return Description(
            argv=tuple(worker["argv"]),
            copies=worker.get("copies", 1),
            environment=worker.get("environment", {}),
            settings=tuple(answer["settings"]),
            bulk=answer["bulk"],
            drain_hint=answer["drain_hint"],
            has_queues=answer["has_queues"],
            versions=answer["versions"],
        )

    def single(self, body: str, first: int, most: int, seconds: float) -> Sent:
        """One call after the other, until so many were sent or so much time has passed."""
        return Sent(
            **self._ask({"do": "single", "body": body, "first": first, "most": most, "seconds": seconds})
        )

    def bulk(self, body: str, first: int, most: int, seconds: float) -> Sent:
        """The same with the bulk call of the peer."""
        return Sent(
            **self._ask({"do": "bulk", "body": body, "first": first, "most": most, "seconds": seconds})
        )

    def paced(self, first: int, count: int, rate: float, batch: int) -> Sent:
        """So many per second."""
        return Sent(
            **self._ask({"do": "paced", "first": first, "count": count, "rate": rate, "batch": batch})
        )

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()

    # Any: JSON from another program; the callers name the fields they need.
    def _ask(self, command: Mapping[str, object]) -> dict[str, Any]:
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise PeerFailed("the producer has no pipes")
        try:
            stdin.write(f"{json.dumps(command)}\n")
            stdin.flush()
        except BrokenPipeError:
            raise PeerFailed(f"the producer ended: {self._last_words()}") from None
        if not select.select([stdout], [], [], ANSWER_LIMIT_S)[0]:
            raise PeerFailed(f"the producer did not answer {command['do']} within {ANSWER_LIMIT_S} s")
        line = stdout.readline()
        if not line:
            raise PeerFailed(f"the producer ended: {self._last_words()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _last_words(self) -> str:
        lines = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"
