"""The commands of RedisMQ: parses requests, and turns results into replies. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mqworker.errors import InvalidArgument
from mqworker.gateway import UNAVAILABLE, UNKNOWN, WRONG_TYPE, queue_name
from mqworker_services.gateways.redismq.replies import Refusal, Value

LARGEST_BATCH = 1_000
"""What one command pushes, pops or recovers at the most; popping again gets the rest."""
LARGEST_INSPECTION = 10_000
_INTEGER = re.compile(rb"-?[0-9]{1,18}")
_WRONG_TYPE = Refusal("WRONGTYPE Operation against a key holding the wrong kind of value")


class Refused(Exception):
    """The command is wrong; `key` is the queue whose type decides the reply, if any."""

    def __init__(self, text: str, key: str | None = None) -> None:
        super().__init__(text)
        self.key = key


@dataclass(frozen=True, slots=True)
class Push:
    """MQ.PUSH: several of them in a row become one call."""

    key: str
    elements: list[bytes]


@dataclass(frozen=True, slots=True)
class Pop:
    """MQ.POP; without `block_ms` it does not wait, with 0 it waits for ever."""

    count: int
    keys: list[str]
    block_ms: int | None


@dataclass(frozen=True, slots=True)
class Ask:
    """A call of the broker, whose value is the reply."""

    call: list[Any]


@dataclass(frozen=True, slots=True)
class Probe:
    """A command with wrong numbers. A queue of the wrong type is complained of first, so it is looked at."""

    key: str
    usage: str

    def value_of(self, reply: Sequence[Any]) -> Value:
        """The one complaint or the other, by what the look at the queue said."""
        return _WRONG_TYPE if not reply[0] and reply[1] == WRONG_TYPE else Refusal(self.usage)


Order = Push | Pop | Ask | Probe


def order_of(words: Sequence[bytes]) -> Order | None:
    """What an MQ command asks for, None when it is not an MQ command. The first word is in capitals."""
    parse = _PARSERS.get(words[0])
    if parse is None:
        return None
    try:
        return parse(words)
    except Refused as error:
        if error.key is None:
            raise
        return Probe(error.key, str(error))


def refusal_of(reply: Sequence[Any]) -> Refusal:
    """The error reply for a call that was answered by an error: [False, kind, text]."""
    _, kind, text = reply
    match kind:
        case "no_queue":
            return Refusal(f"EMPTYKEY {text}")
        case _ if kind == WRONG_TYPE:
            return _WRONG_TYPE
        case _ if kind == UNAVAILABLE:
            return Refusal(f"TRYAGAIN {text}")
        case _ if kind == UNKNOWN:
            return Refusal(f"UNKNOWN {text}")
        case "queue_full" | "store_full":
            return Refusal(f"OOM {text}")
        case _:
            return Refusal(f"ERR {text}")


def value_of(reply: Sequence[Any]) -> Value:
    """What a client is told of a call."""
    value: Value = reply[1] if reply[0] else refusal_of(reply)
    return value


def _push(words: Sequence[bytes]) -> Push:
    _want(words, 3)
    return Push(key_of(words[1]), list(words[2:]))


def _pop(words: Sequence[bytes]) -> Pop:
    _want(words, 3)
    count = _number(words[1], "MQ.POP count [BLOCK ms] key [key ...]", None)
    if count < 1:
        raise Refused("ERR count must be >= 1")
    if words[2].upper() != b"BLOCK" or len(words) == 3:  # noqa: PLR2004 - a queue may be called block
        return Pop(min(count, LARGEST_BATCH), [key_of(word) for word in words[2:]], None)
    _want(words, 5)
    block_ms = _number(words[3], "MQ.POP count [BLOCK ms] key [key ...]", None)
    if block_ms < 0:
        raise Refused("ERR timeout is negative")
    return Pop(min(count, LARGEST_BATCH), [key_of(word) for word in words[4:]], block_ms)


def _ack(words: Sequence[bytes]) -> Ask:
    _want(words, 3)
    return Ask(["ack", key_of(words[1]), [word.decode("utf-8", "replace") for word in words[2:]]])


def _recover(words: Sequence[bytes]) -> Ask:
    _want(words, 3)
    key, usage = key_of(words[1]), "MQ.RECOVER key count elapsed"
    if len(words) != 4:  # noqa: PLR2004 - as in the usage
        raise Refused(f"ERR usage: {usage}", key)
    return Ask(["recover", key, _number(words[2], usage, key), _number(words[3], usage, key)])


def _inspect(words: Sequence[bytes]) -> Ask:
    _want(words, 4)
    key, usage = key_of(words[1]), "MQ.INSPECT key [PENDING] start count, where count >= 1"
    is_pending = words[2].upper() == b"PENDING"
    numbers = [_number(word, usage, key) for word in words[3 if is_pending else 2 :]]
    if len(numbers) != 2 or numbers[1] < 1:  # noqa: PLR2004 - as in the usage
        raise Refused(f"ERR usage: {usage}", key)
    return Ask(
        ["inspect_pending" if is_pending else "inspect", key, numbers[0], min(numbers[1], LARGEST_INSPECTION)]
    )


_PARSERS: Mapping[bytes, Callable[[Sequence[bytes]], Order]] = {
    b"MQ.PUSH": _push,
    b"MQ.POP": _pop,
    b"MQ.ACK": _ack,
    b"MQ.RECOVER": _recover,
    b"MQ.INSPECT": _inspect,
}


def _want(words: Sequence[bytes], count: int) -> None:
    if len(words) < count:
        raise Refused(f"ERR wrong number of arguments for '{words[0].decode().lower()}' command")


def key_of(word: bytes) -> str:
    """The queue that a word names, as it stands in keys; the node refuses what names none."""
    text = word.decode("utf-8", "replace")
    try:
        return queue_name(text)
    except InvalidArgument:
        return text


def _number(word: bytes, usage: str, key: str | None) -> int:
    if not _INTEGER.fullmatch(word):
        raise Refused(f"ERR usage: {usage}; {word[:32]!r} is not a whole number", key)
    return int(word)
