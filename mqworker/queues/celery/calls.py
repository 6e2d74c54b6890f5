"""The calls behind a Celery queue: arguments in the order of each script's contract, replies as values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, assert_never

from mqworker.model.dead_letter import encode_letter
from mqworker.model.instant import as_argument
from mqworker.model.settlement import (
    UNKNOWN_TASK,
    Ack,
    Bury,
    Crash,
    Park,
    Release,
    RetryAt,
    Settlement,
    Suspect,
)
from mqworker.queues.celery.keys import CeleryKeys
from mqworker.queues.celery.outgoing import Write
from mqworker.store.script import Call, RawReply, scripts_of

script = scripts_of(__package__)

DEPTH = 1_000
"""How far a claim looks past messages of tasks that only Celery knows."""
_AT_ONCE = "+0"


class Taken(NamedTuple):
    """A message as it was claimed, and what is known of it."""

    fence: int
    deliveries: int
    failures: int
    crashes: int
    taken_at_ms: int
    raw: bytes


@dataclass(frozen=True, slots=True)
class Ended:
    """A settlement, and what is written with it."""

    settlement: Settlement
    writes: Sequence[Write] = ()
    dead_id: str = ""
    """Under which id it is kept, if it is buried."""


class CeleryCalls:
    """Builds calls for one queue; pure."""

    def __init__(self, keys: CeleryKeys, *, result_ms: int, result_db: int | None) -> None:
        self.keys = keys
        self._result_ms = result_ms
        self._result_db = "" if result_db is None else str(result_db)
        self._list_count = len(keys.lists)

    def claim(self, count: int, lease_ms: int, left: Sequence[str]) -> Call[tuple[int, list[Taken]]]:
        """Take messages under leases: the server's time, and what was taken; those of `left` stay."""
        arguments: tuple[str | int, ...] = (count, lease_ms, self._list_count, DEPTH, *left)
        return Call(script("claim"), self.keys.shared, arguments, _taken, is_numbered=True)

    def settle(self, ended: Sequence[Ended]) -> Call[list[Settlement]]:
        """End deliveries; the reply lists those whose lease was lost."""
        written: dict[str, int] = {}
        parts: list[str | bytes | int] = [self._list_count, self._result_ms, self._result_db]
        for each in ended:
            parts += [*_verdict_of(each), len(each.writes)]
            for write in each.writes:
                parts += [write.kind, written.setdefault(write.key, len(written)), write.text]
        return Call(
            script("settle"),
            (*self.keys.shared, *written),
            tuple(parts),
            lambda lost: [ended[position].settlement for position in lost],
            is_numbered=True,
        )

    def extend(self, fences: Sequence[int], lease_ms: int) -> Call[list[int]]:
        """Prolong leases; the reply lists the fences that were lost."""
        return Call(
            script("extend"),
            self.keys.shared,
            (lease_ms, *map(str, fences)),
            lambda lost: [fences[position] for position in lost],
            is_numbered=True,
        )

    def reclaim(self, limit: int) -> Call[tuple[int, int]]:
        """Let what is under ended leases wait again: (came back, leases looked at)."""
        return Call(script("reclaim"), self.keys.shared, (limit,), tuple)

    def revive(self, ids: Sequence[str]) -> Call[list[bool]]:
        """Put dead letters back into Celery's lists; for each whether it was one."""
        return Call(
            script("revive"),
            self.keys.shared,
            (self._list_count, *ids),
            lambda verdicts: [verdict == 1 for verdict in verdicts],
            is_numbered=True,
        )

    def give_back(self, limit: int) -> Call[int]:
        """Put what waits here back into Celery's lists; how many."""
        return Call(script("give_back"), self.keys.shared, (limit, self._list_count), int)

    def send(self, texts: Sequence[str]) -> Call[int]:
        """Push messages to the first list."""
        arguments = [part for text in texts for part in ("1", text)]
        return Call(script("send"), self.keys.shared, (self._list_count, *arguments), int, is_numbered=True)


def _taken(reply: RawReply) -> tuple[int, list[Taken]]:
    now_ms, found = reply
    return int(now_ms), [
        Taken(fence, deliveries, failures, crashes, int(at_ms), raw)
        for fence, deliveries, failures, crashes, at_ms, raw in found
    ]


def _verdict_of(ended: Ended) -> tuple[str, str, str, str, str | bytes]:
    settlement, fence = ended.settlement, str(ended.settlement.delivery.fence)
    match settlement:
        case Ack():
            return ("ack", fence, "", "", "")
        case RetryAt(_, due):
            return ("again", fence, as_argument(due), "", "")
        case Park(_, due, mark=mark):
            return ("back" if mark == UNKNOWN_TASK else "wait", fence, as_argument(due), "", "")
        case Release():
            return ("back", fence, _AT_ONCE, "", "")
        case Crash() | Suspect():
            return ("crash", fence, _AT_ONCE, "", "")
        case Bury():
            return ("bury", fence, "", ended.dead_id, encode_letter(settlement))
        case _:
            assert_never(settlement)
