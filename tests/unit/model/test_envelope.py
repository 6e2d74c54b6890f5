"""The body of a task's message: what goes in comes out, and nothing else is ever built from bytes."""

from __future__ import annotations

import enum
import re
import struct
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from uuid import UUID

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from mqworker.errors import InvalidArgument, InvalidMessage
from mqworker.model.annotation import rebuild_for
from mqworker.model.envelope import CallOptions, Envelope, decode_call, encode_call, explain
from mqworker.model.packed_limits import DEEPEST, MOST_NODES, check_packed
from mqworker.model.value_codec import NotAccepted, Value, pack, unpack

ZONES = some.sampled_from(
    [None, UTC, timezone(timedelta(hours=-5, minutes=-30)), timezone(timedelta(seconds=17))]
)
DECIMALS = some.decimals(allow_nan=False, allow_infinity=False)
HASHABLE = some.one_of(
    some.none(),
    some.booleans(),
    some.integers(-(2**63), 2**64 - 1),
    some.text(),
    some.binary(),
    some.dates(),
    some.datetimes(timezones=ZONES),
    DECIMALS,
    some.uuids(),
)
VALUES = some.recursive(
    some.one_of(HASHABLE, some.floats(allow_nan=False, allow_infinity=False)),
    lambda inner: some.one_of(
        some.lists(inner, max_size=4),
        some.lists(inner, max_size=4).map(tuple),
        some.dictionaries(HASHABLE, inner, max_size=4),
        some.sets(HASHABLE, max_size=4),
        some.frozensets(HASHABLE, max_size=4),
        some.sets(some.tuples(HASHABLE), max_size=3),
    ),
    max_leaves=20,
)


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Address:
    city: str
    colour: Colour = Colour.RED


@dataclass
class User:
    name: str
    home: Address
    friends: list[User] = field(default_factory=list)


@given(
    args=some.lists(VALUES, max_size=4), kwargs=some.dictionaries(some.text(max_size=9), VALUES, max_size=3)
)
@settings(max_examples=300, deadline=None)
def test_a_call_arrives_as_it_was_made(args: list[Value], kwargs: dict[str, Value]) -> None:
    call = decode_call(encode_call(args, kwargs))

    assert (call.args, call.kwargs) == (args, kwargs)
    assert _types(call.args) == _types(args)


def test_a_call_without_arguments_takes_three_bytes() -> None:
    assert encode_call((), {}) == b"\x92\x90\x80"


def test_options_travel_only_when_they_say_something() -> None:
    plain, rich = encode_call((1,), {}), encode_call((1,), {}, CallOptions({"trace": "7"}, timeout_ms=50))

    assert len(plain) == 4
    assert decode_call(rich).headers == {"trace": "7"}
    assert decode_call(rich).timeout_ms == 50


def test_a_dataclass_arrives_as_a_dict_and_an_enum_as_its_value() -> None:
    call = decode_call(encode_call((Address("Bonn", Colour.BLUE), Colour.RED), {}))

    assert call.args == [{"city": "Bonn", "colour": "blue"}, "red"]


def test_an_annotation_rebuilds_dataclasses_and_enums_at_any_depth() -> None:
    ann = User("Ann", Address("Bonn"), [User("Bob", Address("Rome", Colour.BLUE))])
    rebuild = rebuild_for(dict[str, tuple[User, ...]] | None)
    assert rebuild is not None

    received = unpack(pack({"all": (ann,)}))

    assert rebuild(received) == {"all": (ann,)}
    assert rebuild(None) is None


@pytest.mark.parametrize("received", [{"town": "Bonn"}, {"city": "Bonn", "colour": "green"}, {}, 7, ["Bonn"]])
def test_what_does_not_fit_the_annotated_dataclass_is_an_invalid_message(received: object) -> None:
    rebuild = rebuild_for(Address)
    assert rebuild is not None

    with pytest.raises(InvalidMessage, match=r"Address|Colour"):
        rebuild(received)


