"""Events of topics: names, the ids of copies, and what stands in an outbox."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqworker.errors import InvalidArgument, InvalidMessage
from mqworker.model.names import MessageId
from mqworker.tasks.events.event import (
    PendingEvent,
    SubscriberName,
    copy_id,
    decode_pending,
    subscriber_name,
    topic_name,
)


@pytest.mark.parametrize("name", ["orders", "orders.placed", "a-b_c.9", "_", "x" * 128])
def test_a_topic_has_a_name_like_a_task(name: str) -> None:
    assert topic_name(name) == name


@pytest.mark.parametrize("name", ["", ".x", "a b", "a\n", "{a}", "ä", "x" * 129, None, 1, b"x"])
def test_another_name_is_refused(name: object) -> None:
    with pytest.raises(InvalidArgument, match="topic is"):
        topic_name(name)


def test_a_copy_is_named_after_its_event_and_its_subscriber() -> None:
    subscriber = subscriber_name("shop", "shop.tasks.invoice")

    assert copy_id(MessageId("0KdB1"), subscriber) == "0KdB1:shop/shop.tasks.invoice"


def test_a_subscriber_whose_ids_would_be_too_long_is_refused_at_once() -> None:
    subscriber_name("a" * 10, "t" * 99)

    with pytest.raises(InvalidArgument):
        subscriber_name("a" * 10, "t" * 100)


@given(st.binary())
def test_any_payload_is_read_back(payload: bytes) -> None:
    pending = decode_pending(b"1700000000000 shop/a,shop/b\n" + payload)

    assert pending == PendingEvent(
        1_700_000_000_000, (SubscriberName("shop/a"), SubscriberName("shop/b")), payload
    )


@given(st.binary())
def test_other_bytes_are_refused_or_read_but_raise_nothing_else(text: bytes) -> None:
    try:
        pending = decode_pending(text)
    except InvalidMessage:
        return

    assert pending.subscribers
    assert text.endswith(pending.payload)


@pytest.mark.parametrize("text", [b"", b"1", b"1 a", b"x a\n", b" a\n", b"1 \n", b"-1 a\n", b"1 a b\n"])
def test_what_is_no_event_is_refused(text: bytes) -> None:
    with pytest.raises(InvalidMessage):
        decode_pending(text)
