"""The parser of RESP requests: the same commands for every split of the bytes, and no bytes that break it."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqworker_services.gateways.redismq.replies import (
    OK,
    RESP2,
    RESP3,
    Refusal,
    Table,
    encode,
    encode_elements,
    encode_runs,
)
from mqworker_services.gateways.redismq.resp import (
    LONGEST_INLINE,
    ProtocolError,
    RequestParser,
    RespLimits,
    split_words,
)
from tests.support.resp_client import packed

LIMITS = RespLimits(bulk_bytes=1_000, command_bytes=3_000, arguments=20)
EXAMPLES = 400
SPLITS = 6
"""Each example is cut in so many ways, so that these tests are some 7,000 cases."""

commands = st.lists(st.lists(st.binary(max_size=40), min_size=1, max_size=5), max_size=6)
pieces = st.one_of(
    st.binary(max_size=30),
    st.sampled_from([b"*", b"$", b"\r\n", b"*1\r\n$4\r\nPING\r\n", b"PING\r\n", b"*0\r\n", b"$-1\r\n"]),
)


split_seeds = st.integers(0, 2**32)


def some_cuts(seed: int) -> Iterator[list[int]]:
    """Ways to cut bytes: everywhere, and at a few places."""
    chance = random.Random(seed)  # noqa: S311 - a story, no secret
    yield list(range(1_000))
    for _ in range(SPLITS - 1):
        yield [chance.randrange(10_000) for _ in range(chance.randrange(8))]


def parsed(data: bytes, cuts: list[int]) -> tuple[list[list[bytes]], bool]:
    """All commands of the bytes, fed in pieces; and whether they ended in a problem."""
    parser, found = RequestParser(LIMITS), []
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    for start, stop in itertools.pairwise(places):
        found += parser.feed(data[start:stop])
    return found, parser.problem is not None


@settings(max_examples=EXAMPLES, deadline=None)
@given(commands, split_seeds)
def test_commands_come_out_as_they_went_in(given_commands: list[list[bytes]], seed: int) -> None:
    data = b"".join(packed(*words) for words in given_commands)

    for cuts in some_cuts(seed):
        assert parsed(data, cuts) == (given_commands, False)


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.lists(pieces, max_size=12), split_seeds)
def test_any_bytes_give_the_same_for_every_split(parts: list[bytes], seed: int) -> None:
    data = b"".join(parts)

    for cuts in some_cuts(seed):
        assert parsed(data, cuts) == parsed(data, [])


@settings(max_examples=EXAMPLES, deadline=None)
@given(commands, st.integers(0, 10_000), st.binary(max_size=3), split_seeds)
def test_damaged_commands_give_the_same_for_every_split(
    given_commands: list[list[bytes]], place: int, damage: bytes, seed: int
) -> None:
    data = bytearray(b"".join(packed(*words) for words in given_commands))
    place %= len(data) + 1
    data[place : place + len(damage)] = damage

    for cuts in some_cuts(seed):
        assert parsed(bytes(data), cuts) == parsed(bytes(data), [])


@pytest.mark.parametrize(
    "data",
    [
        b"*21\r\n",
        b"*-1\r\n",
        b"*007\r\n",
        b"*1_0\r\n",
        b"*\r\n",
        b"*1\r\n$1001\r\n",
        b"*1\r\n$-1\r\n",
        b"*1\r\n+OK\r\n",
        b"*1\r\n$1\r\nabc",
        b"*4\r\n" + b"$1000\r\n%b\r\n" % (b"x" * 1_000) * 4,
        b"x" * (LONGEST_INLINE + 1),
        b"*" + b"1" * 40,
    ],
)
def test_what_is_beyond_the_limits_is_a_problem(data: bytes) -> None:
    assert parsed(data, []) == ([], True)


def test_commands_before_a_problem_are_still_carried_out() -> None:
    parser = RequestParser(LIMITS)

    assert parser.feed(packed("PING") + b"*x\r\n" + packed("PING")) == [[b"PING"]]
    assert parser.problem is not None
    assert parser.feed(packed("PING")) == []


def test_a_large_argument_in_many_pieces_is_put_together_once() -> None:
    parser = RequestParser(RespLimits(bulk_bytes=1_000_000))
    data = packed("MQ.PUSH", "q", b"x" * 1_000_000)

    found = [
        command for start in range(0, len(data), 100) for command in parser.feed(data[start : start + 100])
    ]

    assert [len(word) for word in found[0]] == [7, 1, 1_000_000]
    assert not parser.is_in_the_middle


def test_words_of_a_line() -> None:
    assert split_words(b'  a \'b c\' "d\\n\\"" e ') == [b"a", b"b c", b'd\n"', b"e"]
    with pytest.raises(ProtocolError):
        split_words(b'"a"b')


def test_replies_in_both_versions() -> None:
    value = [b"a", "b", 3, None, OK, Refusal("ERR a\r\nb"), Table({"c": 1})]

    assert encode(value, RESP2) == (
        b"*7\r\n$1\r\na\r\n$1\r\nb\r\n:3\r\n$-1\r\n+OK\r\n-ERR a b\r\n*2\r\n$1\r\nc\r\n:1\r\n"
    )
    assert encode(value, RESP3).endswith(b"_\r\n+OK\r\n-ERR a b\r\n%1\r\n$1\r\nc\r\n:1\r\n")
    assert encode_runs(["1-1", "1-2"], [1, 1]) == encode(["1-1"], RESP2) + encode(["1-2"], RESP2)
    assert encode_runs(["1-1", "1-2", "1-3"], [2, 1]) == encode(["1-1", "1-2"], RESP2) + encode(
        ["1-3"], RESP2
    )
    assert encode_elements([("1-1", b"x")]) == encode([["1-1", b"x"]], RESP2)
