"""Outcomes of workflow members: ids, what is kept of each end, and failures as values."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import assert_never

from mqworker.model.annotation import Rebuild
from mqworker.model.dead_letter import decode_dead_letter
from mqworker.model.names import MessageId
from mqworker.model.value_codec import Value, unpack
from mqworker.tasks.outcome import Cancelled, Expired, Failed, NotKept, Outcome, Succeeded

NIL = b"\xc0"
"""None, packed: what a member that was ended by a foreign ack gives."""


@dataclass(frozen=True, slots=True)
class MemberFailure:
    """Stands in the place of a result when a member failed and the workflow collects failures.

    A callback gets it as a dict, or as this where it is annotated so: `list[int | MemberFailure]`.
    """

    task: str
    id: str
    reason: str
    error: str = ""
    message: str = ""


def member_id(workflow: str, node: int | str) -> MessageId:
    """The id of a member's message."""
    return MessageId(f"{workflow}~{node}")


def outcome_of(workflow: str, node: int | str, kept: bytes | None) -> Outcome:
    """What is kept of a member's end: 'S<result>', 'D<letter>', 'C' or 'E'."""
    match (kept or b"")[:1]:
        case b"S":
            return Succeeded((kept or b"")[1:] or NIL)
        case b"D":
            letter = (kept or b"")[1:]
            return Failed(decode_dead_letter(member_id(workflow, node), 0, b"%d %b" % (len(letter), letter)))
        case b"C":
            return Cancelled()
        case b"E":
            return Expired()
        case _:
            return NotKept()


def value_in(outcome: Succeeded, rebuild: Rebuild | None) -> Value:
    """What the task returned."""
    value = unpack(outcome.result)
    return value if rebuild is None else rebuild(value)


def member_failure(
    workflow: str, node: int | str, task: str, outcome: Failed | Cancelled | Expired | NotKept
) -> dict[str, str]:
    """A failure as a plain value: the fields of `MemberFailure`."""
    known = {"task": task, "id": member_id(workflow, node)}
    match outcome:
        case Failed(letter):
            return known | {
                "reason": letter.reason,
                "error": letter.error,
                "message": letter.error_message,
            }
        case Cancelled():
            return known | {"reason": "cancelled", "error": "", "message": ""}
        case Expired():
            return known | {"reason": "expired", "error": "", "message": ""}
        case NotKept():
            return known | {"reason": "unknown", "error": "", "message": ""}
        case _:
            assert_never(outcome)


def failed_outcome(reason: str, error: str, message: str) -> bytes:
    """The outcome of a member that failed before it could be enqueued."""
    return b"D" + json.dumps({"reason": reason, "error": error, "error_msg": message}).encode()
