"""Frames of SKMQ: the same items however the bytes are cut, and nothing but typed errors."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqworker.errors import InvalidArgument
from mqworker.queues.skmq.frame import (
    LONGEST_LINE_BYTES,
    BrokenStream,
    Frame,
    FrameDecoder,
    Item,
    Word,
    encode_frame,
    encode_word,
)

MOST_BYTES = 300


def decoded(*pieces: bytes, most_bytes: int = MOST_BYTES) -> list[Item | str]:
    """What comes out, and the text of the error at the end, if there is one."""
    decoder, items = FrameDecoder(most_bytes=most_bytes), list[Item | str]()
    try:
        for piece in pieces:
            decoder.feed(piece, items.append)
    except BrokenStream as broken:
        items.append(str(broken))
    return items


NAMES = [b"type", b"appid", b"msgid", b"rid", b"content", b"length", b"colour", b""]
VALUES = [b"queue", b"a=b=c", b"5", b"0", b"999", b"-1", b"x" * 290, b"12345\r\n\r\n", b"\r", b"\n", b""]
ENDS = [b"\r\n", b"\r\n", b"\r\n", b"\r\n\r\n", b"\r\n\r\n\r\n\r\n", b"\n", b"\r", b""]
WORDS = [b"ping\r\n", b"ping\r\n\r\n", b"pong\r\n\r\n", b"\r\n", b"hello\r\n", b"\x00", b"\xff=\xff\r\n"]


def a_stream(chance: random.Random) -> bytes:
    """Lines as they should be and as they should not, in any order."""
    lines = [
        b"%b=%b%b" % (chance.choice(NAMES), chance.choice(VALUES), chance.choice(ENDS))
        if chance.random() < 0.8
        else chance.choice(WORDS)
        for _ in range(chance.randrange(12))
    ]
    return b"".join(lines)


def assert_cuts_change_nothing(stream: bytes, cuts: list[int]) -> None:
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]

    whole = decoded(stream)

    assert decoded(*(stream[start:end] for start, end in pairwise(edges))) == whole, (stream, cuts)
    assert decoded(*(stream[i : i + 1] for i in range(len(stream)))) == whole, stream


def test_the_same_items_come_however_the_bytes_are_cut() -> None:
    chance = random.Random(1734)  # noqa: S311 - the same streams every time
    for _ in range(2_000):
        stream = a_stream(chance)
        assert_cuts_change_nothing(stream, [chance.randrange(len(stream) + 1) for _ in range(3)])


@settings(max_examples=200, deadline=None)
@given(stream=st.binary(max_size=100), cuts=st.lists(st.integers(0, 100), max_size=3))
def test_any_bytes_are_read_the_same_however_they_are_cut(stream: bytes, cuts: list[int]) -> None:
    assert_cuts_change_nothing(stream, cuts)


texts = st.text(st.characters(exclude_characters="\r\n", codec="utf-8"), min_size=1, max_size=20)


@settings(max_examples=200, deadline=None)
@given(
    type_=texts,
    appid=texts,
    msgid=texts,
    content=st.binary(max_size=100) | st.sampled_from([b"\r\n\r\n", b"a\r\nb"]),
)
def test_what_is_encoded_is_decoded_to_the_letter(type_: str, appid: str, msgid: str, content: bytes) -> None:
    data = encode_frame(type_, appid=appid, msgid=msgid, content=content)

    items = decoded(data, data, most_bytes=10_000)

    assert items == [Frame(type_, appid, msgid, content)] * 2


def test_fields_come_in_any_order_and_the_last_of_two_counts() -> None:
    assert decoded(b"content=a=b=c\r\nmsgid=1\r\ncolour=red\r\nmsgid=2\r\ntype=queue\r\n\r\n") == [
        Frame("queue", "", "2", b"a=b=c")
    ]


def test_a_single_line_is_enough_for_a_ping() -> None:
    assert decoded(b"ping\r\n") == [Word.PING]
    assert decoded(encode_word(Word.PING) + encode_word(Word.PONG)) == [Word.PING, Word.PONG]


def test_a_frame_without_a_type_is_thrown_away_whole() -> None:
    assert decoded(b"appid=a\r\nmsgid=1\r\n\r\ntype=queue\r\n\r\n") == [Frame("queue")]


def test_doubled_ends_are_ignored() -> None:
    reply = b'type=resp\r\ncontent={"status":"ack","content":""}\r\n\r\n\r\n\r\n'

    assert decoded(reply * 3) == [Frame("resp", content=b'{"status":"ack","content":""}')] * 3


def test_content_of_known_length_may_hold_anything() -> None:
    assert decoded(b"type=queue\r\nlength=8\r\ncontent=\r\n\r\na=b\n\r\n\r\nping\r\n\r\n") == [
        Frame("queue", content=b"\r\n\r\na=b\n"),
        Word.PING,
    ]


@pytest.mark.parametrize("length", [b"x", b"-1", b"+1", b"0x10", b"1_0", b"99999999999", b"", b" 1"])
def test_a_length_that_is_no_number_breaks_the_stream(length: bytes) -> None:
    assert decoded(b"type=queue\r\nlength=" + length + b"\r\ncontent=a\r\n\r\n") == ["malformed frame"]


def test_a_length_that_does_not_fit_breaks_the_stream() -> None:
    assert decoded(b"type=queue\r\nlength=2\r\ncontent=abc\r\n\r\n") == ["malformed frame"]


def test_a_frame_beyond_the_limit_is_refused_before_it_is_there() -> None:
    assert decoded(b"type=queue\r\nlength=300\r\ncontent=") == ["frame too large"]
    assert decoded(b"type=queue\r\ncontent=" + b"x" * 310) == ["frame too large"]
    assert decoded(b"a=b\r\n" * 100) == ["frame too large"]


def test_a_line_without_an_end_is_refused_before_it_fills_the_memory() -> None:
    endless = b"colour=" + b"x" * LONGEST_LINE_BYTES

    assert decoded(endless, most_bytes=10 * LONGEST_LINE_BYTES) == ["frame too large"]
    assert decoded(b"content=" + endless, most_bytes=10 * LONGEST_LINE_BYTES) == []


def test_half_a_frame_gives_nothing() -> None:
    assert decoded(b"type=queue\r\nmsgid=1\r\n") == []


def test_a_name_with_an_end_of_line_cannot_be_sent() -> None:
    with pytest.raises(InvalidArgument, match="msgid"):
        encode_frame("queue", msgid="a\r\ntype=topic")
