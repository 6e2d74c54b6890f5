"""Dead letters: messages that were given up, with the reason and what is known about it."""

import json
from dataclasses import dataclass, field
from typing import Any

from mqworker.errors import InvalidMessage
from mqworker.model.delivery import Delivery
from mqworker.model.names import MessageId
from mqworker.model.record import decode_record
from mqworker.model.settlement import Bury

_LONGEST_TRACEBACK = 16_384


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A buried message; `message` is None when its bytes could not be read."""

    id: MessageId
    buried_at_ms: int
    reason: str
    error: str
    error_message: str
    traceback: str
    evidence: dict[str, str] = field(default_factory=dict)
    message: Delivery | None = None


def encode_letter(settlement: Bury) -> bytes:
    """The reason and the evidence of a burial, as it is stored before the record."""
    letter: dict[str, object] = {"reason": settlement.reason}
    if settlement.failure is not None:
        letter["error"] = settlement.failure.error
        letter["error_msg"] = settlement.failure.message
        letter["traceback"] = settlement.failure.traceback[-_LONGEST_TRACEBACK:]
    if settlement.evidence:
        letter["evidence"] = settlement.evidence
    return json.dumps(letter).encode()


def decode_dead_letter(message: MessageId, buried_at_ms: int, stored: bytes) -> DeadLetter:
    """What is stored of a dead letter: '<length> <letter><record>'."""
    letter, record = _opened(stored)
    try:
        delivery = decode_record(record, fence=0)
    except InvalidMessage:
        delivery = None
    return DeadLetter(
        id=message,
        buried_at_ms=buried_at_ms,
        reason=letter.get("reason", "undecodable"),
        error=letter.get("error", ""),
        error_message=letter.get("error_msg", ""),
        traceback=letter.get("traceback", ""),
        evidence=letter.get("evidence", {}),
        message=delivery,
    )


def _opened(stored: bytes) -> tuple[dict[str, Any], bytes]:
    """The letter and the record; foreign bytes are a record without a letter."""
    length, _, rest = stored.partition(b" ")
    try:
        letter = json.loads(rest[: int(length)])
    except ValueError:
        return {}, stored
    return (letter, rest[int(length) :]) if isinstance(letter, dict) else ({}, stored)
