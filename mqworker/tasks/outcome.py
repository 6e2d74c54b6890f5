"""Outcomes of jobs: how a message ended, as a closed union, and what its waiter gets."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

from mqworker.errors import ResultNotKept, TaskCancelled, TaskExpired, TaskFailed
from mqworker.model.annotation import Rebuild
from mqworker.model.dead_letter import DeadLetter, decode_dead_letter
from mqworker.model.names import MessageId
from mqworker.model.value_codec import Value, unpack


class JobStatus(StrEnum):
    """Where a job is."""

    PLANNED = "planned"
    """A member of a workflow whose turn has not come."""
    PENDING = "pending"
    """It waits in the outbox of a database, to be moved into Redis."""
    WAITING = "waiting"
    DELAYED = "delayed"
    """It waits for an instant: the one that was asked for, or the next attempt."""
    LIMITED = "limited"
    """It waits for its limits, or for the turn of its tenant."""
    RUNNING = "running"
    """A consumer holds it; its task runs or is about to."""
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    """Given up: it rests as a dead letter, `job.retry()` puts it back in line."""
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    SKIPPED = "skipped"
    """A member of a workflow that is not to run: what it would follow from failed, or did not."""
    UNKNOWN = "unknown"
    """Unknown to the server: it ended and its result was not kept, or it never existed."""


@dataclass(frozen=True, slots=True)
class Succeeded:
    """Done, with the bytes of what the task returned."""

    result: bytes


@dataclass(frozen=True, slots=True)
class Failed:
    """Given up."""

    letter: DeadLetter


@dataclass(frozen=True, slots=True)
class Cancelled:
    """Taken out before it was done."""


@dataclass(frozen=True, slots=True)
class Expired:
    """Its deadline passed."""


@dataclass(frozen=True, slots=True)
class NotKept:
    """The server does not know it."""


Outcome = Succeeded | Failed | Cancelled | Expired | NotKept


def decode_outcome(message: MessageId, reply: bytes) -> Outcome:
    """What await.lua answered for one message."""
    match reply[:1]:
        case b"S":
            return Succeeded(reply[1:])
        case b"D":
            return Failed(decode_dead_letter(message, 0, reply[1:]))
        case b"C":
            return Cancelled()
        case _:
            return Expired()


def value_of(message: MessageId, outcome: Outcome, rebuild: Rebuild | None) -> Value:
    """What the task returned, or the error that says why there is nothing."""
    match outcome:
        case Succeeded(result):
            value = unpack(result)
            return value if rebuild is None else rebuild(value)
        case Failed(letter):
            raise _failure(letter)
        case Cancelled():
            raise TaskCancelled(f"job {message} was cancelled")
        case Expired():
            raise TaskExpired(f"job {message} was not started before its deadline")
        case NotKept():
            raise ResultNotKept(
                f"job {message} has ended without a kept result (result_ttl of its task, or long ago), "
                "or there never was such a job"
            )
        case _:
            assert_never(outcome)


def _failure(letter: DeadLetter) -> TaskFailed:
    cause = f"{letter.error}: {letter.error_message}".rstrip(": ") if letter.error else letter.reason
    return TaskFailed(
        f"job {letter.id} failed ({letter.reason}): {cause}",
        reason=letter.reason,
        error=letter.error,
        message=letter.error_message,
        traceback=letter.traceback,
    )
