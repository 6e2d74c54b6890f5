"""Losses: a consumer vanished with what it held. Counted, bounded, forgotten when the message has ended."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mqworker.model.delivery import Delivery
from mqworker.model.names import ConsumerName
from mqworker.model.record import is_on_probation
from mqworker.model.settlement import Ack, Crash, Release, RetryAt, Settlement, Suspect
from mqworker.queues.work.queue import WorkQueue
from tests.support.messages import a_message, open_store
from tests.support.real_server import RealServer

HOLDER = ConsumerName("north")


@pytest.fixture
def queue(server: RealServer) -> Iterator[WorkQueue]:
    store = open_store(server.url)
    yield WorkQueue("q", store)
    store.close()


def claimed(queue: WorkQueue) -> Delivery:
    (delivery,) = queue.claim(consumer=HOLDER)
    assert isinstance(delivery, Delivery)
    return delivery


def settled(queue: WorkQueue, settlement: Settlement) -> Delivery:
    """The message as it comes back."""
    queue.settle(settlement, consumer=HOLDER)
    return claimed(queue)


def begin_probation(queue: WorkQueue, delivery: Delivery) -> bytes | None:
    return queue.store.run(queue.calls.begin_probation(delivery.fence, HOLDER))


def lose(queue: WorkQueue, times: int) -> Delivery:
    """Lost so often, and claimed again."""
    delivery = claimed(queue)
    for _ in range(times):
        queue.reap_dead(HOLDER)
        delivery = claimed(queue)
    return delivery


def test_what_a_vanished_consumer_held_counts_a_loss_and_nothing_else(queue: WorkQueue) -> None:
    queue.enqueue(a_message())

    delivery = lose(queue, 3)

    assert (delivery.losses, delivery.crashes, delivery.failures, delivery.attempt) == (3, 0, 0, 4)


def test_losses_are_counted_as_far_as_the_record_goes(queue: WorkQueue) -> None:
    queue.enqueue(a_message())

    assert lose(queue, 30).losses == 25


def test_a_consumer_whose_node_took_leave_of_it_counts_none(queue: WorkQueue) -> None:
    queue.enqueue(a_message())
    lose(queue, 1)

    queue.reap(HOLDER, silent_ms=0)

    assert claimed(queue).losses == 1


def test_what_is_given_back_keeps_its_losses_and_what_failed_has_ended(queue: WorkQueue) -> None:
    queue.enqueue(a_message())
    delivery = lose(queue, 2)

    released = settled(queue, Release(delivery))
    crashed = settled(queue, Crash(released))
    failed = settled(queue, RetryAt(crashed))

    assert [each.losses for each in (released, crashed, failed)] == [2, 2, 0]


def test_a_suspect_stays_one_until_it_has_ended_once(queue: WorkQueue) -> None:
    queue.enqueue(a_message())

    suspect = settled(queue, Suspect(claimed(queue), "SIGKILL"))
    released = settled(queue, Release(suspect))
    queue.reap_dead(HOLDER)
    lost = claimed(queue)
    failed = settled(queue, RetryAt(lost))

    assert [each.is_suspect for each in (suspect, released, lost, failed)] == [True, True, True, False]
    assert {each.crashes for each in (suspect, released, lost, failed)} == {0}


def test_a_suspect_that_kills_its_worker_alone_has_crashed_once(queue: WorkQueue) -> None:
    queue.enqueue(a_message())

    crashed = settled(queue, Crash(settled(queue, Suspect(claimed(queue)))))
    beside_others = settled(queue, Suspect(crashed))

    assert (crashed.crashes, crashed.is_suspect) == (1, False)
    assert beside_others.crashes == 1


def test_what_is_lost_on_probation_is_buried_and_nothing_else_is(queue: WorkQueue) -> None:
    queue.enqueue(a_message(b"poison"), a_message(b"beside"))
    first, second = queue.claim(2, consumer=HOLDER)
    assert isinstance(first, Delivery)

    record = begin_probation(queue, first)
    released = queue.reap_dead(HOLDER)

    (letter,) = queue.dead_letters()
    assert record is not None
    assert is_on_probation(record)
    assert released == 2
    assert (letter.id, letter.reason, letter.error) == (first.id, "lost", "NodeLost")
    assert letter.error_message.startswith("its node vanished once")
    assert letter.message is not None
    assert (letter.message.body, letter.message.losses) == (b"poison", 1)
    assert isinstance(second, Delivery)
    assert (claimed(queue).id, queue.claim()) == (second.id, [])


@pytest.mark.parametrize("ending", [Release, RetryAt, Crash, Suspect])
def test_a_probation_ends_with_the_delivery_however_that_ends(
    queue: WorkQueue, ending: type[Release]
) -> None:
    queue.enqueue(a_message())
    begin_probation(queue, first := lose(queue, 2))
    settled(queue, ending(first))

    queue.reap_dead(HOLDER)

    assert queue.dead_letters() == []
    assert claimed(queue).losses == (1 if ending is RetryAt else 3)


def test_a_probation_that_ends_well_is_a_success_like_any_other(queue: WorkQueue) -> None:
    queue.enqueue(a_message())
    begin_probation(queue, delivery := lose(queue, 2))

    lost = queue.settle(Ack(delivery), consumer=HOLDER)
    queue.reap_dead(HOLDER)

    assert (lost, queue.dead_letters(), queue.claim()) == ([], [], [])


def test_a_dispatcher_that_is_replaced_ends_a_probation_uncounted(queue: WorkQueue) -> None:
    queue.enqueue(a_message())
    begin_probation(queue, lose(queue, 2))

    queue.reap(HOLDER, silent_ms=0)

    assert (claimed(queue).losses, queue.dead_letters()) == (2, [])


def test_a_probation_may_be_begun_twice_and_needs_a_lease(queue: WorkQueue) -> None:
    queue.enqueue(a_message())
    delivery = claimed(queue)
    first, again = begin_probation(queue, delivery), begin_probation(queue, delivery)
    queue.settle(Ack(delivery), consumer=HOLDER)

    assert first is not None
    assert first == again
    assert begin_probation(queue, delivery) is None


def test_a_dead_letter_that_is_revived_begins_anew(queue: WorkQueue) -> None:
    queue.enqueue(a_message())
    begin_probation(queue, delivery := lose(queue, 4))
    queue.reap_dead(HOLDER)

    queue.revive(delivery.id)

    assert (claimed(queue).losses, queue.counts().dead) == (0, 0)
