"""RSMQ scripts as calls: arguments in the order of each contract, replies as values or refusals."""

from __future__ import annotations

import os
import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeVar

from mqworker.queues.rsmq import arguments as accept
from mqworker.queues.rsmq.arguments import refusal
from mqworker.queues.rsmq.keys import RsmqKeys
from mqworker.store.script import Call, RawReply, scripts_of

script = scripts_of(__package__)

ReplyT = TypeVar("ReplyT")

_RANDOM_CHARACTERS = 22
_STAMP_CHARACTERS = 10
_ALPHABET = (string.ascii_letters + string.digits).encode()
# One of 256 bytes becomes one of 62 characters: not quite evenly, which 130 random bits can bear.
_CHARACTER_BY_BYTE = bytes(_ALPHABET[byte % len(_ALPHABET)] for byte in range(256))


@dataclass(frozen=True, slots=True)
class RsmqOptions:
    """What every call carries along."""

    namespace: str = "rsmq"
    realtime: bool = False
    """Whether each send tells the channel `<ns>:rt:<queue>` how many messages the queue holds."""
    maxsize_unit: Literal["bytes", "utf16"] = "bytes"
    """What maxsize counts: bytes, as documented, or UTF-16 code units, as the Node.js client does."""


@dataclass(slots=True)  # not frozen: made for every message, and frozen ones cost twice as much
class RsmqMessage:
    """A received message. Treat it as read-only; the names are those of the RSMQ document and clients."""

    id: str
    message: bytes
    rc: int
    """How many times it was received, this one included."""
    fr: int
    """When it was received first, in milliseconds since 1970."""

    @property
    def sent(self) -> float:
        """When it was sent, in milliseconds since 1970, as its id tells; 0 for an id that tells nothing."""
        return sent_ms(self.id)

    @property
    def ts(self) -> int:
        """What PyRSMQ and rsmqctl call `fr`."""
        return self.fr


@dataclass(frozen=True, slots=True)
class RsmqAttributes:
    """What is known about a queue. Times are in seconds; foreign clients may have stored fractions."""

    vt: float
    delay: float
    maxsize: int
    totalrecv: int
    totalsent: int
    created: int
    modified: int
    msgs: int
    hiddenmsgs: int


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """A message to be sent, and when it is due as scripts read it: '+ms', 'ms', '' for the queue's delay."""

    message: bytes
    due: str = ""


