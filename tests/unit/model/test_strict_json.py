"""JSON from strangers: what is accepted, and everything hostile that is not."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqworker.errors import InvalidMessage
from mqworker.model.strict_json import JsonLimits, read_json, write_json

LIMITS = JsonLimits()

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=20), inner, max_size=5),
    max_leaves=30,
)


@given(VALUES)
def test_what_is_written_is_read_again(value: object) -> None:
    text = write_json(value)

    assert text is not None
    assert read_json(text, LIMITS) == value


@given(VALUES)
def test_what_python_writes_is_read_too(value: object) -> None:
    assert read_json(json.dumps(value, indent=1).encode(), LIMITS) == value


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        value = read_json(data, LIMITS)
    except InvalidMessage:
        return

    assert json.loads(data) == value


def nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


@pytest.mark.parametrize(
    "text",
    [
        b"[" * 32 + b"]" * 32,
        b'{"a":' * 32 + b"1" + b"}" * 32,
        b'"' + b"[{" * 1000 + b'"',
        b'"\\"[[[["',
        b"[" + b",".join([b"1"] * 9_999) + b"]",
        b"[" + b",".join([b"[ ]"] * 9_999) + b"]",
        b"18446744073709551615",
        b"-9223372036854775808",
        b'"\\ud83d\\ude00"',
        b"1e308",
        b' {"a" : [ ] } ',
    ],
)
def test_at_the_limit_it_is_accepted(text: bytes) -> None:
    assert read_json(text, LIMITS) == json.loads(text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (nested(33), "deeper than 32"),
        (nested(100_000), "deeper than 32"),
        (b"[" * 100_000, "deeper than 32"),
        (b'{"a":' * 33 + b"1" + b"}" * 33, "deeper than 32"),
        (b"[" * 32 + b"{ }" + b"]" * 32, "deeper than 32"),
        (b"[" + b",".join([b"1"] * 10_000) + b"]", "more than 10,000 values"),
        (b"[" + b",".join([b"{}"] * 60_000) + b"]", "more than 10,000 values"),
        (b"NaN", "not a number"),
        (b"[-Infinity]", "not a number"),
        (b"1e400", "too large"),
        (b"18446744073709551616", "64 bits"),
        (b"-9223372036854775809", "64 bits"),
        (b"9" * 5_000, "64 bits"),
        (b'{"a": 1, "a": 1}', "twice"),
        (b'{"x": {"a": 1, "b": 2, "a": 1}}', "twice"),
        (b'{"' + b"k" * 257 + b'": 1}', "key longer"),
        (('{"' + "€" * 86 + '": 1}').encode(), "key longer"),
        (b'"\\ud800"', "surrogate"),
        (b'{"\\udc00": 1}', "surrogate"),
        (b"\xff", "UTF-8"),
        (b"\xed\xa0\x80", "UTF-8"),
        (b"\xc0\x80", "UTF-8"),
        ('"x"'.encode("utf-16"), "UTF-8"),
        (b"\xef\xbb\xbf1", "not a JSON text"),
        (b"", "not a JSON text"),
        (b"1 2", "not a JSON text"),
        (b"'a'", "not a JSON text"),
        (b'"a\x00b"', "not a JSON text"),
        (b" " * 262_145, "262,145 bytes"),
    ],
)
def test_what_is_ambiguous_or_too_much_is_refused(text: bytes, reason: str) -> None:
    with pytest.raises(InvalidMessage, match=reason):
        read_json(text, LIMITS)


@pytest.mark.parametrize("value", [b"bytes", {1, 2}, math.nan, math.inf, "\ud800", object()])
def test_what_json_has_no_words_for_is_not_written(value: object) -> None:
    assert write_json(value) is None