def _cycle() -> list[object]:
    itself: list[object] = []
    itself.append({"again": (itself,)})
    return itself


def _deep(levels: int) -> object:
    value: object = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (
            object(),
            r"argument 'user' of shop.send: type object cannot be sent; accepted are None, bool, ",
        ),
        (
            {"a": [1, print]},
            r"argument 'user' of shop.send\['a'\]\[1\]: type builtin_function_or_method cannot",
        ),
        (_cycle(), r"contains itself, a cyclic value cannot be sent"),
        (_deep(40), r"nested more than 32 deep"),
        (2**64, r"an int beyond 64 bits"),
        (float("nan"), r"nan cannot be sent; accepted are finite floats"),
        ([1.5, float("-inf")], r"\[1\]: -inf cannot be sent"),
        ("\ud800", r"half a character pair"),
        (list(range(MOST_NODES)), r"more than 50,000 values"),
        (User, r"type type cannot be sent"),
    ],
)
def test_what_cannot_be_sent_is_named_with_its_argument(value: object, words: str) -> None:
    with pytest.raises(NotAccepted) as refused:
        encode_call((1, value), {})

    error = explain(refused.value, "shop.send", {"to": 1, "user": value})

    assert isinstance(error, InvalidArgument)
    assert re.search(words, str(error))


def test_a_value_that_packs_another_one_while_it_is_packed_disturbs_nothing() -> None:
    class Nosy(enum.Enum):
        ONE = 1

        @property
        def value(self) -> object:
            return pack(["inner"])

    assert unpack(pack([0, Nosy.ONE, (2,), 3])) == [0, pack(["inner"]), (2,), 3]


def test_bytes_that_only_look_like_an_infinite_float_are_accepted() -> None:
    value = [1.5, b"\xcb\x7f\xf0", "x"]

    assert unpack(pack(value)) == value


HOSTILE = {
    "an array of four thousand million": b"\x92\xdd\xff\xff\xff\xff\x80",
    "a map of four thousand million": b"\xdf\xff\xff\xff\xff",
    "a text longer than the message": b"\x92\x91\xdb\xff\xff\xff\xff\x80",
    "nested a thousand deep": b"\x91" * 1000 + b"\xc0",
    "nested just too deep": b"\x92" + b"\x91" * DEEPEST + b"\xc0\x80",
    "nested too deep in tuples": b"\x92" + b"\xc7\x03\x07" * 200,
    "bytes after the value": b"\x92\x90\x80\x00",
    "cut off": b"\x92\x91\xa5ab",
    "no call but a number": b"\x07",
    "no call but one list": b"\x91\x90",
    "arguments that are a map": b"\x92\x80\x80",
    "an unknown extension": b"\x92\x91" + msgpack.packb(msgpack.ExtType(77, b"os.system")) + b"\x80",
    "a timestamp of msgpack": b"\x92\x91" + msgpack.packb(msgpack.Timestamp(1)) + b"\x80",
    "a set of lists": b"\x92\x91" + msgpack.packb(msgpack.ExtType(5, b"\x91\x90")) + b"\x80",
    "a tuple that holds no list": b"\x92\x91" + msgpack.packb(msgpack.ExtType(7, b"\x07")) + b"\x80",
    "a date that is none": b"\x92\x91" + msgpack.packb(msgpack.ExtType(2, b"tomorrow")) + b"\x80",
    "a decimal that is none": b"\x92\x91" + msgpack.packb(msgpack.ExtType(3, b"one")) + b"\x80",
    "a map with a key twice": b"\x92\x91\x82\xa1a\x01\xa1a\x02\x80",
    "a map with a list for a key": b"\x92\x91\x81\x90\x01\x80",
    "a keyword that is a number": b"\x92\x90\x81\x01\x01",
    "a keyword twice": b"\x92\x90\x82\xa1a\x01\xa1a\x02",
    "text that is not UTF-8": b"\x92\x91\xa2\xff\xfe\x80",
    "not a number": b"\x92\x91\xcb" + struct.pack(">d", float("nan")) + b"\x80",
    "an infinite number": b"\x92\x91\xcb" + struct.pack(">d", float("inf")) + b"\x80",
    "a reserved byte": b"\x92\x91\xc1\x80",
    "pickled code": b"cos\nsystem\n(S'touch /tmp/canary'\ntR.",
    "JSON": b'{"task": "a"}',
    "an unknown option": b"\x93\x90\x80\x81\xa1x\x01",
    "headers that are not a map": b"\x93\x90\x80\x81\xa7headers\x01",
    "a negative time-out": b"\x93\x90\x80\x81\xaatimeout_ms\xff",
    "too many values": b"\x92" + msgpack.packb([[0] * MOST_NODES]) + b"\x80",
    "too many empty lists": b"\x92" + msgpack.packb([[[]] * MOST_NODES]) + b"\x80",
    "nothing": b"",
}


