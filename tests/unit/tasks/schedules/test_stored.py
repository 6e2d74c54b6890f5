"""What is stored of schedules: what was written is read, and what a stranger wrote harms nobody."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqworker.errors import InvalidMessage
from mqworker.model.call_template import CallTemplate
from mqworker.model.names import QueueName
from mqworker.model.schedule import Cron, Every, Timing
from mqworker.tasks.schedules.history import Firing, decode_firings, encode_firings
from mqworker.tasks.schedules.mark import Mark, decode_mark, encode_mark
from mqworker.tasks.schedules.stored import ScheduleSpec, decode_stored, stored_words
from tests.support.messages import a_message

CALL = CallTemplate(QueueName("q"), a_message(b"\x00body"))
INSTANTS = st.integers(0, 10**13)
KINDS = st.sampled_from(["fired", "kept_out", "noted", "skipped", "waits", "run_now", "backfilled"])


def stored(spec: ScheduleSpec, owner: str = "data") -> bytes:
    _, times, queue, document = stored_words(spec)
    return f"7 {owner} 1700000000000 {times} {queue} {document}".encode()


@pytest.mark.parametrize("timing", [Every(60_000), Cron("0 3 * * *", "Europe/Berlin")])
@pytest.mark.parametrize("owner", ["data", "code:shop"])
def test_what_was_stored_is_read(timing: Timing, owner: str) -> None:
    spec = ScheduleSpec("acme/nightly", timing, "one", 500, CALL)

    read = decode_stored(b"acme/nightly", stored(spec, owner))

    assert (read.timing, read.catch_up, read.jitter_ms) == (timing, "one", 500)
    assert read.call.as_fields() == CALL.as_fields()
    assert (read.since_ms, read.revision, read.app) == (
        1_700_000_000_000,
        b"7",
        "shop" if owner == "code:shop" else None,
    )


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"rubbish",
        b"1 data 1 t q {}",
        b'1 data 1 t q {"version": 2}',
        b'1 data x t q {"version": 2}',
        b"1 data 1 t q " + b"[" * 100_000,
        b"\xff" * 100,
        stored(ScheduleSpec("a", Every(60_000), "one", 0, CALL)).replace(b"60000", b"1" * 400),
        stored(ScheduleSpec("a", Cron("0 3 * * *"), "one", 0, CALL)).replace(b"UTC", b"Nowhere"),
        stored(ScheduleSpec("a", Every(60_000), "one", 0, CALL)).replace(b'"one"', b'"some"'),
    ],
)
def test_what_a_stranger_stored_is_refused(text: bytes) -> None:
    with pytest.raises(InvalidMessage):
        decode_stored(b"a", text)


@given(st.builds(Mark, INSTANTS, st.booleans(), st.integers(0, 10**13)))
def test_a_mark_is_read_as_it_was_written(mark: Mark) -> None:
    assert decode_mark(encode_mark(mark).encode()) == mark


@pytest.mark.parametrize("text", [None, b"", b"for ever", b"-", b"1 x", b"9" * 400, b"\xff"])
def test_a_mark_that_nobody_can_read_is_none(text: bytes | None) -> None:
    assert decode_mark(text) is None


@given(st.lists(st.builds(Firing, KINDS, INSTANTS, INSTANTS, st.integers(0, 10_000)), max_size=30))
def test_the_newest_firings_are_read_as_they_were_written(firings: list[Firing]) -> None:
    assert decode_firings(encode_firings(firings).encode()) == firings[-20:]


@given(st.binary(max_size=300))
def test_firings_that_nobody_can_read_are_passed_over(text: bytes) -> None:
    assert all(isinstance(each, Firing) for each in decode_firings(text))
