"""Values as bytes: everything msgpack has, and datetime, date, Decimal, UUID, set, frozenset and tuple.

A dataclass travels as a map of its fields and an enum as its value, and foreign_types.py knows some more;
annotation.py rebuilds them where the receiver says what it expects. Nothing in the bytes can name code. What
is refused here is explained by value_problem.py.
"""

import dataclasses
import enum
import re
import threading
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, TypeAlias, cast
from uuid import UUID

import msgpack

from mqworker.errors import InvalidMessage, MqworkerError
from mqworker.model.foreign_types import NOT_LOWERED, lowered
from mqworker.model.packed_limits import DEEPEST, check_packed

Value: TypeAlias = Any
"""Any: a value of the user's, as it goes in and comes out."""

ACCEPTED = (
    "None, bool, int of 64 bits, finite float, str, bytes, list, tuple, dict, set, frozenset, datetime, "
    "date, Decimal, UUID; dataclass, enum, NamedTuple, timedelta, Path, Pydantic model, msgspec struct, "
    "and what app.codec(...) was told of"
)

PACKED_NONE = b"\xc0"

_DATETIME, _DATE, _DECIMAL, _UUID, _SET, _FROZENSET, _TUPLE = range(1, 8)
_PLAIN_TYPES: tuple[type[Any], ...] = (dict, list, str, int, float)
# A double is 0xcb and eight bytes, a single 0xca and four, which others may write; all ones in the exponent
# means infinite or not a number. Other bytes may look like one: then the slow check finds nothing.
_NOT_FINITE = re.compile(rb"\xcb[\x7f\xff][\xf0-\xff]|\xca[\x7f\xff][\x80-\xff]", re.DOTALL)
# Maps with entries, extensions and floats: what needs more than msgpack's own checks.
_SPECIAL = re.compile(rb"[\x81-\x8f\xc7-\xcb\xd4-\xd8\xde\xdf]")
_MOST_COLLIDING = 100
"""Keys of one map, or items of one set, with the same hash: with n of them building it takes n² steps."""
# To delete these and look what is left is far quicker than to search a long value for the others.
_NO_MAP_HEADERS = bytes({*range(256)} - {*range(0x81, 0x90), 0xDE, 0xDF})


class NotAccepted(Exception):  # never leaves the model: becomes InvalidArgument where the argument is known
    """A value that cannot be sent."""


def pack(value: Value) -> bytes:
    """The bytes of a value. Raises `NotAccepted`; `problem_with` says where and why."""
    try:
        packed: bytes = _threads.packer.pack(value)
    except (NotAccepted, MqworkerError):  # the second is a signal's: a time-out, a cancellation
        raise
    except Exception as error:  # also what a codec of the application raises, or a library
        raise NotAccepted(str(error)) from error
    if len(packed) > DEEPEST:  # what is shorter cannot be deep either
        _check_own(packed)
    if b"\xcb" in packed and _NOT_FINITE.search(packed) and _has_strange_float(packed):
        raise NotAccepted("a float that is infinite or not a number")
    return packed


def unpack(packed: bytes) -> Value:
    """The value in the bytes. Raises `InvalidMessage` for anything that `pack` would not have written."""
    # Too short to be deep, and nothing in it but lists and leaves: msgpack alone is strict enough.
    is_simple = len(packed) <= DEEPEST and not _SPECIAL.search(packed)
    if not is_simple:
        check_packed(packed)
    try:
        if is_simple:
            return _unpackb(packed)
        if packed.translate(None, _NO_MAP_HEADERS):
            value = _unpackb(packed, ext_hook=_extension, strict_map_key=False, object_pairs_hook=_map)
        else:  # a hook on each map would cost more than everything else
            value = _unpackb(packed, ext_hook=_extension, strict_map_key=False)
    except InvalidMessage:
        raise
    except (ValueError, TypeError, OverflowError, RecursionError, msgpack.UnpackException) as error:
        raise InvalidMessage(f"{len(packed)} bytes are not an encoded value: {error}") from error
    if _has_float(packed) and _NOT_FINITE.search(packed) and _has_strange_float(packed):
        raise InvalidMessage("a number is infinite or not a number")
    return value


def _check_own(packed: bytes) -> None:
    try:
        check_packed(packed)
    except InvalidMessage as error:
        raise NotAccepted(str(error)) from error


