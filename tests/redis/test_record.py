"""The record: what Python writes Lua reads, and the other way round; both tell a record from other bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from mqworker.errors import InvalidMessage
from mqworker.model.guard import GuardMode, chosen_id_guard, unique_guard
from mqworker.model.instant import After
from mqworker.model.message import Message
from mqworker.model.names import MessageId, TaskName
from mqworker.model.record import batch_key_of, decode_record, has_deadline, most_together
from mqworker.model.settlement import Bury, Crash, Release, RetryAt, Suspect
from mqworker.queues.work.queue import WorkQueue
from mqworker.store.script import part_of
from tests.support.messages import AN_HOUR_MS, open_store
from tests.support.real_server import RealServer

ON_A_SERVER = settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
Client: TypeAlias = Any
"""redis-py types every reply as maybe awaitable."""

IDS = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.:@/+=~-]{0,30}", fullmatch=True)
TASKS = st.just("-") | st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,30}", fullmatch=True)
GOOD = b"17000000000000--300000000id task body"

IS_RECORD = """
{part}
return is_record(ARGV[1]) and {{1, id_and_task(ARGV[1])}} or {{0}}
"""


@st.composite
def messages(draw: st.DrawFn) -> Message:
    """Any message that a queue accepts."""
    message = MessageId(draw(IDS))
    mode = draw(st.sampled_from([None, *GuardMode]))
    guard = None
    if mode is GuardMode.CHOSEN_ID:
        guard = chosen_id_guard(message)
    elif mode is not None:
        guard = unique_guard(draw(st.text(min_size=1, max_size=250)), mode, ttl_ms=AN_HOUR_MS)
    return Message(
        id=message,
        body=draw(st.binary(max_size=60)),
        task=TaskName(draw(TASKS)),
        priority=draw(st.integers(0, 9)),
        deadline=draw(st.sampled_from([None, After(AN_HOUR_MS)])),
        guard=guard,
        max_crashes=draw(st.none() | st.integers(10, 35)),
        batch_key=draw(st.none() | st.from_regex(r"[A-Za-z0-9_.:@/+~-]{1,100}", fullmatch=True)),
    )


@pytest.fixture
def queue(server: RealServer) -> Iterator[WorkQueue]:
    store = open_store(server.url)
    yield WorkQueue("q", store)
    store.close()


@pytest.fixture
def client(server: RealServer) -> Iterator[Client]:
    with server.client() as opened:
        yield opened


@ON_A_SERVER
@given(message=messages(), endings=st.lists(st.sampled_from([RetryAt, Release, Crash]), max_size=4))
@example(message=Message(MessageId("1"), b"1 2 3 ", TaskName("1700000000000")), endings=[RetryAt])
def test_whatever_was_enqueued_is_what_is_claimed(
    queue: WorkQueue, client: Client, message: Message, endings: list[Any]
) -> None:
    client.flushall()
    queue.enqueue(message)
    for ending in endings:
        queue.settle(ending(queue.claim()[0]))

    delivery = queue.claim()[0]

    assert (delivery.id, delivery.task, delivery.body) == (message.id, message.task, message.body)
    assert (delivery.priority, delivery.max_crashes) == (message.priority, message.max_crashes)
    assert delivery.deliveries == len(endings)
    assert (delivery.failures, delivery.crashes) == (endings.count(RetryAt), endings.count(Crash))
    if message.deadline is None:
        assert delivery.deadline_at_ms is None
    else:
        assert delivery.deadline_at_ms == delivery.enqueued_at_ms + AN_HOUR_MS


@ON_A_SERVER
@given(message=messages())
def test_lua_finds_the_body_that_python_wrote(queue: WorkQueue, client: Client, message: Message) -> None:
    client.flushall()
    queue.enqueue(message)

    inspected = queue.inspect(0, 1)

    assert inspected == [(message.id, message.body)]
    assert queue.pop() == inspected


def mutated(record: bytes, position: int, byte: int) -> bytes:
    """One byte of a record replaced."""
    at = position % len(record)
    return record[:at] + bytes([byte]) + record[at + 1 :]


RECORDS = st.sampled_from(
    [
        GOOD,
        b"17000000000005r-3001002031-2 - k body",
        b"17000000000000-d-000000000id task 1800000000000 body",
        b"17000000000009idz999999999id task id:id 1800000000000 body",
        b"17000000000000--3000000pSid task body",
        b"17000000000000--3000000Zzid task body",
        b"17000000000000-k30000000Aid task key body",
        b"17000000000000wD30000000Mid task guard 1800000000000 key body",
        b"17000000000000-L300000000id task a=1/2/3 key body",
        b"17000000000000-B300000000id task 1800000000000 5;a=1/2/3&7 key body",
    ]
)


@ON_A_SERVER
@given(
    text=st.binary(max_size=80)
    | st.builds(mutated, RECORDS, st.integers(0, 60), st.integers(0, 255))
    | st.builds(lambda record, end: record[:end], RECORDS, st.integers(0, 60))
)
@example(text=b"")
@example(text=b"-")
@example(text=b"17000000000000-d300000000id task no-deadline ")
@example(text=b"17000000000000r-300000000id task ")
@example(text=b" 1700000000000--300000000id task body")
@example(text=b"1_7000000000000--30000000id task body")
@example(text=b'17000000000000--300000000id"} task body')
@example(text="\N{ARABIC-INDIC DIGIT ONE}700000000000--300000000id task body".encode())
def test_both_sides_take_the_same_bytes_for_a_record(client: Client, text: bytes) -> None:
    verdict = client.eval(IS_RECORD.format(part=part_of("mqworker.queues.work", "record")), 0, text)

    try:
        delivery = decode_record(text, 1)
    except InvalidMessage:
        assert verdict == [0]
    else:
        assert verdict[:2] == [1, delivery.id.encode()]


@ON_A_SERVER
@given(message=messages())
def test_the_key_of_its_batch_stays_with_a_message_through_retries_suspicion_and_revival(
    queue: WorkQueue, client: Client, message: Message
) -> None:
    client.flushall()
    queue.enqueue(message)
    held = queue.calls.keys.held(None)

    def record() -> bytes:
        delivery = queue.claim()[0]
        # Any: what redis-py answers.
        found: Any = client.hget(held, delivery.fence)
        queue.settle(Suspect(delivery, most=4) if most_together(found) == 0 else Bury(delivery, "given up"))
        return bytes(found)

    first, second = record(), record()
    queue.revive(message.id)
    third = record()

    key = None if message.batch_key is None else message.batch_key.encode()
    assert [batch_key_of(each) for each in (first, second, third)] == [key] * 3
    assert [most_together(each) for each in (first, second, third)] == [0, 4, 0]
    assert [has_deadline(each) for each in (first, second, third)] == [message.deadline is not None] * 2 + [
        False
    ]


@pytest.mark.parametrize("most", [1, 2, 4, 256, 8_192])
def test_a_suspicion_says_how_many_may_run_together(queue: WorkQueue, client: Client, most: int) -> None:
    queue.enqueue(Message(MessageId("id"), b"body", TaskName("task")))

    queue.settle(Suspect(queue.claim()[0], most=most))

    delivery = queue.claim()[0]
    # Any: what redis-py answers.
    record: Any = client.hget(queue.calls.keys.held(None), delivery.fence)
    assert (delivery.is_suspect, delivery.crashes, most_together(record)) == (True, 0, most)
    queue.settle(RetryAt(delivery))
    assert not queue.claim()[0].is_suspect


def test_counts_stop_where_the_header_ends(queue: WorkQueue, client: Client) -> None:
    client.rpush(queue.calls.keys.named("ready"), b"17000000000000---999999pzid task body")

    queue.settle(RetryAt(queue.claim()[0]))
    queue.settle(Crash(queue.claim()[0]))

    delivery = queue.claim()[0]
    assert (delivery.deliveries, delivery.failures, delivery.crashes) == (999, 999, 35)
