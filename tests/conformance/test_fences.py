"""Leases and fences: a delivery that was lost can no longer be settled, and trying changes nothing."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from mqworker.errors import InvalidArgument
from mqworker.model.delivery import Delivery
from mqworker.model.settlement import Ack, Bury, Crash, Release, RetryAt, Settlement
from mqworker.queues.queue_model import Capability
from tests.conformance.models import AnyQueue
from tests.support.deadline import wait_until
from tests.support.messages import AN_HOUR_MS, a_message, bodies, some_messages

pytestmark = pytest.mark.needs(Capability.LEASE)

ENDINGS: list[Callable[[Delivery], Settlement]] = [
    Ack,
    RetryAt,
    Release,
    Crash,
    lambda lost: Bury(lost, "why"),
]
ENDING_NAMES = ["ack", "retry", "release", "crash", "bury"]


def lose_the_lease(queue: AnyQueue) -> None:
    """Waits until a lease of a millisecond is over and the message back in line."""
    wait_until(lambda: queue.reclaim() != (0, 0), "the lease ended")


def test_a_delivery_whose_lease_ended_is_delivered_again(queue: AnyQueue) -> None:
    queue.enqueue(a_message(b"once more"))
    first = queue.claim(lease_ms=1)[0]

    lose_the_lease(queue)
    second = queue.claim()[0]

    assert (second.id, second.body) == (first.id, b"once more")
    assert second.fence > first.fence
    assert second.attempt == 2


def test_a_lease_that_has_not_ended_is_left_alone(queue: AnyQueue) -> None:
    queue.enqueue(a_message())
    queue.claim(lease_ms=AN_HOUR_MS)

    reclaimed = queue.reclaim()

    assert reclaimed == (0, 0)
    assert queue.claim() == []


def test_reclaimed_messages_stand_in_front_in_their_old_order(queue: AnyQueue) -> None:
    queue.enqueue(*some_messages(30))
    queue.claim(25, lease_ms=1)

    lose_the_lease(queue)

    assert bodies(queue.claim(30)) == [b"%d" % position for position in range(30)]


def test_even_thousands_of_reclaimed_messages_keep_their_order(queue: AnyQueue) -> None:
    queue.enqueue(*some_messages(3_000))
    for lease_ms in (30, 60, 90):
        queue.claim(1_000, lease_ms=lease_ms)

    time.sleep(0.1)  # so that all three batches are returned by one call: the order between them is the point
    returned = queue.reclaim()

    assert returned == (3_000, 0)
    assert [body for _ in range(3) for body in bodies(queue.claim(1_000))] == [
        b"%d" % n for n in range(3_000)
    ]


@pytest.mark.parametrize("ending", ENDINGS, ids=ENDING_NAMES)
def test_settling_twice_is_refused_the_second_time(
    queue: AnyQueue, ending: Callable[[Delivery], Settlement]
) -> None:
    queue.enqueue(a_message())
    delivery = queue.claim()[0]
    queue.settle(Ack(delivery))

    late = ending(delivery)
    lost = queue.settle(late)

    assert lost == [late]
    assert queue.claim() == []


@pytest.mark.parametrize("ending", ENDINGS, ids=ENDING_NAMES)
def test_after_a_reclaim_the_old_fence_settles_nothing(
    queue: AnyQueue, ending: Callable[[Delivery], Settlement]
) -> None:
    queue.enqueue(a_message(b"mine"))
    old = queue.claim(lease_ms=1)[0]
    lose_the_lease(queue)
    new = queue.claim()[0]

    late = ending(old)
    lost = queue.settle(late)

    assert lost == [late]
    assert queue.claim() == []
    assert queue.settle(Ack(new)) == []


@pytest.mark.parametrize("fence", [0, -1, 999_999_999, 2**63])
def test_a_fence_that_was_never_given_settles_nothing(queue: AnyQueue, fence: int) -> None:
    queue.enqueue(a_message())
    delivery = queue.claim()[0]

    forged = Ack(replace(delivery, fence=fence))
    lost = queue.settle(forged)

    assert lost == [forged]
    assert queue.settle(Ack(delivery)) == []


def test_of_a_batch_only_the_lost_ones_come_back(queue: AnyQueue) -> None:
    queue.enqueue(*some_messages(4))
    one, two, three, four = queue.claim(4)
    queue.settle(Ack(one), Ack(three))

    settlements = [Ack(one), Ack(two), RetryAt(three), Release(four)]
    lost = queue.settle(*settlements)

    assert lost == [settlements[0], settlements[2]]
    assert bodies(queue.claim(4)) == [b"3"]


def test_the_same_delivery_twice_in_one_batch_is_refused_before_anything_happens(queue: AnyQueue) -> None:
    queue.enqueue(a_message())
    delivery = queue.claim()[0]

    with pytest.raises(InvalidArgument):
        queue.settle(Ack(delivery), RetryAt(delivery))

    assert queue.settle(Ack(delivery)) == []


@pytest.mark.needs(Capability.EXTEND)
def test_an_extended_lease_does_not_end(queue: AnyQueue) -> None:
    queue.enqueue(a_message(b"long"), a_message(b"short"))
    long, _ = queue.claim(2, lease_ms=2_000)

    lost = queue.extend(long, lease_ms=AN_HOUR_MS)
    lose_the_lease(queue)

    assert lost == []
    assert bodies(queue.claim(2)) == [b"short"]
    assert queue.settle(Ack(long)) == []


@pytest.mark.needs(Capability.EXTEND)
def test_a_lost_lease_is_not_extended(queue: AnyQueue) -> None:
    queue.enqueue(*some_messages(3))
    settled, lost, held = queue.claim(3, lease_ms=AN_HOUR_MS)
    queue.settle(Ack(settled), Release(lost))

    refused = queue.extend(settled, lost, held)

    assert refused == [settled, lost]
    assert bodies(queue.claim(3)) == [b"1"]


@pytest.mark.needs(Capability.EXTEND)
def test_an_extension_may_also_shorten_a_lease(queue: AnyQueue) -> None:
    queue.enqueue(a_message())
    delivery = queue.claim(lease_ms=AN_HOUR_MS)[0]

    queue.extend(delivery, lease_ms=1)
    lose_the_lease(queue)

    assert queue.claim()[0].id == delivery.id
