"""20,000 streams of bytes, good and bad, through the two parsers that strangers reach first.

Of each is asked: only typed errors; the same result for every way to cut the bytes; what was encoded comes
out to the letter.
"""

from __future__ import annotations

from itertools import pairwise

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mqworker.queues.skmq.frame import BrokenStream, Frame, FrameDecoder, Item, encode_frame
from mqworker_services.gateways.redismq.resp import RequestParser, RespLimits
from tests.support.resp_client import packed

EACH = settings(
    max_examples=5_000,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
"""Four tests of so many cases each."""

MOST_BYTES = 200
LIMITS = RespLimits(bulk_bytes=100, command_bytes=200, arguments=6)

cuts = st.tuples(st.integers(0, 400), st.integers(0, 400))
places = st.integers(0, 1_000)
damages = st.binary(max_size=4)


def pieces_of(data: bytes, places: tuple[int, int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[start:stop] for start, stop in pairwise(edges)]


def damaged(data: bytes, place: int, damage: bytes) -> bytes:
    """With some bytes overwritten; an empty damage leaves one out."""
    place %= len(data) + 1
    return data[:place] + damage + data[place + max(1, len(damage)) :]


# SKMQ

skmq_parts = st.lists(
    st.sampled_from(
        [
            *(b"type=queue\r\n", b"appid=a\r\n", b"msgid=7\r\n", b"content=a=b\r\n", b"rid=r\r\n", b"=\r\n"),
            *(b"length=4\r\n", b"length=0\r\n", b"length=199\r\n", b"length=-1\r\n", b"length=1_0\r\n"),
            *(b"content=\r\n\r\n\r\n\r\n", b"content=abcd\r\n\r\n", b"content=" + b"x" * 150, b"ping\r\n"),
            *(
                b"\r\n",
                b"\r\n\r\n",
                b"\r",
                b"\n",
                b"pong\r\n\r\n",
                b"hello\r\n",
                b"colour=red\r\n",
                b"\xff\x00",
            ),
        ]
    ),
    max_size=7,
).map(b"".join)


def skmq_items(pieces: list[bytes]) -> list[Item | str]:
    """What comes out, and the text of the error at the end, if there is one."""
    decoder, items = FrameDecoder(most_bytes=MOST_BYTES), list[Item | str]()
    try:
        for piece in pieces:
            decoder.feed(piece, items.append)
    except BrokenStream as broken:
        items.append(str(broken))
    return items


def assert_skmq_is_the_same_for_every_cut(data: bytes, places: tuple[int, int]) -> None:
    whole = skmq_items([data])

    assert skmq_items(pieces_of(data, places)) == whole
    assert skmq_items([data[i : i + 1] for i in range(len(data))]) == whole


@EACH
@given(skmq_parts, places, damages, cuts)
def test_skmq_lines_in_any_order_with_damage(
    data: bytes, place: int, damage: bytes, cuts: tuple[int, int]
) -> None:
    assert_skmq_is_the_same_for_every_cut(damaged(data, place, damage), cuts)


@EACH
@given(st.binary(max_size=30), st.binary(max_size=30) | skmq_parts, cuts)
def test_skmq_frames_come_out_to_the_letter_before_anything_else(
    content: bytes, after: bytes, cuts: tuple[int, int]
) -> None:
    frame = encode_frame("queue", appid="app", msgid="1", content=content)

    assert_skmq_is_the_same_for_every_cut(frame + after, cuts)
    assert skmq_items(pieces_of(frame + after, cuts))[0] == Frame("queue", "app", "1", content)


# RESP

resp_parts = st.lists(
    st.sampled_from(
        [
            *(b"*1\r\n$4\r\nPING\r\n", b"*2\r\n$4\r\nECHO\r\n$2\r\n\r\n\r\n", b"PING\r\n", b"ECHO 'a b'\r\n"),
            *(
                b"*2\r\n",
                b"*0\r\n",
                b"*-1\r\n",
                b"*7\r\n",
                b"*007\r\n",
                b"*1_0\r\n",
                b"*99999999999999999999\r\n",
            ),
            *(b"$3\r\nabc\r\n", b"$0\r\n\r\n", b"$-1\r\n", b"$101\r\n", b"$2\r\nabc\r\n", b"$1", b"$100\r\n"),
            *(b"x" * 100, b"\r\n", b"\r", b"\n", b'"', b"\x00\xff", b"GET / HTTP/1.1\r\n"),
        ]
    ),
    max_size=7,
).map(b"".join)


def resp_commands(pieces: list[bytes]) -> tuple[list[list[bytes]], bool]:
    """All commands, and whether they ended in a problem."""
    parser, found = RequestParser(LIMITS), list[list[bytes]]()
    for piece in pieces:
        found += parser.feed(piece)
    return found, parser.problem is not None


def assert_resp_is_the_same_for_every_cut(data: bytes, places: tuple[int, int]) -> None:
    whole = resp_commands([data])

    assert resp_commands(pieces_of(data, places)) == whole
    assert resp_commands([data[i : i + 1] for i in range(len(data))]) == whole


@EACH
@given(resp_parts, places, damages, cuts)
def test_resp_parts_in_any_order_with_damage(
    data: bytes, place: int, damage: bytes, cuts: tuple[int, int]
) -> None:
    assert_resp_is_the_same_for_every_cut(damaged(data, place, damage), cuts)


@EACH
@given(st.lists(st.binary(max_size=20), min_size=1, max_size=4), st.binary(max_size=30) | resp_parts, cuts)
def test_resp_commands_come_out_to_the_letter_before_anything_else(
    words: list[bytes], after: bytes, cuts: tuple[int, int]
) -> None:
    command = packed(*words)

    assert_resp_is_the_same_for_every_cut(command + after, cuts)
    assert resp_commands(pieces_of(command + after, cuts))[0][0] == words
