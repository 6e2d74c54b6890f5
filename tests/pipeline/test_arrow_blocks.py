"""Blocks in bulk give the same rows as blocks one by one, and a broken block neither stops nor vanishes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqworker.events import StoredBlock
from mqworker.model.delivery import Delivery
from mqworker.model.event import Block, decode_block, enqueued_block, settled_block
from mqworker.model.message import Message
from mqworker.model.names import MessageId, TaskName
from mqworker.model.settlement import Ack, Failure, RetryAt, Run, Settlement
from mqworker_services.pipeline.arrow_blocks import record_batches
from mqworker_services.pipeline.schema import ARROW_SCHEMA, shard_of

AT_MS = 1_790_000_000_123


def stored(block: Block, count: int, number: int = 0, void: frozenset[int] = frozenset()) -> StoredBlock:
    return StoredBlock(f"{AT_MS + number}-{number}", block.codec, block.data, count, void)


def rows_of(*blocks: StoredBlock) -> list[dict[str, Any]]:
    rows = [row for batch in record_batches("mail", blocks) for row in batch.to_pylist()]
    return sorted(rows, key=lambda row: (row["block"], row["seq"]))


def enqueued(*ids: str, task: str = "send") -> Block:
    return enqueued_block([Message(MessageId(each), b"", TaskName(task)) for each in ids])


def succeeded(*ids: str) -> list[Settlement]:
    run = Run("worker:1", "node-1", AT_MS + 40, 12.345)
    return [Ack(Delivery(1, MessageId(each), TaskName("send"), b"", AT_MS), b"", run) for each in ids]


def test_an_enqueued_event_says_where_and_when() -> None:
    (row,) = rows_of(stored(enqueued("m1"), 1))

    assert row["event"] == "enqueued"
    assert (row["task_id"], row["task"], row["queue"], row["model"]) == ("m1", "send", "mail", "work")
    assert (row["shard"], row["block"], row["seq"]) == (shard_of("mail"), f"{AT_MS}-0", 0)
    assert row["ts"].timestamp() == AT_MS / 1000
    assert row["run_ms"] is None


def test_a_run_that_succeeded_tells_all_its_times() -> None:
    (row,) = rows_of(stored(settled_block(succeeded("m1")), 1))

    assert (row["event"], row["attempt"], row["worker"], row["node"]) == (
        "succeeded",
        1,
        "worker:1",
        "node-1",
    )
    assert row["enqueued_at"].timestamp() == AT_MS / 1000
    assert (row["wait_ms"], row["run_ms"]) == (40.0, 12.345)


def test_batches_have_exactly_the_schema() -> None:
    blocks = [stored(enqueued("a", "b"), 2), stored(settled_block(succeeded("c")), 1, 1)]

    assert [batch.schema for batch in record_batches("mail", blocks)] == [ARROW_SCHEMA, ARROW_SCHEMA]


def test_what_did_not_happen_is_left_out_and_positions_stay() -> None:
    rows = rows_of(stored(enqueued("a", "b", "c"), 3, void=frozenset({0, 2})))

    assert [(row["task_id"], row["seq"]) for row in rows] == [("b", 1)]


IDS = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,12}", fullmatch=True)
TASKS = st.sampled_from(["send", "report", "crawl.page"])


@st.composite
def settlements(draw: st.DrawFn) -> Settlement:
    enqueued_at_ms = draw(st.integers(1_000, 2**42))
    delivery = Delivery(
        1,
        MessageId(draw(IDS)),
        TaskName(draw(TASKS)),
        b"",
        enqueued_at_ms,
        deliveries=draw(st.integers(0, 20)),
    )
    run = Run(
        "worker:1",
        "node-1",
        enqueued_at_ms + draw(st.integers(-5, 10**6)),
        draw(st.integers(0, 10**8)) / 1000,
    )
    if draw(st.booleans()):
        return Ack(delivery, b"", run)
    return RetryAt(delivery, failure=Failure(draw(st.text(max_size=20)), draw(st.text(max_size=50))), run=run)


@settings(deadline=None)
@given(st.lists(st.lists(settlements(), min_size=1, max_size=12), min_size=1, max_size=6))
def test_in_bulk_and_one_by_one_give_the_same(batches: list[list[Settlement]]) -> None:
    blocks = [stored(settled_block(batch), len(batch), number) for number, batch in enumerate(batches)]

    rows = rows_of(*blocks)

    single = [event for block in blocks for event in decode_block(block.codec, block.data)]
    assert len(rows) == len(single)
    for row, event in zip(rows, single, strict=True):
        for name in ("event", "task_id", "task", "attempt", "worker", "node", "error", "error_msg"):
            assert row[name] == event.get(name)
        for name in ("wait_ms", "run_ms"):
            assert row[name] == pytest.approx(event[name])
        assert round(row["started_at"].timestamp() * 1000) == event["started_at"]


@pytest.mark.parametrize(
    ("codec", "data"),
    [
        ("z", b"not zlib"),
        ("j", b'{"event": "succeeded"'),
        ("j", b'{"event": "succeeded", "attempt": "many"}'),
        ("j", b"[1, 2]"),
        ("j", b'{"event": "a"}\n{"event": "b"}'),
        ("e", b"task-without-ids"),
        ("e", b"\xff\xff m1"),
        ("c", b"short"),
        ("s", b"one\ntwo"),
        ("s", b"w n 1\nsend\nm1\n7\n\n0\n0\n0"),
        ("x", b"from the future"),
        ("j", b'{"event": "retried", "attempt": 99999999999}'),
        ("j", b'{"event": "retried", "enqueued_at": 9223372036854775807}'),
    ],
)
def test_a_broken_block_becomes_a_row_that_says_so(codec: str, data: bytes) -> None:
    broken = StoredBlock(f"{AT_MS + 1}-1", codec, data, 1)

    rows = rows_of(stored(enqueued("m1"), 1), broken, stored(settled_block(succeeded("m2")), 1, 2))

    assert [row["event"] for row in rows] == ["enqueued", "unreadable", "succeeded"]
    assert rows[1]["error_msg"]
    assert rows[1]["block"] == broken.id


def test_half_a_character_in_an_error_is_no_obstacle() -> None:
    failure = Failure("OSError", "no file \udcff")
    delivery = Delivery(1, MessageId("m"), TaskName("send"), b"", AT_MS)

    (row,) = rows_of(stored(settled_block([RetryAt(delivery, failure=failure)]), 1))

    assert row["event"] == "retried"
    assert row["error_msg"].startswith("no file ")


def test_numbers_that_lua_wrote_as_floats_are_read() -> None:
    line = b'{"event":"retried","task_id":"m","attempt":2.0,"enqueued_at":1.79e+12}'

    (row,) = rows_of(StoredBlock(f"{AT_MS}-0", "j", line, 1))

    assert (row["event"], row["attempt"]) == ("retried", 2)
    assert row["enqueued_at"].timestamp() == 1_790_000_000
