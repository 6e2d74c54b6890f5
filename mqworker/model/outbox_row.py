"""The call of a row in the outbox of a database: a message as bytes, and read back by one bounded parser.

A row waits: it may have been written by a version before this one, or by another program. Its delay and its
deadline count from when it was written, so they are shortened by its age when it is moved.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgpack

from mqworker.errors import InvalidArgument, InvalidMessage
from mqworker.model.guard import Guard, GuardMode
from mqworker.model.instant import After, At, Instant
from mqworker.model.message import LARGEST_BODY_BYTES, Message
from mqworker.model.names import MessageId, TaskName, message_id, task_name

VERSION = 1
LARGEST_CALL_BYTES = LARGEST_BODY_BYTES + 16_384
"""The body, and what stands beside it."""
_LIMITS = re.compile(r"[!-~]{1,4096}", re.ASCII)
_READABLE = (ValueError, TypeError, LookupError, RecursionError, msgpack.UnpackException)


def encode_row(message: Message) -> bytes:
    """The message as it stands in a row."""
    guard = message.guard
    packed: bytes = msgpack.packb(
        [
            VERSION,
            message.id,
            message.task,
            message.body,
            message.priority,
            _instant_parts(message.due),
            _instant_parts(message.deadline),
            None if guard is None else [guard.mode.value, guard.key, guard.ttl_ms],
            message.max_crashes,
            message.limits,
        ]
    )
    return packed


def decode_row(call: object) -> Message:
    """The message of a row; raises `InvalidMessage` for anything else."""
    data = bytes(call) if isinstance(call, bytes | bytearray | memoryview) else None
    if data is None or len(data) > LARGEST_CALL_BYTES:
        raise InvalidMessage("the call is not bytes, or too many of them")
    try:
        version, *parts = msgpack.unpackb(data)
    except _READABLE as error:
        raise InvalidMessage(f"the call cannot be read ({type(error).__name__})") from error
    if version != VERSION:
        raise InvalidMessage(f"the call has version {version!r:.20}; this node reads {VERSION}")
    try:
        return _message(parts)
    except InvalidArgument as error:
        raise InvalidMessage(str(error)) from error
    except _READABLE as error:
        raise InvalidMessage(f"the call has parts that none has ({type(error).__name__})") from error


def aged(message: Message, age_ms: int) -> Message:
    """The same after so much of its time has passed."""
    if not isinstance(message.due, After) and not isinstance(message.deadline, After):
        return message
    return replace(message, due=_later(message.due, age_ms), deadline=_later(message.deadline, age_ms))


def _message(parts: Sequence[Any]) -> Message:  # Any: they are looked at one by one
    id_, task, body, priority, due, deadline, guard, max_crashes, limits = parts
    if limits is not None and not (isinstance(limits, str) and _LIMITS.fullmatch(limits)):
        raise InvalidArgument("limits are no text of limits")
    return Message(
        MessageId(message_id(id_)),
        body,
        TaskName(task_name(task)),
        priority,
        _instant(due),
        _instant(deadline),
        None if guard is None else _guard(*guard),
        max_crashes,
        limits,
    )


def _guard(mode: str, key: str, ttl_ms: int) -> Guard:
    if type(ttl_ms) is not int or ttl_ms < 0 or not isinstance(key, str):
        raise InvalidArgument("the guard is none of ours")
    return Guard(GuardMode(mode), key, ttl_ms)


def _instant_parts(instant: Instant | None) -> list[Any] | None:
    match instant:
        case None:
            return None
        case After(ms):
            return ["after", ms]
        case At(epoch_ms):
            return ["at", epoch_ms]


def _instant(parts: Any) -> Instant | None:  # noqa: ANN401 - as above
    match parts:
        case None:
            return None
        case ["after", ms]:
            return After(ms)
        case ["at", epoch_ms]:
            return At(epoch_ms)
    raise InvalidArgument("an instant is none")


def _later(instant: Instant | None, age_ms: int) -> Instant | None:
    return After(max(0, instant.ms - max(0, age_ms))) if isinstance(instant, After) else instant
