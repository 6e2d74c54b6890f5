"""The call of a row: what is written is read again, and nothing else is."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqworker.errors import InvalidMessage
from mqworker.model.guard import GuardMode, unique_guard
from mqworker.model.instant import After, At
from mqworker.model.message import Message
from mqworker.model.names import MessageId, TaskName
from mqworker.model.outbox_row import LARGEST_CALL_BYTES, aged, decode_row, encode_row

INSTANTS = st.none() | st.builds(After, st.integers(0, 10**9)) | st.builds(At, st.integers(0, 10**13))
MESSAGES = st.builds(
    Message,
    st.sampled_from([MessageId("a1"), MessageId("order-7@x")]),
    st.binary(max_size=200),
    st.just(TaskName("shop.send")),
    st.integers(0, 9),
    INSTANTS,
    INSTANTS,
    st.sampled_from([None, unique_guard("k", GuardMode.KEEP_LAST, ttl_ms=5)]),
    st.none() | st.integers(1, 35),
    st.sampled_from([None, "fair=3~tenant7|shop.send=100/1000/100"]),
)


@given(MESSAGES)
def test_a_message_comes_back_as_it_was(message: Message) -> None:
    assert decode_row(encode_row(message)) == message


@given(st.binary(max_size=300))
def test_any_other_bytes_are_refused_and_nothing_else_happens(junk: bytes) -> None:
    with pytest.raises(InvalidMessage):
        decode_row(junk)


@given(MESSAGES, st.integers(0, 9), st.none() | st.integers() | st.text() | st.lists(st.integers()))
def test_a_part_that_was_changed_is_refused_or_another_good_one(
    message: Message, part: int, other: object
) -> None:
    parts = msgpack.unpackb(encode_row(message))
    parts[part] = other
    try:
        changed = msgpack.packb(parts)
    except (OverflowError, ValueError):  # msgpack has no numbers of that size, no halves of surrogate pairs
        return
    with suppress(InvalidMessage):
        assert isinstance(decode_row(changed), Message)


@pytest.mark.parametrize("call", [None, 7, "text", b"x" * (LARGEST_CALL_BYTES + 1)])
def test_what_is_no_call_is_refused(call: object) -> None:
    with pytest.raises(InvalidMessage, match="not bytes, or too many"):
        decode_row(call)


def test_a_later_version_is_named() -> None:
    with pytest.raises(InvalidMessage, match="version 2; this node reads 1"):
        decode_row(msgpack.packb([2, "what", "ever"]))


def test_the_time_that_a_row_waited_is_taken_off_its_delay_and_its_deadline() -> None:
    message = Message(MessageId("a"), b"", due=After(5_000), deadline=After(9_000))

    assert aged(message, 2_000) == replace(message, due=After(3_000), deadline=After(7_000))
    assert aged(message, 60_000) == replace(message, due=After(0), deadline=After(0))
    assert aged(message, -10) == message


def test_moments_stay_what_they_are() -> None:
    message = Message(MessageId("a"), b"", due=At(5_000), deadline=None)

    assert aged(message, 2_000) == message
