"""Batches that are gathered: until they are full, or their first one has waited."""

from __future__ import annotations

import pytest

from mqworker.actors.dispatcher.gathering import (
    MOST_GATHERED,
    Gathering,
    units_of,
)
from mqworker.actors.dispatcher.queue import Claimed, DispatchedQueue, KnownTasks
from mqworker.model.batch import BatchTerms, half_of
from mqworker.model.names import ConsumerName, QueueName
from mqworker.model.record import suspicion_mark
from mqworker.queues.work.calls import WorkQueueOptions

TERMS = BatchTerms(size=3, wait_ms=200, is_keyed=False)
KEYED = BatchTerms(size=3, wait_ms=200, is_keyed=True)


def claimed(fence: int, now_ms: int = 0, *, key: str = "", mark: str = "0", start_by_ms: int = 0) -> Claimed:
    extras, field = ("k", f"{key} ") if key else ("-", "")
    record = f"17000000000000-{extras}30000000{mark}id{fence} task {field}body".encode()
    return Claimed(fence, record, now_ms, start_by_ms)


@pytest.fixture
def queue() -> DispatchedQueue:
    made = DispatchedQueue(QueueName("q"), ConsumerName("node-1"), WorkQueueOptions())
    facts = {"queue": "q", "async": False, "once": False, "limited": False, "batch": [3, 200, False]}
    made.learn(1, KnownTasks.of({"task": facts}))
    return made


@pytest.fixture
def gathering() -> Gathering:
    return Gathering()


def ripe(gathering: Gathering) -> list[list[int]]:
    return [[each.fence for each in batch.members] for batch in gathering.take_ripe()]


def test_a_full_batch_is_ripe_at_once(gathering: Gathering, queue: DispatchedQueue) -> None:
    for fence in range(1, 8):
        gathering.add(queue, claimed(fence), TERMS, 0)

    assert ripe(gathering) == [[1, 2, 3], [4, 5, 6]]
    assert gathering.open == 1


def test_a_batch_that_is_not_full_waits_from_its_first_one_on(
    gathering: Gathering, queue: DispatchedQueue
) -> None:
    gathering.add(queue, claimed(1, 1_000), TERMS, 1_000)
    gathering.add(queue, claimed(2, 1_150), TERMS, 1_150)

    assert gathering.due_in_ms(1_150) == 50
    gathering.ripen(1_199)
    assert ripe(gathering) == []
    gathering.ripen(1_200)
    assert ripe(gathering) == [[1, 2]]
    assert gathering.due_in_ms(1_200) is None


def test_one_that_waits_for_nobody_takes_those_along_that_are_there(
    gathering: Gathering, queue: DispatchedQueue
) -> None:
    gathering.add(queue, claimed(1, 1_000), TERMS, 1_000)
    with_deadline = Claimed(2, b"17000000000000-d300000000id2 task 1800000000000 body", 1_010)
    gathering.add(queue, with_deadline, TERMS, 1_010)

    gathering.ripen(1_010)

    assert ripe(gathering) == [[1, 2]]


def test_one_with_a_permit_starts_while_it_lasts(gathering: Gathering, queue: DispatchedQueue) -> None:
    gathering.add(queue, claimed(1, 1_000, start_by_ms=1_100), TERMS, 1_000)

    assert gathering.due_in_ms(1_000) == 50


def test_only_those_with_the_same_key_run_together_and_who_has_none_runs_alone(
    gathering: Gathering, queue: DispatchedQueue
) -> None:
    for fence, key in enumerate(["a", "b", "a", "", "b", "a", ""], start=1):
        gathering.add(queue, claimed(fence, key=key), KEYED, 0)

    assert ripe(gathering) == [[4], [1, 3, 6], [7]]
    gathering.ripen(200)
    assert ripe(gathering) == [[2, 5]]


def test_a_node_gathers_no_more_than_so_many(gathering: Gathering, queue: DispatchedQueue) -> None:
    for fence in range(1, MOST_GATHERED + 3):
        gathering.add(queue, claimed(fence, key=f"k{fence}"), KEYED, 0)

    gathering.ripen(0)

    assert gathering.open == MOST_GATHERED
    assert ripe(gathering) == [[1], [2]]


def test_what_finds_no_worker_is_given_back_and_what_is_still_gathered_is_not(
    gathering: Gathering, queue: DispatchedQueue
) -> None:
    for fence in range(1, 5):
        gathering.add(queue, claimed(fence), TERMS, 0)
    (batch,) = gathering.take_ripe()
    batch.patience_ms = 100
    gathering.put_back(batch)

    assert gathering.take_overdue(100) == {}
    assert {of.name: [each.fence for each in some] for of, some in gathering.take_overdue(101).items()} == {
        "q": [1, 2, 3]
    }
    assert gathering.open == 1


def test_everything_goes_back_in_the_order_of_delivery(gathering: Gathering, queue: DispatchedQueue) -> None:
    for fence, key in ((5, "a"), (3, "b"), (4, "a"), (1, "a")):
        gathering.add(queue, claimed(fence, key=key), KEYED, 0)

    (taken,) = gathering.take_all().values()

    assert [each.fence for each in taken] == [1, 3, 4, 5]
    assert not gathering


def test_a_message_is_found_and_taken_wherever_it_waits(gathering: Gathering, queue: DispatchedQueue) -> None:
    for fence in range(1, 6):
        gathering.add(queue, claimed(fence), TERMS, 0)

    assert [each.fence for _, each in gathering.take_message(b"id5")] == [5]
    assert [each.fence for _, each in gathering.take_message(b"id2")] == [2]
    assert gathering.take_message(b"id9") == []
    assert sorted(gathering.fences_of(queue)) == [1, 3, 4]
    assert ripe(gathering) == [[1, 3]]


def test_suspects_of_a_batch_run_in_halves_and_others_by_themselves(queue: DispatchedQueue) -> None:
    marks = [suspicion_mark(2)] * 5 + ["S", "1", suspicion_mark(2)]
    lone = [(queue, claimed(fence, mark=mark)) for fence, mark in enumerate(marks, start=1)]

    units = [[each.fence for each in unit] for _, unit in units_of(lone)]

    assert units == [[1, 2], [3, 4], [5, 8], [6], [7]]


def test_a_batch_is_halved_until_one_is_alone() -> None:
    sizes = [10_000]
    while sizes[-1] > 1:
        sizes.append(half_of(sizes[-1]))

    assert sizes == [10_000, 8_192, 4_096, 2_048, 1_024, 512, 256, 128, 64, 32, 16, 8, 4, 2, 1]
    assert [half_of(size) for size in (1, 2, 3, 4, 5, 500)] == [1, 1, 2, 2, 4, 256]
