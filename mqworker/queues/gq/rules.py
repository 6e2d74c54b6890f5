"""The rules of gq, as pure decisions: who is alive, whose a message is, and what becomes of it.

Redis carries them out in scripts/gq_*.lua, SQL in statements built on these functions; tests/gq compares both
with this page. Times are milliseconds since 1970 by the clock of the database.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from mqworker.errors import InvalidArgument
from mqworker.model.names import shown, whole_number

LARGEST_BATCH = 1_000
"""Messages in one push or pop: one statement must stay within the limits of every database."""

SHORTEST_LEASE_MS = 1_000

DELIVERIES_TOLD_APART = 1_024
"""A fence is the number of a message and which delivery of it this is; after so many, that starts anew."""
LARGEST_ID = 2**53

_LONGEST_MS = 2**53
# Short enough for PostgreSQL's 63 characters, and the same in every database whatever it does to case.
_SQL_NAME = re.compile(r"[a-z0-9_]{1,40}", re.ASCII)


class GqStatus(StrEnum):
    """Where a message is in its life."""

    QUEUED = "queued"
    CONSUMED = "consumed"
    PROCESSED = "processed"
    FAILED = "failed"


class Guarantee(StrEnum):
    """What a deadline means: give up after it, or let somebody else try."""

    AT_MOST_ONCE = "at_most_once"
    AT_LEAST_ONCE = "at_least_once"


@dataclass(frozen=True, slots=True)
class GqLiveness:
    """How a consumer shows that it lives, and when it is given up: H, D and the interval of the document."""

    interval_ms: int = 2_000
    missed_beats: int = 2
    """D: one that missed more than so many heartbeats is dead."""
    check_every: int = 1
    """H: after so many heartbeats of its own a consumer deletes the dead and looks whether it is one."""

    def __post_init__(self) -> None:
        whole_number("interval_ms", self.interval_ms, least=1, most=_LONGEST_MS)
        whole_number("missed_beats", self.missed_beats, least=0, most=1_000_000)
        whole_number("check_every", self.check_every, least=1, most=1_000_000)

    @property
    def dead_after_ms(self) -> int:
        """The shortest silence that means death."""
        return self.interval_ms * (self.missed_beats + 1)

    def is_dead(self, last_beat_at_ms: int, now_ms: int) -> bool:
        """Whether more than D heartbeats were missed; a clock that was set back kills nobody."""
        return (now_ms - last_beat_at_ms) // self.interval_ms > self.missed_beats


@dataclass(frozen=True, slots=True)
class GqRetention:
    """How long ended messages stay readable: both bounds hold."""

    ms: int = 24 * 3600 * 1000
    count: int = 10_000

    def __post_init__(self) -> None:
        whole_number("retain_done ms", self.ms, least=0, most=_LONGEST_MS)
        whole_number("retain_done count", self.count, least=0, most=_LONGEST_MS)


@dataclass(frozen=True, slots=True)
class GqTerms:
    """What a consumer agreed to about deadlines, errors and the dead. Consumers of a queue should agree."""

    guarantee: Guarantee = Guarantee.AT_LEAST_ONCE
    max_retries: int | None = None
    reclaim_dead: bool = False
    """Whether what a dead consumer held is queued again when its record is deleted."""
    steal_after_ms: int | None = None
    """Work conserving: with an empty partition, take from others what waited for this long; None: never."""
    fail_expired: bool = False
    """At least once: whether an error after the deadline fails the message (at most once it always does)."""
    retention: GqRetention = GqRetention()

    def __post_init__(self) -> None:
        if self.max_retries is not None:
            whole_number("max_retries", self.max_retries, least=0, most=1_000_000)
        if self.reclaim_dead and self.is_at_most_once:
            raise InvalidArgument("reclaim_dead delivers again; accepted with guarantee 'at_least_once' only")

    @property
    def is_at_most_once(self) -> bool:
        """Whether a deadline ends a message."""
        return self.guarantee is Guarantee.AT_MOST_ONCE

    @property
    def error_fails_expired(self) -> bool:
        """Whether an error after the deadline is the end."""
        return self.is_at_most_once or self.fail_expired

    def has_tries_left(self, attempts: int) -> bool:
        """Whether a message that was delivered so often may be delivered once more."""
        return self.max_retries is None or attempts <= self.max_retries


@dataclass(frozen=True, slots=True)
class GqView:
    """What a consumer knows about the others: its index in the order of birth, and how many are active."""

    index: int
    count: int

    def __post_init__(self) -> None:
        whole_number("count of active consumers", self.count, least=1, most=1_000_000)
        whole_number("index", self.index, least=0, most=self.count - 1)

    def has(self, message_id: int) -> bool:
        """Whether the message lies in this consumer's partition."""
        return message_id % self.count == self.index


@dataclass(frozen=True, slots=True)
class GqConsumerRecord:
    """A registered consumer."""

    uuid: str
    last_beat_at_ms: int


