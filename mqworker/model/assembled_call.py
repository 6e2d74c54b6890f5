"""Assembled calls: what a broker, which has no keys, makes of a sealed call and of sealed values.

Workflows, schedules and topics keep calls until somebody makes them. With keys such a call is a *grant*: the
producer seals the body together with what may become of it: the id it may run under, and where its input
comes from. The broker only puts the grant and the input side by side; the worker, which has the keys, checks
both and builds the call. So nobody between producer and worker can change a step, or feed it another input.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgpack

from mqworker.errors import InvalidMessage, NotVerified
from mqworker.model.envelope import array_header, with_arguments, with_first_argument
from mqworker.model.keyring import SEALED
from mqworker.model.packed_limits import DEEPEST, SEALED_EXTENSION, check_packed

UNSEALED_GRANT = SEALED + b"g"
"""Before a grant of an app that has no keys, and keeps large arguments elsewhere."""
_ASSEMBLED = SEALED + b"c"
_FAILURE = frozenset({"task", "id", "reason", "error", "message"})
"""What MemberFailure has: it comes unsigned, for it is the broker that writes it."""

Source = list[Any] | None
"""Where an input comes from (Any: it nests): None, there is none; `["call", queue, node, may it fail]`, the
result of that member; `["join", [sources]]`, the list of theirs; `["calls", queue, [nodes], may they fail]`,
the same in short; `["each", [sources]]`, the results of several, each as an argument of its own;
`["failure"]`, why a member was given up, as the broker says; `["event", topic]`."""

OpenValue = Callable[[list[str], bytes], bytes]
"""Opens a value that came from `["result", queue, id]` or `["event", topic, id]`."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Under which id a call may be made, and where its input comes from."""

    prefix: str
    """The id of the message begins so,"""
    suffix: str = ""
    """and ends so; between them stands nothing where `is_exact`."""
    is_exact: bool = True
    source: Source = None


@dataclass(frozen=True, slots=True)
class Grant:
    """A call that may be made later, by whoever holds it."""

    body: bytes
    origin: Origin

    def packed(self) -> bytes:
        """As bytes, to be sealed."""
        origin = self.origin
        packed: bytes = msgpack.packb(
            [origin.prefix, origin.suffix, origin.is_exact, origin.source, self.body]
        )
        return packed


def grant_of(payload: bytes) -> Grant:
    """The grant in plain values; raises `InvalidMessage`."""
    try:
        prefix, suffix, is_exact, source, body = msgpack.unpackb(payload, use_list=True)
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise InvalidMessage(f"a stored call cannot be read: {error!r}") from error
    return Grant(body, Origin(prefix, suffix, bool(is_exact), source))


def is_assembled(body: bytes) -> bool:
    """Whether a broker made it of sealed parts."""
    return body[:2] == _ASSEMBLED


def assembled(grant: bytes, first_argument: bytes | None) -> bytes:
    """The body of a call, of a sealed grant and a packed value for its first argument."""
    packed: bytes = msgpack.packb([grant, first_argument])
    return _ASSEMBLED + packed


def parts_of_assembled(body: bytes) -> tuple[bytes, bytes | None]:
    """The grant, and what is to be its input; raises `NotVerified`: anybody may have written this."""
    try:
        grant, first_argument = msgpack.unpackb(body[len(_ASSEMBLED) :])
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise NotVerified(f"a call that was put together cannot be read: {error!r}") from error
    if not isinstance(grant, bytes) or not isinstance(first_argument, bytes | None):
        raise NotVerified("a call that was put together does not hold what it should")
    return grant, first_argument


def as_input(value: bytes) -> bytes:
    """A packed value as it stands in an input: one that has to be opened first, as an extension."""
    if value[:1] != SEALED:
        return value
    packed: bytes = msgpack.packb(msgpack.ExtType(SEALED_EXTENSION, value))
    return packed


def called(grant: Grant, message: str, first_argument: bytes | None, open_value: OpenValue) -> bytes:
    """The body of the call that a grant and an input make; raises `NotVerified` where they do not fit.

    `open_value` refuses what is not signed, where that is asked for.
    """
    origin = grant.origin
    between = message[len(origin.prefix) : len(message) - len(origin.suffix)]
    is_named_so = message == f"{origin.prefix}{between}{origin.suffix}"
    if not is_named_so or bool(between) == origin.is_exact:
        raise NotVerified(f"the call was not made to run as {message}")
    if origin.source is None:
        return grant.body
    if first_argument is None:
        raise NotVerified("the call lacks its input")
    value = _parsed(first_argument)
    scope = between if origin.source[0] == "event" else message.partition("~")[0]
    if origin.source[0] == "each":
        sources = origin.source[1]
        return with_arguments(
            grant.body, len(sources), _opened(value, ["join", sources], scope, open_value, 0)
        )
    packed = _opened(value, origin.source, scope, open_value, 0)
    return with_first_argument(grant.body, packed)


def join_of(sources: list[Source]) -> Source:
    """The source of a list; of many calls alike, in short."""
    kinds = {(each[0], each[1], each[3]) if each and each[0] == "call" else None for each in sources}
    if len(kinds) != 1 or None in kinds:
        return ["join", sources]
    (_, queue, may_fail) = next(kind for kind in kinds if kind is not None)
    return ["calls", queue, [each[2] for each in sources if each is not None], may_fail]


def _parsed(first_argument: bytes) -> Any:  # noqa: ANN401 - what msgpack makes of it
    try:
        check_packed(first_argument)
        return msgpack.unpackb(first_argument, ext_hook=_extension, strict_map_key=False)
    except (InvalidMessage, ValueError, TypeError, msgpack.UnpackException) as error:
        raise NotVerified(f"the input of the call cannot be read: {error}") from error


@dataclass(frozen=True, slots=True)
class _Sealed:
    sealed: bytes


def _extension(code: int, data: bytes) -> _Sealed | msgpack.ExtType:
    return _Sealed(data) if code == SEALED_EXTENSION else msgpack.ExtType(code, data)


# Any: what msgpack makes of the input, looked at here.
def _opened(value: Any, source: list[Any], scope: str, open_value: OpenValue, depth: int) -> bytes:  # noqa: ANN401
    match source:
        case ["calls", queue, nodes, may_fail]:
            sources = [["call", queue, node, may_fail] for node in nodes]
            return _opened(value, ["join", sources], scope, open_value, depth)
        case ["join", sources] if isinstance(value, list) and len(value) == len(sources) and depth < DEEPEST:
            pairs = zip(value, sources, strict=True)
            parts = [_opened(*pair, scope, open_value, depth + 1) for pair in pairs]
            return array_header(len(parts)) + b"".join(parts)
        case ["call", _, _, True] if isinstance(value, dict) and value.keys() == _FAILURE:
            return _bytes_of(value)
        case ["call", queue, node, _]:
            return open_value(["result", queue, f"{scope}~{node}"], _bytes_of(value))
        case ["failure"] if isinstance(value, dict) and value.keys() == _FAILURE:
            return _bytes_of(value)
        case ["event", topic]:
            return open_value(["event", topic, scope], _bytes_of(value))
        case _:
            raise NotVerified("the input of the call is not the one that was meant")


def _bytes_of(value: Any) -> bytes:  # noqa: ANN401 - see above
    if isinstance(value, _Sealed):
        return value.sealed
    try:
        packed: bytes = msgpack.packb(value)
    except (ValueError, TypeError) as error:  # something sealed inside of something that is not
        raise NotVerified(f"the input of the call cannot be read: {error}") from error
    return packed
