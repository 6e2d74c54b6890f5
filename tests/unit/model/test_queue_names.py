"""Names of queues: whatever people write becomes one that is safe in keys, records, paths and URLs."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqworker.errors import InvalidArgument
from mqworker.model.names import parse_queue_name, queue_name

SAFE = re.compile(r"[A-Za-z0-9_%][A-Za-z0-9_.:%-]*", re.ASCII)


@pytest.mark.parametrize(
    ("written", "stored"),
    [
        ("jobs:mail", "jobs:mail"),
        ("default", "default"),
        ("a.b-c_d:7", "a.b-c_d:7"),
        ("queue:{user1000}.mails", "queue:%7Buser1000%7D.mails"),
        ("two words", "two%20words"),
        ("a/b", "a%2Fb"),
        ("..", "%2E."),
        ("-rf", "%2Drf"),
        (":x", "%3Ax"),
        ("a*?[x]", "a%2A%3F%5Bx%5D"),
        ("100%", "100%25"),
        ("grüße", "gr%C3%BC%C3%9Fe"),
        ("a%2fb", "a%2Fb"),
    ],
)
def test_a_name_becomes_what_stands_in_keys(written: str, stored: str) -> None:
    assert queue_name(written) == stored
    assert parse_queue_name(stored.encode()) == stored


@pytest.mark.parametrize(
    "written", ["", "a\nb", "a\0b", "\x7f", "\ufffd", "x" * 129, "ü" * 22, "a\u2028b", 7, None, b"a"]
)
def test_what_is_no_name_is_refused(written: object) -> None:
    with pytest.raises(InvalidArgument, match="accepted are 1 to 128 printable characters"):
        queue_name(written)


@given(st.text(min_size=1, max_size=50))
def test_every_name_is_safe_and_says_the_same_when_it_is_given_again(written: str) -> None:
    try:
        stored = queue_name(written)
    except InvalidArgument:
        return

    assert SAFE.fullmatch(stored)
    assert len(stored) <= 128
    assert queue_name(stored) == stored
    assert parse_queue_name(stored.encode()) == stored


printable = st.text(
    st.characters(exclude_characters="%", exclude_categories=["C", "Z"]), min_size=1, max_size=20
)


@given(printable, printable)
def test_two_names_never_meet(one: str, other: str) -> None:
    try:
        assert (queue_name(one) == queue_name(other)) == (one == other)
    except InvalidArgument:
        return


@pytest.mark.parametrize(
    "raw", [b"a b", b"a{b}", b"a/b", b"%2", b"a%zz", b"a%2fb", b".a", b"", b"\xff", None, 7]
)
def test_what_lies_in_redis_is_believed_only_in_the_stored_form(raw: object) -> None:
    assert parse_queue_name(raw) is None
