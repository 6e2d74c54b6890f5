"""Named consumers: a lease that lasts as long as the heartbeat, and what happens when it stops."""

from __future__ import annotations

import pytest

from mqworker.model.delivery import Delivery
from mqworker.model.settlement import Ack
from mqworker.queues.queue_model import Capability
from tests.conformance.models import AnyQueue
from tests.support.deadline import wait_until
from tests.support.messages import AN_HOUR_MS, a_message, bodies, some_messages

pytestmark = pytest.mark.needs(~Capability.NONE)


def test_a_consumer_settles_what_it_claimed(queue: AnyQueue) -> None:
    queue.enqueue(a_message())
    delivery = queue.claim(consumer="a")[0]

    lost = queue.settle(Ack(delivery), consumer="a")

    assert lost == []
    assert queue.counts().leased == 0


@pytest.mark.parametrize(("holder", "other"), [("a", "b"), ("a", None), (None, "b")])
def test_nobody_settles_what_another_one_holds(
    queue: AnyQueue, holder: str | None, other: str | None
) -> None:
    queue.enqueue(a_message())
    delivery = queue.claim(consumer=holder)[0]

    late = Ack(delivery)
    lost = queue.settle(late, consumer=other)

    assert lost == [late]
    assert queue.settle(Ack(delivery), consumer=holder) == []


def test_a_stranger_that_tries_to_settle_does_not_stop_a_lease_from_ending(queue: AnyQueue) -> None:
    queue.enqueue(a_message())
    delivery = queue.claim(lease_ms=1)[0]

    queue.settle(Ack(delivery), consumer="stranger")
    wait_until(lambda: queue.reclaim() != (0, 0), "the lease ended")

    assert queue.claim()[0].id == delivery.id


def test_a_lease_by_heartbeat_cannot_be_extended_for_a_time(queue: AnyQueue) -> None:
    queue.enqueue(a_message())
    delivery = queue.claim(consumer="a")[0]

    lost = queue.extend(delivery, lease_ms=1)

    assert lost == [delivery]
    assert queue.reclaim() == (0, 0)


def test_reaping_gives_everything_back_in_order_and_uncounted(queue: AnyQueue) -> None:
    queue.enqueue(*some_messages(15))
    queue.claim(12, consumer="a")

    released = queue.reap("a", silent_ms=0)

    again: list[Delivery] = queue.claim(15)
    assert released == 12
    assert bodies(again) == [b"%d" % position for position in range(15)]
    assert (again[0].attempt, again[0].crashes) == (2, 0)


def test_reaping_thousands_keeps_their_order(queue: AnyQueue) -> None:
    queue.enqueue(*some_messages(2_500))
    for _ in range(3):
        queue.claim(1_000, consumer="a")

    released = queue.reap("a", silent_ms=0)

    assert released == 2_500
    assert [body for _ in range(3) for body in bodies(queue.claim(1_000))] == [
        b"%d" % n for n in range(2_500)
    ]


def test_a_consumer_that_beats_is_not_reaped(queue: AnyQueue) -> None:
    queue.enqueue(a_message())
    delivery = queue.claim(consumer="a")[0]
    queue.beat("a")

    released = queue.reap("a", silent_ms=AN_HOUR_MS)

    assert released == 0
    assert queue.settle(Ack(delivery), consumer="a") == []


def test_a_silent_consumer_is_reaped_and_its_late_ack_refused(queue: AnyQueue) -> None:
    queue.enqueue(a_message())
    delivery = queue.claim(consumer="a")[0]

    wait_until(lambda: queue.reap("a", silent_ms=20) == 1, "the consumer was silent for long enough")

    late = Ack(delivery)
    assert queue.settle(late, consumer="a") == [late]
    assert queue.claim(consumer="b")[0].id == delivery.id


def test_a_consumer_that_was_reaped_may_come_back(queue: AnyQueue) -> None:
    queue.enqueue(a_message())
    queue.claim(consumer="a")
    queue.reap("a", silent_ms=0)

    again = queue.claim(consumer="a")

    assert len(again) == 1
    assert queue.counts().leased == 1


def test_reaping_a_consumer_that_never_was_releases_nothing(queue: AnyQueue) -> None:
    assert queue.reap("nobody", silent_ms=0) == 0