class RsmqCalls:
    """Builds calls for all queues of one namespace; pure."""

    def __init__(self, options: RsmqOptions) -> None:
        accept.namespace(options.namespace)
        self._options = options

    def keys(self, queue: str) -> RsmqKeys:
        """The keys of a queue."""
        return _keys(self._options.namespace, queue)

    def create_queue(self, queue: str, vt: int, delay: int, maxsize: int) -> Call[None]:
        """Make a queue, or complete one that is half made; refused when there is one."""
        return Call(
            script("create_queue"),
            self.keys(queue).with_registry,
            (vt, delay, maxsize, "anew"),
            checked(queue, lambda _: None),
            is_numbered=True,
        )

    def ensure_queue(self, queue: str, vt: int, delay: int, maxsize: int) -> Call[bool]:
        """Make a queue where there is none; whether it was made."""
        return Call(
            script("create_queue"),
            self.keys(queue).with_registry,
            (vt, delay, maxsize, "anew"),
            lambda reply: bool(reply == 1),
            is_numbered=True,
        )

    def mend_queue(self, queue: str, vt: int, delay: int, maxsize: int) -> Call[bool]:
        """Complete a queue that is half made; whether there is one now."""
        return Call(
            script("create_queue"),
            self.keys(queue).with_registry,
            (vt, delay, maxsize, "mend"),
            lambda reply: bool(reply != b"queueNotFound"),
            is_numbered=True,
        )

    def delete_queue(self, queue: str) -> Call[None]:
        """Delete a queue with its messages."""
        return Call(
            script("delete_queue"),
            self.keys(queue).with_registry,
            (),
            checked(queue, lambda _: None),
            is_numbered=True,
        )

    def get_attributes(self, queue: str) -> Call[RsmqAttributes]:
        """What is known about a queue."""
        return Call(script("get_attributes"), self.keys(queue).shared, (), checked(queue, _attributes))

    def set_attributes(self, queue: str, values: dict[str, int]) -> Call[RsmqAttributes]:
        """Change some attributes; what is known afterwards."""
        arguments = [part for pair in values.items() for part in pair]
        return Call(
            script("set_attributes"),
            self.keys(queue).shared,
            tuple(arguments),
            checked(queue, _attributes),
            is_numbered=True,
        )

    def send(self, queue: str, outgoing: Sequence[OutgoingMessage]) -> Call[list[str]]:
        """Store messages, whole or not at all; their ids."""
        keys = self.keys(queue)
        ends = _random_ends(len(outgoing))
        arguments: list[str | bytes | int] = [
            max(self._size(each.message) for each in outgoing),
            keys.channel if self._options.realtime else "",
        ]
        for end, each in zip(ends, outgoing, strict=True):
            arguments += (end, each.due, each.message)
        return Call(
            script("send"),
            keys.shared,
            tuple(arguments),
            checked(queue, lambda reply: [reply[0].decode() + end for end in ends]),
            is_numbered=True,
        )

    def receive(self, queue: str, count: int, hidden_ms: int | None) -> Call[list[RsmqMessage]]:
        """Take messages and hide them, for the queue's vt where nothing else is said."""
        arguments = (count, "" if hidden_ms is None else hidden_ms)
        return Call(
            script("receive"),
            self.keys(queue).shared,
            arguments,
            checked(queue, received_messages),
            is_numbered=True,
        )

    def pop(self, queue: str) -> Call[list[RsmqMessage]]:
        """Take a message and delete it; one or none."""
        return Call(
            script("pop"),
            self.keys(queue).shared,
            (),
            checked(queue, received_messages),
            is_numbered=True,
        )

    def delete(self, queue: str, ids: Sequence[str]) -> Call[list[bool]]:
        """Delete messages; which of them were there."""
        return Call(
            script("delete"),
            self.keys(queue).shared,
            tuple(ids),
            lambda reply: [verdict == 1 for verdict in reply],
            is_numbered=True,
        )

    def change_visibility(self, queue: str, message: str, hidden_ms: int) -> Call[bool]:
        """Hide a message for so long from now; whether there is one."""
        return Call(
            script("change_visibility"),
            self.keys(queue).shared,
            (message, hidden_ms),
            checked(queue, lambda reply: bool(reply == 1)),
            is_numbered=True,
        )

    def _size(self, message: bytes) -> int:
        if self._options.maxsize_unit == "bytes":
            return len(message)
        return len(message.decode(errors="replace").encode("utf-16-le")) // 2


def received_messages(reply: RawReply) -> list[RsmqMessage]:
    """What the scripts that receive answer, as values."""
    return [
        RsmqMessage(id_.decode(errors="backslashreplace"), message, received, int(float(first_at)))
        for id_, message, received, first_at in reply
    ]


def sent_ms(message: str) -> float:
    """The time of sending that an id tells, to the microsecond; 0 for an id of another kind."""
    try:
        return int(message[:_STAMP_CHARACTERS], 36) / 1000
    except ValueError:
        return 0.0


@lru_cache(maxsize=1024)
def _keys(namespace: str, queue: str) -> RsmqKeys:
    return RsmqKeys.of(namespace, queue)


def checked(queue: str, decode: Callable[[RawReply], ReplyT]) -> Callable[[RawReply], ReplyT]:
    """Raises refusals, which scripts answer by name, as text; anything else is a number or a list."""

    def decode_or_raise(reply: RawReply) -> ReplyT:
        if isinstance(reply, bytes):
            raise refusal(reply.decode(), queue)
        return decode(reply)

    return decode_or_raise


def _random_ends(count: int) -> list[str]:
    """Ends of ids, ascending: messages of one batch share one time and are delivered in this order."""
    characters = os.urandom(count * _RANDOM_CHARACTERS).translate(_CHARACTER_BY_BYTE).decode()
    return sorted(
        characters[start : start + _RANDOM_CHARACTERS]
        for start in range(0, len(characters), _RANDOM_CHARACTERS)
    )


def _attributes(reply: RawReply) -> RsmqAttributes:
    vt, delay, *rest = [0.0 if value is None else float(value) for value in reply]
    return RsmqAttributes(_whole_if_possible(vt), _whole_if_possible(delay), *map(int, rest))


def _whole_if_possible(number: float) -> float:
    return int(number) if number.is_integer() else number
