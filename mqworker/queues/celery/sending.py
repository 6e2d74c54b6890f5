"""A call of ours as a message of Celery, so that Celery's workers can run it as well.

What would come back changed (a set, which JSON has as a list; a sealed call) goes along as it is, in a header
that only we read.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from mqworker.errors import InvalidArgument, InvalidMessage
from mqworker.model.envelope import Envelope, decode_call
from mqworker.model.instant import After, Instant
from mqworker.model.message import Message
from mqworker.queues.celery.message import EXACT_BODY, read_message
from mqworker.queues.celery.outgoing import message_text, protocol_headers

_UNTOLD: Final = "..."
"""Arguments may be secret; these texts are for people who look at Celery."""


def text_of(message: Message, queue: str, now_ms: int) -> str:
    """The text that goes into Celery's list; raises `InvalidArgument` for what Celery has no place for."""
    for wish in ("priority", "guard", "limits"):
        if getattr(message, wish):
            raise InvalidArgument(f"{wish}: a Celery queue offers none; use a work queue for that")
    call = _call_in(message.body)
    headers = protocol_headers(
        task=message.task,
        task_id=message.id,
        eta=_moment(message.due, now_ms),
        expires=_moment(message.deadline, now_ms),
        timelimit=[None, None if call.timeout_ms is None else call.timeout_ms / 1000],
        argsrepr=_UNTOLD,
        kwargsrepr=_UNTOLD,
    )
    embed = dict.fromkeys(("callbacks", "errbacks", "chain", "chord"))
    headers = {**call.headers, **headers}
    text = _text(headers, [call.args, call.kwargs, embed], queue)
    if text is not None and read_message(text.encode()).body == message.body:
        return text
    exact = base64.b64encode(message.body).decode()
    arguments = [[], {}] if text is None else [call.args, call.kwargs]
    return message_text({**headers, EXACT_BODY: exact}, [*arguments, embed], queue=queue)


def _call_in(body: bytes) -> Envelope:
    """The call, for Celery's workers; a body that is sealed, or none, is for ours alone."""
    try:
        return decode_call(body)
    except InvalidMessage:
        return Envelope([], {}, {})


def _text(headers: Mapping[str, object], body: list[object], queue: str) -> str | None:
    """None where JSON has no words for an argument."""
    try:
        return message_text(headers, body, queue=queue)
    except (TypeError, ValueError):
        return None


def _moment(instant: Instant | None, now_ms: int) -> str | None:
    if instant is None:
        return None
    epoch_ms = now_ms + instant.ms if isinstance(instant, After) else instant.epoch_ms
    return datetime.fromtimestamp(epoch_ms / 1000, UTC).isoformat()
