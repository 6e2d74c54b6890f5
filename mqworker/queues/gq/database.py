"""What gq needs of a database: one protocol, spoken by Redis (`gq_redis`) and by SQL (`gq_sql`).

Whatever fails raises `StoreUnavailable` and may simply be called again, with the same arguments: pushes and
claims are recognised, the rest changes nothing the second time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol, TypeAlias

from mqworker.errors import InvalidArgument, MqworkerError
from mqworker.model.instant import After, At, Instant
from mqworker.model.message import LARGEST_BODY_BYTES
from mqworker.model.names import shown
from mqworker.queues.gq.rules import (
    GqClaim,
    GqConsumerRecord,
    GqHeld,
    GqLiveness,
    GqMessage,
    GqRecord,
    GqResult,
    GqStatus,
    GqTerms,
    GqView,
)

Deadline: TypeAlias = datetime | timedelta | int | float
"""A moment (with a time zone, or seconds since 1970), or so long from now by the database's clock."""


class GqNotRegistered(MqworkerError):
    """Register again: the consumer was silent for too long, and may not take messages before that."""


@dataclass(frozen=True, slots=True)
class GqOutgoing:
    """A message to be pushed."""

    payload: bytes
    deadline: Instant | None = None


class GqStore(Protocol):
    """The statements of gq on one queue."""

    def prepare_push(self, messages: Sequence[GqOutgoing]) -> Callable[[], list[int]]:
        """A push that may be tried until it succeeds: the batch is stored once, in order, and has ids."""

    def push_within(self, connection: object, messages: Sequence[GqOutgoing]) -> list[int]:
        """Push in the caller's transaction; visible when it commits. SQL only."""

    def register(self, consumer: str) -> None:
        """Put a consumer at the end of the order of birth."""

    def beat(self, consumer: str, liveness: GqLiveness) -> bool:
        """A sign of life; False when the consumer was given up before."""

    def prune(self, liveness: GqLiveness, terms: GqTerms) -> list[str]:
        """Delete dead consumers, fail what expired, drop what was kept long enough; who was deleted."""

    def leave(self, consumer: str) -> None:
        """Delete a consumer's record."""

    def view(self, consumer: str, liveness: GqLiveness) -> GqView:
        """The consumer's place among the active; raises `GqNotRegistered`."""

    def pop(self, claim: GqClaim, count: int, liveness: GqLiveness, terms: GqTerms) -> list[GqMessage]:
        """Select and claim in one step, after a look whether the consumer lives (`GqNotRegistered`)."""

    def select(self, view: GqView, count: int, terms: GqTerms) -> list[int]:
        """Ids that a consumer with this view would claim; the view may be out of date."""

    def claim(
        self, claim: GqClaim, ids: Sequence[int], liveness: GqLiveness, terms: GqTerms
    ) -> list[GqMessage]:
        """Take those that nobody took meanwhile; raises `GqNotRegistered`."""

    def adopt(self, claim: GqClaim, family: str, held: Sequence[GqHeld], liveness: GqLiveness) -> list[int]:
        """Take over what consumers of the same family of names hold; returns it (`GqNotRegistered`)."""

    def retire(self, consumer: str, terms: GqTerms) -> None:
        """Delete the record of a consumer whose process ended, and do with what it held as with the dead."""

    def settle(self, results: Sequence[GqResult], terms: GqTerms) -> list[int]:
        """Write results; the ids of messages that another consumer has by now, which are not changed."""

    def find(self, message: int) -> GqRecord | None:
        """A message as it is stored; None when there is none, or none any more."""

    def counts(self) -> Mapping[GqStatus, int]:
        """How many messages are stored in each status."""

    def consumers(self) -> list[GqConsumerRecord]:
        """All records of consumers, in the order of birth."""

    def close(self) -> None:
        """Close what was opened for this store."""


def outgoing(payload: bytes | str, deadline: Deadline | None) -> GqOutgoing:
    """A message as a caller gives it, checked."""
    if not isinstance(payload, bytes | str):
        raise InvalidArgument(f"payload is {shown(payload)}; accepted are bytes or text")
    encoded = payload.encode() if isinstance(payload, str) else payload
    if len(encoded) > LARGEST_BODY_BYTES:
        raise InvalidArgument(f"payload is {len(encoded):,} bytes; accepted are up to {LARGEST_BODY_BYTES:,}")
    return GqOutgoing(encoded, None if deadline is None else _instant(deadline))


def _instant(deadline: Deadline) -> Instant:
    """A deadline that has passed is accepted: the message is stored as expired."""
    match deadline:
        case timedelta():
            return After(max(0, math.ceil(deadline / timedelta(milliseconds=1))))
        case datetime() if deadline.tzinfo is not None:
            return At(max(0, int(deadline.timestamp() * 1000)))
        case int() | float() if not isinstance(deadline, bool) and math.isfinite(deadline):
            return At(max(0, int(deadline * 1000)))
        case _:
            raise InvalidArgument(
                f"deadline is {shown(deadline)}; accepted are a datetime with a time zone, "
                "seconds since 1970, or a timedelta from now"
            )
