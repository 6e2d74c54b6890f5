"""Events: blocks come back as they were, and say what happened."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqworker.model.delivery import Delivery, UnreadableDelivery
from mqworker.model.event import (
    COLUMNS,
    COMPRESSED,
    COMPRESSED_COLUMNS,
    IDS,
    PLAIN,
    decode_block,
    encode_block,
    enqueued_block,
    settled_block,
    settled_line,
)
from mqworker.model.message import Message
from mqworker.model.names import MessageId, TaskName
from mqworker.model.settlement import Ack, Bury, Crash, Failure, Release, RetryAt, Run, Settlement

IDENTIFIERS = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.:@/+=~-]{0,20}", fullmatch=True)
TASKS = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,20}", fullmatch=True)


def a_delivery(message: str = "m1", task: str = "report", **counts: int) -> Delivery:
    return Delivery(7, MessageId(message), TaskName(task), b"", 1_000, **counts)


@given(st.lists(st.dictionaries(st.text(), st.text() | st.integers() | st.none()), min_size=1, max_size=50))
def test_a_block_comes_back_as_it_was(events: list[dict[str, object]]) -> None:
    block = encode_block([json.dumps(event) for event in events])

    assert decode_block(block.codec, block.data) == events


def test_short_blocks_stay_plain_and_long_ones_are_compressed() -> None:
    short, long = encode_block(['{"a":1}']), encode_block(['{"a":1}'] * 100)

    assert (short.codec, long.codec) == (PLAIN, COMPRESSED)
    assert len(long.data) < 100


@given(
    st.lists(
        st.tuples(IDENTIFIERS, TASKS, st.integers(0, 999), st.integers(0, 2**43), st.integers(0, 10**9)),
        min_size=1,
        max_size=60,
    )
)
def test_runs_that_succeeded_come_back_from_their_columns(
    given_runs: list[tuple[str, str, int, int, int]],
) -> None:
    acks = [
        Ack(
            Delivery(7, MessageId(message), TaskName(task), b"", at_ms, deliveries=earlier),
            b"",
            Run("worker:0", "node-1", at_ms + 5, run_us / 1000),
        )
        for message, task, earlier, at_ms, run_us in given_runs
    ]

    block = settled_block(acks)

    assert block.codec in {COLUMNS, COMPRESSED_COLUMNS}
    assert decode_block(block.codec, block.data) == [json.loads(settled_line(ack)) for ack in acks]


@given(st.lists(st.tuples(IDENTIFIERS, TASKS), min_size=1, max_size=20))
def test_enqueued_messages_are_all_reported_in_order(pairs: list[tuple[str, str]]) -> None:
    messages = [Message(MessageId(message), b"", TaskName(task)) for message, task in pairs]

    block = enqueued_block(messages)

    events = decode_block(block.codec, block.data)
    assert [(event["task_id"], event["task"]) for event in events] == pairs
    assert {event["event"] for event in events} == {"enqueued"}


def test_messages_of_one_task_take_the_short_form() -> None:
    messages = [Message(MessageId(f"m{n}"), b"", TaskName("report")) for n in range(3)]

    assert enqueued_block(messages).codec == IDS


@pytest.mark.parametrize("tasks", [("a", "a", "a"), ("a", "b", "a")])
def test_what_did_not_happen_is_left_out(tasks: tuple[str, ...]) -> None:
    messages = [Message(MessageId(f"m{n}"), b"", TaskName(task)) for n, task in enumerate(tasks)]
    block = enqueued_block(messages)

    events = decode_block(block.codec, block.data, frozenset({0, 2}))

    assert [event["task_id"] for event in events] == ["m1"]


@pytest.mark.parametrize(
    ("settlement", "name"),
    [
        (Ack(a_delivery()), "succeeded"),
        (RetryAt(a_delivery()), "retried"),
        (Release(a_delivery()), "released"),
        (Crash(a_delivery()), "crashed"),
        (Bury(a_delivery(), "why"), "buried"),
        (Bury(UnreadableDelivery(7, b"?", "no record"), "undecodable"), "buried"),
    ],
)
def test_each_end_of_a_delivery_has_its_event(settlement: Settlement, name: str) -> None:
    assert json.loads(settled_line(settlement))["event"] == name


@given(error=st.text(), text=st.text(max_size=2_000), reason=st.text())
def test_any_error_text_makes_a_readable_event(error: str, text: str, reason: str) -> None:
    settlements: list[Settlement] = [
        RetryAt(a_delivery(), failure=Failure(error, text)),
        Bury(a_delivery(), reason),
        Bury(UnreadableDelivery(1, b"\xff", "x"), reason),
    ]

    block = settled_block(settlements)

    retried, buried, unreadable = decode_block(block.codec, block.data)
    assert (retried["error"], retried["error_msg"]) == (error, text[:500])
    assert buried["error"] == unreadable["error"] == reason


def test_an_event_tells_the_times_of_the_run() -> None:
    run = Run(worker="w1", node="n1", started_at_ms=1_500, run_ms=12.3456)
    delivery = Delivery(7, MessageId("m"), TaskName("t"), b"", 1_000, deliveries=2, deadline_at_ms=9_000)

    event = json.loads(settled_line(Ack(delivery, run=run)))

    assert event == {
        "event": "succeeded",
        "task_id": "m",
        "task": "t",
        "attempt": 3,
        "enqueued_at": 1_000,
        "worker": "w1",
        "node": "n1",
        "started_at": 1_500,
        "wait_ms": 500,
        "run_ms": 12.346,
        "deadline_at": 9_000,
    }
