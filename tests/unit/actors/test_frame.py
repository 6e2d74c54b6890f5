"""Frames: the same mail for every way of cutting the bytes; garbage is never resynchronised."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqworker.actors.frame import LARGEST_FRAME_BYTES, MAGIC, BrokenFrame, FrameDecoder, encode_frame
from mqworker.actors.mail import DeliveriesFinished, Ping, RunDeliveries, decode_mail, encode_mail


@given(st.lists(st.binary(max_size=200), max_size=8), st.lists(st.integers(1, 50), max_size=60))
def test_payloads_come_out_whole_however_the_bytes_were_cut(payloads: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(map(encode_frame, payloads))
    decoder, received = FrameDecoder(), []

    for size in cuts:
        received += decoder.feed(stream[:size])
        stream = stream[size:]
    received += decoder.feed(stream)

    assert received == payloads
    assert not decoder.has_remainder


def test_bytes_that_are_no_frame_are_refused() -> None:
    with pytest.raises(BrokenFrame):
        FrameDecoder().feed(b"GET / HTTP/1.1\r\n")


def test_a_length_beyond_the_limit_is_refused_before_anything_is_stored() -> None:
    with pytest.raises(BrokenFrame):
        FrameDecoder().feed(MAGIC + (LARGEST_FRAME_BYTES + 1).to_bytes(4, "big"))


def test_an_unfinished_frame_is_noticed() -> None:
    decoder = FrameDecoder()

    decoder.feed(encode_frame(b"whole") + encode_frame(b"cut off")[:-1])

    assert decoder.has_remainder


@pytest.mark.parametrize(
    "mail",
    [
        Ping(7),
        RunDeliveries("default", [1, 2], [b"\x00record", b"other"]),
        DeliveriesFinished("default", [3], ["z", b"\xff", 3], {"shop.price": (1, 0.25)}),
    ],
)
def test_mail_arrives_as_it_was_sent(mail: Ping | RunDeliveries | DeliveriesFinished) -> None:
    received = decode_mail(encode_mail(mail))

    assert type(received) is type(mail)
    assert encode_mail(received) == encode_mail(mail)


@given(st.binary(max_size=100))
def test_a_payload_that_is_no_mail_is_a_typed_error(payload: bytes) -> None:
    try:
        mail = decode_mail(payload)
    except BrokenFrame:
        return

    assert type(decode_mail(encode_mail(mail))) is type(mail)