@pytest.mark.parametrize("body", HOSTILE.values(), ids=HOSTILE)
def test_hostile_bytes_are_an_invalid_message(body: bytes) -> None:
    with pytest.raises(InvalidMessage):
        decode_call(body)


@given(some.binary(max_size=300))
@settings(max_examples=1500, deadline=None)
def test_any_bytes_decode_or_are_refused_by_one_error(body: bytes) -> None:
    try:
        call = decode_call(body)
    except InvalidMessage:
        return

    assert decode_call(encode_call(call.args, call.kwargs, _options(call.headers, call.timeout_ms))) == call


@given(VALUES, some.integers(0, 400), some.integers(0, 255))
@settings(max_examples=500, deadline=None)
def test_a_changed_byte_decodes_or_is_refused_by_one_error(value: Value, position: int, byte: int) -> None:
    body = bytearray(encode_call((value,), {}))
    body[position % len(body)] = byte

    try:
        call = decode_call(bytes(body))
    except InvalidMessage:
        return

    assert isinstance(call, Envelope)


@given(VALUES)
@settings(deadline=None)
def test_the_quick_check_and_the_full_walk_agree_on_what_is_packed_here(value: Value) -> None:
    packed = pack(value)

    check_packed(packed)
    check_packed(pack([value, "x" * (MOST_NODES + 1)]))


def test_a_datetime_keeps_its_offset_and_a_naive_one_stays_naive() -> None:
    aware, naive = datetime(2026, 1, 2, 3, 4, 5, 6, UTC), datetime(2026, 1, 2)  # noqa: DTZ001 - on purpose

    received = unpack(pack([aware, naive, date(2026, 1, 2), Decimal("1.50"), UUID(int=7)]))

    assert received == [aware, naive, date(2026, 1, 2), Decimal("1.50"), UUID(int=7)]
    assert (received[0].tzinfo, received[1].tzinfo) == (UTC, None)
    assert str(received[3]) == "1.50"


@pytest.mark.parametrize("headers", [{"a": 1}, {1: "a"}, {"a": "x" * 5000}, {str(n): "" for n in range(65)}])
def test_headers_are_few_short_texts(headers: dict[str, str]) -> None:
    with pytest.raises(InvalidArgument, match="headers"):
        CallOptions(headers)


def _options(headers: object, timeout_ms: int | None) -> CallOptions | None:
    assert isinstance(headers, dict)
    return CallOptions(headers, timeout_ms) if headers or timeout_ms is not None else None


def _types(value: object) -> object:
    if isinstance(value, list | tuple):
        return type(value), [_types(item) for item in value]
    return type(value)


@pytest.mark.parametrize("rest", [[], [[], {}], [[], {}, {}, {}]])
def test_a_call_of_a_later_version_is_refused_as_such(rest: list[object]) -> None:
    with pytest.raises(InvalidMessage, match="a call of version 2; this worker understands version 1"):
        decode_call(pack([2, *rest]))
