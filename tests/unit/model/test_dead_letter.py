"""Dead letters: what was buried comes back as it was, and foreign bytes do no harm."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqworker.model.dead_letter import decode_dead_letter, encode_letter
from mqworker.model.delivery import Delivery
from mqworker.model.names import MessageId, TaskName
from mqworker.model.settlement import Bury, Failure

RECORD = b"17000000000000--300100201m1 report \x00body"
DELIVERY = Delivery(1, MessageId("m1"), TaskName("report"), b"", 0)
TEXTS = st.text(max_size=200)


@given(reason=TEXTS, error=TEXTS, message=TEXTS, evidence=st.dictionaries(TEXTS, TEXTS, max_size=3))
def test_a_letter_comes_back_as_it_was(
    reason: str, error: str, message: str, evidence: dict[str, str]
) -> None:
    letter = encode_letter(Bury(DELIVERY, reason, Failure(error, message, "trace"), evidence))

    opened = decode_dead_letter(MessageId("m1"), 5, b"%d %b%b" % (len(letter), letter, RECORD))

    assert (opened.reason, opened.error, opened.error_message) == (reason, error, message)
    assert (opened.traceback, opened.evidence, opened.buried_at_ms) == ("trace", evidence, 5)
    assert opened.message is not None
    assert (opened.message.body, opened.message.deliveries) == (b"\x00body", 1)


def test_of_a_long_traceback_the_end_is_kept() -> None:
    letter = encode_letter(Bury(DELIVERY, "why", Failure("E", "", "x" * 100_000 + "the end")))

    opened = decode_dead_letter(MessageId("m1"), 5, b"%d %b" % (len(letter), letter))

    assert len(opened.traceback) == 16_384
    assert opened.traceback.endswith("the end")
    assert opened.message is None


@pytest.mark.parametrize("stored", [b"", b"x", b"5 {}", b"2 []", b"-3 abc", b"9 \xff\xfe", b"4 null"])
def test_foreign_data_is_an_undecodable_dead_letter(stored: bytes) -> None:
    opened = decode_dead_letter(MessageId("m1"), 5, stored)

    assert opened.reason == "undecodable"
    assert opened.message is None


@given(st.binary(max_size=100))
def test_no_bytes_break_the_reading_of_dead_letters(stored: bytes) -> None:
    opened = decode_dead_letter(MessageId("m1"), 5, stored)

    assert (opened.id, opened.buried_at_ms) == ("m1", 5)
