"""Trace contexts: what is read from headers, what is refused, and the ids that a delivery always has."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqworker.model.trace_context import Sampling, TraceContext, context_in, context_of_run

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SENDER = TraceContext(int(TRACE, 16), int(SPAN, 16))


def test_a_context_is_read_as_it_was_written() -> None:
    sender = TraceContext(1, 2, is_sampled=True, state="shop=1,other=2")

    assert sender.traceparent == "00-00000000000000000000000000000001-0000000000000002-01"
    assert context_in(sender.headers()) == sender


@pytest.mark.parametrize(
    ("text", "is_sampled"),
    [
        (f"00-{TRACE}-{SPAN}-01", True),
        (f"00-{TRACE}-{SPAN}-00", False),
        (f"00-{TRACE}-{SPAN}-03", True),
        (f"01-{TRACE}-{SPAN}-01-what comes later", True),
    ],
)
def test_what_the_standard_allows_is_read(text: str, *, is_sampled: bool) -> None:
    assert context_in({"traceparent": text}) == TraceContext(SENDER.trace_id, SENDER.span_id, is_sampled)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "00",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f" 00-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01\n",
        f"00-{TRACE}-{SPAN}-zz",
    ],
)
def test_what_it_does_not_allow_is_no_context_and_no_error(text: str) -> None:
    assert context_in({"traceparent": text}) is None


def test_a_tracestate_that_is_too_long_is_left_out_and_nothing_else() -> None:
    found = context_in({"traceparent": SENDER.traceparent, "tracestate": "a=1," * 1_000})

    assert found == SENDER


def test_a_delivery_always_has_the_same_ids_and_no_other_has_them() -> None:
    one = context_of_run("mail", "m-1", 7, None, "link")

    assert context_of_run("mail", "m-1", 7, None, "link") == one
    assert context_of_run("mail", "m-1", 7, SENDER, "link") == one
    others = [("mail", "m-1", 8), ("mail", "m-2", 7), ("post", "m-1", 7)]
    assert all(context_of_run(*other, None, "link").span_id != one.span_id for other in others)


def test_as_a_child_it_is_in_the_trace_of_its_sender() -> None:
    child = context_of_run("mail", "m-1", 7, SENDER, "parent")

    assert child.trace_id == SENDER.trace_id
    assert child.span_id == context_of_run("mail", "m-1", 7, None, "parent").span_id


def test_the_sender_decides_whether_a_run_is_recorded_and_else_a_share_is() -> None:
    everything, nothing, some = Sampling(1.0), Sampling(0.0), Sampling(0.1)
    ids = [f"0VbIJCeTrpWhR{number:05}" for number in range(10_000)]

    assert all(everything.takes(each, None) for each in ids)
    assert not any(nothing.takes(each, None) for each in ids)
    assert 800 < sum(some.takes(each, None) for each in ids) < 1_200
    assert nothing.takes("m-1", SENDER)
    assert not everything.takes("m-1", SENDER._replace(is_sampled=False))


@given(st.text())
def test_no_text_makes_reading_fail(text: str) -> None:
    assert context_in({"traceparent": text, "tracestate": text}) is None
