"""Newest wins: a second call with the same key cancels the first, wherever that is."""

from __future__ import annotations

import pytest

from mqworker.model.guard import GuardMode, unique_guard
from mqworker.model.instant import After
from mqworker.model.message import Message
from mqworker.model.settlement import Ack, Failure, Release, RetryAt
from mqworker.queues.work.queue import WorkQueue
from mqworker.store.store import Store
from tests.support.messages import AN_HOUR_MS, Option, a_message, bodies
from tests.support.raw_queue import RawQueue

WAIT_S = 2.0


def _newest(body: bytes, **options: Option) -> Message:
    return a_message(body, guard=unique_guard("doc", GuardMode.NEWEST), **options)


def test_both_are_stored_and_only_the_newest_is_delivered(queue: WorkQueue) -> None:
    first, second, third = (_newest(b"%d" % number) for number in (1, 2, 3))
    stored = queue.enqueue(first) + queue.enqueue(second, third)

    delivered = queue.claim(10, consumer="north")

    assert [each.is_new for each in stored] == [True] * 3
    assert bodies(delivered) == [b"3"]
    assert [queue.find(each.id).state for each in (first, second)] == ["cancelled"] * 2
    assert queue.counts().totals["cancelled"] == 2


@pytest.mark.parametrize("options", [{"due": After(AN_HOUR_MS)}, {"limits": "t<=1"}])
def test_one_that_waits_with_an_index_is_cancelled_at_once(
    queue: WorkQueue, raw: RawQueue, options: Option
) -> None:
    first = _newest(b"1", deadline=After(AN_HOUR_MS), **options)
    queue.enqueue(first)
    queue.enqueue(_newest(b"2", **options))

    assert queue.find(first.id).state == "cancelled"
    assert raw.read().deadlines == {}
    assert queue.counts().delayed == 1


def test_one_that_is_held_is_asked_to_stop_and_does_not_come_back(store: Store, queue: WorkQueue) -> None:
    queue.enqueue(_newest(b"1"))
    (held,) = queue.claim(1, consumer="north")
    listening = store.connection.subscribe([queue.calls.keys.meta])
    try:
        queue.enqueue(_newest(b"2"))
        heard = [text for _, text in iter(lambda: listening.get(0.2), None)]
    finally:
        listening.close()

    assert f"cancel {held.id}".encode() in heard
    queue.settle(Release(held), consumer="north")
    assert queue.find(held.id).state == "cancelled"
    assert bodies(queue.claim(10, consumer="north")) == [b"2"]


def test_one_that_succeeds_all_the_same_does_not_let_go_of_the_key_of_the_newest(queue: WorkQueue) -> None:
    queue.enqueue(_newest(b"1"))
    (held,) = queue.claim(1, consumer="north")
    queue.enqueue(_newest(b"2"))
    queue.settle(Ack(held), consumer="north")

    queue.enqueue(_newest(b"3"))

    assert bodies(queue.claim(10, consumer="north")) == [b"3"]


def test_one_that_is_to_be_tried_again_makes_place(queue: WorkQueue) -> None:
    queue.enqueue(_newest(b"1"))
    (held,) = queue.claim(1, consumer="north")
    queue.settle(RetryAt(held, After(AN_HOUR_MS), Failure("X")), consumer="north")

    queue.enqueue(_newest(b"2"))

    assert queue.find(held.id).state == "cancelled"
    assert queue.counts().delayed == 0


def test_when_it_is_settled_the_key_is_free(queue: WorkQueue, raw: RawQueue) -> None:
    queue.enqueue(_newest(b"1"))
    queue.settle(*map(Ack, queue.claim(1, consumer="north")), consumer="north")

    assert raw.read().guards == {}


def test_with_one_slot_the_newest_begins_when_the_other_has_ended(queue: WorkQueue) -> None:
    queue.enqueue(_newest(b"1", limits="t:doc<=1"))
    queue.admit(10)
    (held,) = queue.claim(1, consumer="north")
    queue.enqueue(_newest(b"2", limits="t:doc<=1"))
    queue.enqueue(_newest(b"3", limits="t:doc<=1"))
    queue.admit(10)
    assert queue.claim(10, consumer="north") == []

    queue.settle(Release(held), consumer="north")
    queue.admit(10)

    assert bodies(queue.claim(10, consumer="north")) == [b"3"]
