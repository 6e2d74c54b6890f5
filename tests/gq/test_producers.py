"""Producers: batches, what waits in the buffer, and what happens to it when the database is away."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from mqworker.errors import InvalidArgument, StoreUnavailable
from mqworker.queues.gq.client import GqClient
from mqworker.queues.gq.database import Deadline, GqOutgoing
from mqworker.queues.gq.producer import GqProducer
from mqworker.queues.gq.rules import GqStatus
from tests.support.deadline import wait_until


def queued(client: GqClient) -> int:
    return client.counts()[GqStatus.QUEUED]


def test_a_pushed_message_is_queued_on_return_with_id_1(client: GqClient) -> None:
    """Q01."""
    ids = client.producer().push(b"hello")

    assert ids == [1]
    record = client.find(1)
    assert record is not None
    assert (record.payload, record.status, record.consumer) == (b"hello", GqStatus.QUEUED, None)


def test_a_batch_is_written_when_it_is_full_in_order(client: GqClient) -> None:
    """Q02."""
    producer = client.producer(push_batch=3, linger_ms=None)

    early = [producer.push(b"a"), producer.push(b"b")]
    before = queued(client)
    ids = producer.push(b"c")

    assert (early, before, ids) == ([[], []], 0, [1, 2, 3])
    assert [client.find(id_).payload for id_ in ids] == [b"a", b"b", b"c"]


def test_flush_and_close_write_a_partial_batch(client: GqClient) -> None:
    """Q02."""
    producer = client.producer(push_batch=100, linger_ms=None)

    producer.push("flushed")
    flushed = producer.flush()
    producer.push("closed")
    closed = producer.close()

    assert (flushed, closed, producer.flush()) == ([1], [2], [])
    with pytest.raises(InvalidArgument):
        producer.push(b"too late")


def test_a_partial_batch_is_written_after_it_lingered(client: GqClient) -> None:
    producer = client.producer(push_batch=100, linger_ms=10)

    producer.push(b"alone")

    wait_until(lambda: queued(client) == 1, "the partial batch was pushed")
    assert producer.buffered == 0


def test_any_bytes_come_back_as_they_went(client: GqClient) -> None:
    payload = bytes(range(256)) + b"\r\n"
    client.producer().push(payload)
    client.producer().push(b"")

    assert [message.payload for message in client.consumer().pop()] == [payload, b""]


@pytest.mark.parametrize("push_batch", [0, -1, True, 1.5, 1_001])
def test_a_push_batch_out_of_bounds_is_a_value_error(client: GqClient, push_batch: Any) -> None:  # noqa: ANN401
    with pytest.raises(ValueError, match="push_batch"):
        client.producer(push_batch)


@pytest.mark.parametrize(
    ("payload", "deadline"),
    [
        (1, None),
        (b"x" * (1_048_576 + 1), None),
        (b"x", datetime(2030, 1, 1)),  # noqa: DTZ001 - the point of the test
        (b"x", "tomorrow"),
        (b"x", True),
        (b"x", float("nan")),
        (b"x", float("inf")),
    ],
)
def test_bad_input_is_refused_before_anything_is_buffered(
    client: GqClient, payload: bytes, deadline: Deadline | None
) -> None:
    producer = client.producer(push_batch=2, linger_ms=None)

    with pytest.raises(InvalidArgument):
        producer.push(payload, deadline)

    assert producer.buffered == 0


def test_deadlines_are_moments_or_times_from_now(client: GqClient) -> None:
    moment = datetime(2100, 1, 1, tzinfo=UTC)
    producer = client.producer(push_batch=4, linger_ms=None)

    for deadline in (moment, moment.timestamp(), timedelta(hours=1), timedelta(seconds=-5)):
        producer.push(b"x", deadline)

    records = [client.find(id_) for id_ in (1, 2, 3, 4)]
    at_ms = int(moment.timestamp() * 1000)
    assert [record.deadline_at_ms for record in records[:2]] == [at_ms, at_ms]
    assert records[2].deadline_at_ms == pytest.approx(records[2].created_at_ms + 3_600_000, abs=5)
    assert records[3].deadline_at_ms == pytest.approx(records[3].created_at_ms, abs=5)


class Flaky:
    """A store that carries out a push and then says that it could not."""

    def __init__(self, store: Any, failures: int) -> None:  # noqa: ANN401
        self._store = store
        self.failures = failures

    def prepare_push(self, messages: Sequence[GqOutgoing]) -> Callable[[], list[int]]:
        push = self._store.prepare_push(messages)

        def push_and_forget() -> list[int]:
            ids: list[int] = push()
            if self.failures:
                self.failures -= 1
                raise StoreUnavailable("the reply was lost")
            return ids

        return push_and_forget


def test_a_push_whose_answer_was_lost_is_kept_and_stored_once(client: GqClient) -> None:
    producer = GqProducer(Flaky(client.store, failures=2), push_batch=2, linger_ms=None)
    producer.push(b"a")

    with pytest.raises(StoreUnavailable):
        producer.push(b"b")
    with pytest.raises(StoreUnavailable):
        producer.push(b"c")
    kept = producer.buffered
    ids = producer.flush()

    assert (kept, ids, producer.buffered) == (3, [1, 2, 3], 0)
    assert [client.find(id_).payload for id_ in ids] == [b"a", b"b", b"c"]
    assert queued(client) == 3
