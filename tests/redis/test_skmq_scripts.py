"""The scripts of SKMQ: refused whole before a foreign key, and harmless when their call is sent twice."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import mqworker.queues.skmq
from mqworker.errors import StoreRefused
from mqworker.model.guard import GuardMode, chosen_id_guard, unique_guard
from mqworker.model.names import ConsumerName, MessageId, QueueName
from mqworker.queues.skmq.calls import IndexEntry, SkmqCalls, SkmqQueueCalls
from mqworker.queues.work.queue import WorkQueue
from mqworker.store.script import Call
from mqworker.store.store import Store
from tests.support.messages import a_message
from tests.support.raw_queue import RawQueue
from tests.support.real_server import RealServer

QUEUE = QueueName("skmq.app")
OTHER = QueueName("skmq.other")
CONSUMER = ConsumerName("gateway-1")
NEWS = MessageId("news~t1")
ENTRY = "2 127.0.0.1 4000 one"
CALLS = SkmqCalls("mqw")
APP: SkmqQueueCalls = CALLS.of_queue(QUEUE)


@pytest.fixture
def raw(server: RealServer, store: Store) -> Iterator[RawQueue]:
    with server.client() as client:
        yield RawQueue(client, WorkQueue(QUEUE, store).calls.keys)


def fill(store: Store) -> int:
    """A message that is held, a topic with one copy, two recipients; the fence of what is held."""
    queue = WorkQueue(QUEUE, store)
    store.run(CALLS.reserve(QUEUE, [("m", "m~q1"), ("news", NEWS)]))
    queue.enqueue(a_message(id="m~q1", guard=unique_guard("m", GuardMode.UNTIL_SETTLED)))
    [held] = queue.claim(1, consumer=CONSUMER)
    for key in ("one", "two"):
        store.run(CALLS.move(key, QUEUE))
        store.run(APP.register(key, ENTRY))
    store.run(APP.assign([""]))
    store.run(APP.split(NEWS))
    copy = MessageId(f"{NEWS}~one")
    queue.enqueue(a_message(id=copy, guard=chosen_id_guard(copy)))
    store.run(CALLS.note([("m", IndexEntry(QUEUE, "m~q1", CONSUMER, held.fence))]))
    return held.fence


def calls_of(fence: int) -> list[Call[Any]]:
    """One call of every script, on what is there."""
    return [
        CALLS.reserve(QUEUE, [("m", "m~q2"), ("new", "new~q3")]),
        CALLS.reserve(QUEUE, [("m", "m~q2")], gone_id="m~q1"),
        CALLS.note([("m", IndexEntry(QUEUE, "m~q1", CONSUMER, fence))]),
        CALLS.forget([("m", "m~q1"), ("news", "another")]),
        CALLS.find(["m", "unknown"]),
        CALLS.move("one", OTHER),
        CALLS.queues(),
        APP.holder("key:m"),
        APP.assign(["", "one", "unknown"]),
        APP.split(NEWS),
        APP.split("later~t2"),
        APP.outstanding(NEWS),
        APP.register("one", ENTRY),
        APP.register("three", ENTRY),
        APP.lose("one", "127.0.0.1 4000"),
        APP.leave("one"),
        APP.recipients(),
        APP.peek(CONSUMER, fence),
    ]


CALL_COUNT = 18
COUNTS_ONCE_MORE = {"assign"}
"""Its contract: sent twice, shares are shifted by one delivery and nothing else happens."""
KNOWS_NO_OLD_QUEUE = {"move"}
"""Its contract: the second time the old queue is not told; what is stored is the same."""


@pytest.mark.parametrize("number", range(CALL_COUNT))
def test_a_foreign_key_is_refused_with_nothing_half_written(store: Store, raw: RawQueue, number: int) -> None:
    refused = 0
    for position in range(2):
        raw.client.flushall()
        call = calls_of(fill(store))[number]
        if position >= len(call.keys):
            continue
        key = call.keys[position]
        raw.client.delete(key)
        raw.client.set(key, "foreign")
        before = raw.dump()
        try:
            store.run(call)
        except StoreRefused:
            refused += 1
            assert raw.dump() == before, f"{call.script.name} half-wrote with a foreign {key}"
        else:
            assert raw.client.get(key) == b"foreign", f"{call.script.name} overwrote a foreign {key}"

    assert refused > 0


@pytest.mark.parametrize("number", range(CALL_COUNT))
def test_a_call_sent_again_answers_the_same_and_changes_nothing(
    store: Store, raw: RawQueue, number: int
) -> None:
    call = calls_of(fill(store))[number]
    first = store.run(call)
    before = without_stamps(raw.dump())

    second = store.run(call)

    name = call.script.name
    if name in {"forget", "leave", "lose"}:
        assert (first, second) == (1, 0)  # done, and nothing left to do
    elif name not in COUNTS_ONCE_MORE | KNOWS_NO_OLD_QUEUE:
        assert second == first
    if name not in COUNTS_ONCE_MORE:
        assert without_stamps(raw.dump()) == before


def test_an_assignment_sent_again_shifts_shares_by_one_delivery(store: Store, raw: RawQueue) -> None:
    fill(store)
    before = raw.dump()

    for _ in range(2):
        store.run(APP.assign([""]))

    assigned = {key: raw.client.hgetall(key) for key in raw.client.keys("*assigned")}
    assert [sum(map(int, counts.values())) for counts in assigned.values()] == [3]
    assert {key: value for key, value in raw.dump().items() if key not in assigned} == {
        key: value for key, value in before.items() if key not in assigned
    }


def test_every_script_of_the_model_is_called_here(store: Store) -> None:
    calls = calls_of(fill(store))
    folder = Path(mqworker.queues.skmq.__file__).parent / "scripts"

    assert len(calls) == CALL_COUNT
    assert {call.script.name for call in calls} == {path.stem for path in folder.glob("*.lua")}


def without_stamps(dump: dict[Any, Any]) -> dict[Any, Any]:
    """The index notes when: a later instant of the same entry is not a change."""
    return {
        key: {name: re.sub(rb"^\d{13} ", b"", entry) for name, entry in value.items()}
        if key.endswith(b":messages")
        else value
        for key, value in dump.items()
    }