@dataclass(frozen=True, slots=True)
class GqClaim:
    """The right under which messages were taken: whose it is, and which of its claims."""

    consumer: str
    number: int
    is_repeated: bool = False
    """Whether it may have been carried out before, its answer being lost."""


@dataclass(frozen=True, slots=True)
class GqMessage:
    """A message that a consumer holds."""

    id: int
    payload: bytes
    attempt: int
    """The number of this delivery, from 1."""
    created_at_ms: int
    deadline_at_ms: int | None
    claim: GqClaim


@dataclass(frozen=True, slots=True)
class GqHeld:
    """A delivery by its fence alone: a message, and which of the deliveries that are told apart."""

    id: int
    delivery: int

    @classmethod
    def of(cls, fence: int) -> GqHeld:
        """What a fence stands for."""
        return cls(*divmod(fence, DELIVERIES_TOLD_APART))

    @property
    def fence(self) -> int:
        """It grows with each delivery of a message, whichever node has it."""
        return self.id * DELIVERIES_TOLD_APART + self.delivery


def fence_of(message: GqMessage) -> int:
    """The fence of a delivery; any process that knows it can take the delivery over (`adopt`)."""
    return GqHeld(message.id, message.attempt % DELIVERIES_TOLD_APART).fence


@dataclass(frozen=True, slots=True)
class GqRecord:
    """A message as it is stored."""

    id: int
    payload: bytes
    status: GqStatus
    created_at_ms: int
    deadline_at_ms: int | None
    attempts: int
    consumer: str | None
    """Who has it, or had it last."""
    reason: str = ""
    """Why it failed: 'deadline', 'error' or 'retries'."""


@dataclass(frozen=True, slots=True)
class GqResult:
    """What the callback made of a message."""

    message: GqMessage
    is_ok: bool


def guarantee_named(value: object) -> Guarantee:
    """The guarantee of this name; raises `InvalidArgument`."""
    try:
        return Guarantee(str(value))
    except ValueError:
        accepted = " or ".join(repr(str(each)) for each in Guarantee)
        raise InvalidArgument(f"guarantee is {shown(value)}; accepted is {accepted}") from None


def sql_queue_name(queue: str) -> str:
    """The name of a queue that becomes part of the names of its tables; raises `InvalidArgument`."""
    if not _SQL_NAME.fullmatch(queue):
        raise InvalidArgument(f"queue is {shown(queue)}; accepted on SQL are 1 to 40 of a-z 0-9 _")
    return queue


def view_of(
    consumers: Sequence[GqConsumerRecord], uuid: str, liveness: GqLiveness, now_ms: int
) -> GqView | None:
    """A consumer's place among the active, all in the order of birth; None when it is not among them."""
    active = [each.uuid for each in consumers if not liveness.is_dead(each.last_beat_at_ms, now_ms)]
    return GqView(active.index(uuid), len(active)) if uuid in active else None


def has_passed(deadline_at_ms: int | None, now_ms: int) -> bool:
    """Whether a deadline is over; it holds until its last millisecond has come."""
    return deadline_at_ms is not None and deadline_at_ms <= now_ms


def status_after_ok() -> GqStatus:
    """Done is done, whatever the deadline says."""
    return GqStatus.PROCESSED


def status_after_error(
    deadline_at_ms: int | None, attempts: int, terms: GqTerms, now_ms: int
) -> tuple[GqStatus, str]:
    """What becomes of a message whose callback raised, and why."""
    if terms.error_fails_expired and has_passed(deadline_at_ms, now_ms):
        return GqStatus.FAILED, "error"
    if not terms.has_tries_left(attempts):
        return GqStatus.FAILED, "retries"
    return GqStatus.QUEUED, ""


def status_after_deadline(status: GqStatus, attempts: int, terms: GqTerms) -> tuple[GqStatus, str]:
    """What becomes of a message at its deadline: queued stands for 'anyone may claim it'."""
    if status in {GqStatus.PROCESSED, GqStatus.FAILED}:
        return status, ""
    if terms.is_at_most_once:
        return GqStatus.FAILED, "deadline"
    if not terms.has_tries_left(attempts):
        return GqStatus.FAILED, "retries"
    return GqStatus.QUEUED, ""


def status_after_death(attempts: int, terms: GqTerms) -> tuple[GqStatus, str]:
    """What becomes of a message when the record of the consumer that holds it is deleted."""
    if not terms.reclaim_dead:
        return GqStatus.CONSUMED, ""
    if not terms.has_tries_left(attempts):
        return GqStatus.FAILED, "retries"
    return GqStatus.QUEUED, ""


def lease_ends_at_ms(created_at_ms: int, deadline_at_ms: int | None, now_ms: int) -> int | None:
    """Until when a claim made now is left alone: to the deadline; if that is over, for as long as it was."""
    if deadline_at_ms is None or deadline_at_ms > now_ms:
        return deadline_at_ms
    return now_ms + max(SHORTEST_LEASE_MS, deadline_at_ms - created_at_ms)
