"""Xids: what is put in comes out, they sort by time, and no source makes one twice."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqworker.errors import InvalidArgument
from mqworker.queues.topics.xid import XidSource, xid
from tests.support.topic_formats import XidParts, parse_xid

SECONDS = st.integers(0, 2**32 - 1)
TAILS = st.binary(min_size=8, max_size=8)


def test_the_id_of_a_gomq_server_is_read() -> None:
    known = parse_xid("dbt45ptqmd2tu7odj3mg")

    assert known.seconds == 1794786023  # Sun Nov 15 23:40:23 UTC 2026, as the record it stood in says


def test_an_id_shows_where_it_comes_from() -> None:
    source = XidSource(process=lambda: 0x1_0002)

    first, second = (parse_xid(xid(7, source.tail())) for _ in range(2))

    assert first == XidParts(7, first.machine, 2, first.count)
    assert second == XidParts(7, first.machine, 2, (first.count + 1) % 2**24)


@given(SECONDS, TAILS)
def test_every_id_has_twenty_characters_and_is_read_back(seconds: int, tail: bytes) -> None:
    text = xid(seconds, tail)

    known = parse_xid(text)
    assert re.fullmatch("[0-9a-v]{20}", text)
    assert known.seconds == seconds
    assert known.machine.to_bytes(3, "big") + known.process.to_bytes(2, "big") == tail[:5]
    assert known.count == int.from_bytes(tail[5:], "big")


@given(SECONDS, SECONDS, TAILS, TAILS)
def test_ids_sort_by_time(one: int, other: int, one_tail: bytes, other_tail: bytes) -> None:
    in_order = sorted([(one, one_tail), (other, other_tail)])

    assert sorted(xid(*each) for each in in_order) == [xid(*each) for each in in_order]


def test_a_counter_that_is_full_begins_anew() -> None:
    class Last(random.Random):
        def randrange(self, *_: int) -> int:  # type: ignore[override] # only one of its signatures
            return 2**24 - 1

    source = XidSource(Last(1))

    assert [parse_xid(xid(0, source.tail())).count for _ in range(2)] == [2**24 - 1, 0]


def test_sources_differ_and_a_fork_differs_from_its_parent() -> None:
    pid = 1
    source = XidSource(process=lambda: pid)
    before = source.tail()

    pid = 2

    assert source.tail()[:5] != before[:5]
    assert XidSource().tail()[:3] != XidSource().tail()[:3]


@pytest.mark.parametrize(("seconds", "tail"), [(-1, b"12345678"), (2**32, b"12345678"), (0, b"1234567")])
def test_parts_that_do_not_fit_are_refused(seconds: int, tail: bytes) -> None:
    with pytest.raises(InvalidArgument, match="32 bits and 8 bytes"):
        xid(seconds, tail)
