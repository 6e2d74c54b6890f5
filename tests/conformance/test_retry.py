"""The other ends of a delivery: retried, released, crashed; and what is counted."""

from __future__ import annotations

import pytest

from mqworker.model.instant import After, At
from mqworker.model.settlement import Ack, Crash, Failure, Release, RetryAt
from mqworker.queues.queue_model import Capability
from tests.conformance.models import AnyQueue
from tests.support.deadline import wait_until
from tests.support.messages import AN_HOUR_MS, a_message, bodies, some_messages

pytestmark = pytest.mark.needs(Capability.RETRY)


def test_a_retry_goes_to_the_back_of_the_line_and_counts_a_failure(queue: AnyQueue) -> None:
    queue.enqueue(*some_messages(3))
    first = queue.claim()[0]

    queue.settle(RetryAt(first, failure=Failure("ValueError", "no")))

    again = queue.claim(3)
    assert bodies(again) == [b"1", b"2", b"0"]
    assert (again[2].attempt, again[2].failures, again[2].crashes) == (2, 1, 0)


@pytest.mark.needs(Capability.DELAY)
def test_a_retry_with_a_delay_waits_for_it(queue: AnyQueue) -> None:
    queue.enqueue(a_message())
    delivery = queue.claim()[0]

    queue.settle(RetryAt(delivery, After(300)))

    assert queue.claim() == []
    assert 0 <= queue.promote() <= 300
    wait_until(lambda: queue.promote() == -1, "the pause was over")
    assert queue.claim()[0].failures == 1


@pytest.mark.needs(Capability.DELAY)
def test_a_retry_that_is_due_in_the_past_is_ready_at_once(queue: AnyQueue) -> None:
    queue.enqueue(a_message())
    delivery = queue.claim()[0]

    queue.settle(RetryAt(delivery, At(1)))

    assert queue.claim()[0].id == delivery.id


def test_released_messages_return_to_the_front_uncounted_and_in_order(queue: AnyQueue) -> None:
    queue.enqueue(*some_messages(5))
    held = queue.claim(3)

    queue.settle(*map(Release, held))

    again = queue.claim(5)
    assert bodies(again) == [b"0", b"1", b"2", b"3", b"4"]
    assert (again[0].attempt, again[0].failures, again[0].crashes) == (2, 0, 0)


def test_a_crash_is_counted_apart_from_failures_and_goes_to_the_front(queue: AnyQueue) -> None:
    queue.enqueue(*some_messages(2))
    queue.settle(Crash(queue.claim()[0]))
    queue.settle(RetryAt(queue.claim()[0]))

    last = queue.claim(2)[1]

    assert (last.body, last.attempt, last.failures, last.crashes) == (b"0", 3, 1, 1)


@pytest.mark.needs(Capability.DEAD_LETTER)
def test_one_crash_too_many_buries_the_message(queue: AnyQueue) -> None:
    message = a_message(b"poison", max_crashes=2)
    queue.enqueue(message)
    queue.settle(Crash(queue.claim()[0]))

    queue.settle(Crash(queue.claim()[0]))

    letter = queue.dead_letters()[0]
    assert queue.claim() == []
    assert (letter.id, letter.reason, letter.message.body) == (message.id, "crashed", b"poison")
    assert (letter.message.crashes, letter.message.deliveries) == (2, 2)


@pytest.mark.needs(Capability.DEAD_LETTER | Capability.LEASE)
def test_one_lease_too_many_that_ended_buries_the_message_alike(queue: AnyQueue) -> None:
    message = a_message(b"poison", max_crashes=2)
    queue.enqueue(message)
    for _ in range(2):
        queue.claim(lease_ms=1)
        wait_until(lambda: queue.reclaim() != (0, 0), "the lease ended")

    letter = queue.dead_letters()[0]
    assert queue.claim() == []
    assert (letter.id, letter.reason, letter.message.body) == (message.id, "crashed", b"poison")
    assert (letter.message.crashes, letter.message.deliveries) == (2, 2)


def test_a_message_without_a_limit_survives_any_number_of_crashes(queue: AnyQueue) -> None:
    queue.enqueue(a_message(max_crashes=None))
    for _ in range(120):
        queue.settle(Crash(queue.claim()[0]))

    delivery = queue.claim()[0]

    assert delivery.crashes == 35, "the count stops at what the header holds"
    assert delivery.attempt == 121


def test_failures_alone_never_bury_a_message(queue: AnyQueue) -> None:
    queue.enqueue(a_message(max_crashes=1))
    for _ in range(10):
        queue.settle(RetryAt(queue.claim()[0]))

    assert queue.claim()[0].failures == 10


def test_a_retried_message_can_be_acked_in_the_end(queue: AnyQueue) -> None:
    queue.enqueue(a_message())
    queue.settle(RetryAt(queue.claim(lease_ms=AN_HOUR_MS)[0]))

    lost = queue.settle(Ack(queue.claim()[0]))

    assert lost == []
    assert queue.claim() == []