class _Threads(threading.local):
    """A packer for each thread: making one for each value would cost more than the packing."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        self.packer = msgpack.Packer(default=_replacement, strict_types=True)


def _replacement(value: object) -> object:
    """What msgpack can write in place of a value that it cannot."""
    # From here on foreign code may run: a property, a signal handler. If it packs something too, the packer
    # at work would mix up both, without a word; so it leaves the stage and finishes with its own caller.
    _threads.renew()
    encode = _ENCODE_BY_TYPE.get(type(value))
    if encode is not None:
        return encode(value)
    if isinstance(value, enum.Enum):
        return value.value
    plain = lowered(value)
    if plain is not NOT_LOWERED:
        return plain
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value) if field.init}
    if isinstance(value, tuple):
        return _array(_TUPLE, value)
    for kind in _PLAIN_TYPES:
        if isinstance(value, kind):
            return kind(value)
    raise NotAccepted(f"a {type(value).__qualname__}")


def _array(code: int, items: tuple[object, ...] | set[object] | frozenset[object]) -> msgpack.ExtType:
    # A packer of its own: the one of the thread is at work on the value around this one.
    packed = cast("bytes", msgpack.packb(list(items), default=_replacement, strict_types=True))
    if code != _TUPLE:
        _extension(code, packed)  # an item that arrives as a dict could not be in a set
    return msgpack.ExtType(code, packed)


_ENCODE_BY_TYPE: dict[type, Callable[[Any], msgpack.ExtType]] = {
    datetime: lambda value: msgpack.ExtType(_DATETIME, value.isoformat().encode()),
    date: lambda value: msgpack.ExtType(_DATE, value.isoformat().encode()),
    Decimal: lambda value: msgpack.ExtType(_DECIMAL, str(value).encode()),
    UUID: lambda value: msgpack.ExtType(_UUID, value.bytes),
    set: lambda value: _array(_SET, value),
    frozenset: lambda value: _array(_FROZENSET, value),
    tuple: lambda value: _array(_TUPLE, value),
}
_DECODE_BY_CODE: dict[int, Callable[[bytes], object]] = {
    _DATETIME: lambda data: datetime.fromisoformat(data.decode()),
    _DATE: lambda data: date.fromisoformat(data.decode()),
    _DECIMAL: lambda data: Decimal(data.decode()),
    _UUID: lambda data: UUID(bytes=data),
    _SET: lambda data: set(_spread(_items(data))),
    _FROZENSET: lambda data: frozenset(_spread(_items(data))),
    _TUPLE: lambda data: tuple(_items(data)),
}


def _extension(code: int, data: bytes) -> object:
    decode = _DECODE_BY_CODE.get(code)
    if decode is None:
        raise InvalidMessage(f"an extension of type {code} is unknown")
    try:
        return decode(data)
    except InvalidOperation as error:
        raise InvalidMessage("a decimal number cannot be read") from error


def _items(data: bytes) -> list[object]:
    items = _unpackb(data, ext_hook=_extension, strict_map_key=False, object_pairs_hook=_map)
    if not isinstance(items, list):
        raise InvalidMessage("a tuple or set holds no list of items")
    return items


def _map(pairs: list[tuple[Any, object]]) -> dict[object, object]:
    if len(pairs) > _MOST_COLLIDING:
        _spread([key for key, _ in pairs])
    entries = dict(pairs)
    if len(entries) != len(pairs):
        raise InvalidMessage("a map holds the same key twice")
    return entries


def _spread(keys: list[object]) -> list[object]:
    """The keys, unless too many have the same hash: decimals can be chosen so."""
    if len(keys) > _MOST_COLLIDING and len(keys) - len(set(map(hash, keys))) > _MOST_COLLIDING:
        raise InvalidMessage(
            f"more than {_MOST_COLLIDING} keys of a map or items of a set have the same hash"
        )
    return keys


def _has_float(packed: bytes) -> bool:
    return b"\xcb" in packed or b"\xca" in packed


def _has_strange_float(packed: bytes) -> bool:
    found: list[float] = []

    def look(value: object) -> None:
        if isinstance(value, float) and (value != value or value in (_INFINITE, -_INFINITE)):  # noqa: PLR0124
            found.append(value)
        elif isinstance(value, list | tuple | set | frozenset):
            for item in value:
                look(item)
        elif isinstance(value, dict):
            for key, item in value.items():
                look(key)
                look(item)

    look(_unpackb(packed, ext_hook=_extension, strict_map_key=False))
    return bool(found)


_INFINITE = float("inf")
_threads = _Threads()
# msgpack's own types return Any.
_unpackb = cast("Callable[..., object]", msgpack.unpackb)
