"""Settlements as plain parts: how a worker reports on deliveries of queue models other than the work queue.

The report holds no delivery, only its fence: whoever claimed it still has the delivery itself. Each kind has
its letter; what follows are the facts that a queue model may want.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, assert_never

from mqworker.model.delivery import Delivery
from mqworker.model.instant import After, At, Instant
from mqworker.model.settlement import Ack, Bury, Crash, Failure, Park, Release, RetryAt, Settlement, Suspect

Parts: TypeAlias = Sequence[Any]
"""Any: texts, numbers and maps of texts, as they stand in a mail."""

_NO_FAILURE = Failure("")
_PLAIN_BY_LETTER: Mapping[str, type[Release | Crash]] = {"l": Release, "c": Crash}


def parts_of(settlement: Settlement) -> Parts:
    """The parts of a settlement: letter, fence, and the rest."""
    fence = settlement.delivery.fence
    match settlement:
        case Ack(_, result):
            return ["a", fence, result] if result else ["a", fence]
        case RetryAt(_, due, failure):
            return ["r", fence, *_instant_parts(due), *_failure_parts(failure)]
        case Park(_, due, failure, mark):
            return ["p", fence, *_instant_parts(due), *_failure_parts(failure), mark]
        case Release():
            return ["l", fence]
        case Crash() | Suspect():  # these models have no place for a suspicion
            return ["c", fence]
        case Bury(_, reason, failure, evidence):
            return ["b", fence, reason, dict(evidence), *_failure_parts(failure)]
        case _:
            assert_never(settlement)


def settlement_of(parts: Parts, held: Mapping[int, Delivery]) -> Settlement | None:
    """The settlement again, with the delivery that is held under its fence; None when none is."""
    letter, fence, *rest = parts
    delivery = held.get(fence)
    if delivery is None:
        return None
    match letter:
        case "a":
            return Ack(delivery, *rest)
        case "r":
            return RetryAt(delivery, _instant(*rest[:2]), _failure(rest[2:]))
        case "p":
            return Park(delivery, _instant(*rest[:2]), _failure(rest[2:5]) or _NO_FAILURE, *rest[5:])
        case "b":
            return Bury(delivery, rest[0], _failure(rest[2:]), evidence=rest[1])
        case _:
            return _PLAIN_BY_LETTER[letter](delivery)


def _instant_parts(instant: Instant) -> tuple[str, int]:
    match instant:
        case After(ms):
            return "after", ms
        case At(epoch_ms):
            return "at", epoch_ms
        case _:
            assert_never(instant)


def _instant(kind: str, ms: int) -> Instant:
    return After(ms) if kind == "after" else At(ms)


def _failure_parts(failure: Failure | None) -> tuple[str, ...]:
    return () if failure is None else (failure.error, failure.message, failure.traceback)


def _failure(parts: Sequence[str]) -> Failure | None:
    return Failure(*parts) if parts else None
