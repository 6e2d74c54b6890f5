"""Deadlines: a message that is not claimed in time is never delivered, and says so."""

from __future__ import annotations

import pytest

from mqworker.model.instant import After, At
from mqworker.model.settlement import Ack, Release, RetryAt
from mqworker.queues.queue_model import Capability
from tests.conformance.models import AnyQueue
from tests.support.deadline import wait_until
from tests.support.messages import AN_HOUR_MS, a_message, bodies, some_messages

pytestmark = pytest.mark.needs(Capability.DEADLINE)

PASSED = At(1)


def test_a_deadline_ahead_changes_nothing_and_is_shown(queue: AnyQueue) -> None:
    queue.enqueue(a_message(b"in time", deadline=After(AN_HOUR_MS)))

    delivery = queue.claim()[0]

    assert delivery.body == b"in time"
    assert delivery.deadline_at_ms - delivery.enqueued_at_ms == AN_HOUR_MS


def test_an_expired_message_is_passed_over_at_the_claim(queue: AnyQueue) -> None:
    expired = a_message(deadline=PASSED)
    queue.enqueue(a_message(b"0"), expired, a_message(b"1"))

    claimed = queue.claim(2)

    assert bodies(claimed) == [b"0", b"1"]
    assert queue.find(expired.id).state == "expired"
    assert queue.counts().totals["expired"] == 1
    assert queue.counts().ready == 0


@pytest.mark.needs(Capability.PRIORITY)
@pytest.mark.parametrize("priority", [0, 5])
def test_a_message_that_expires_while_ready_is_reported_once_and_not_delivered(
    queue: AnyQueue, priority: int
) -> None:
    expired = a_message(deadline=After(1), priority=priority)
    queue.enqueue(expired, a_message(b"next"))

    wait_until(lambda: queue.expire() == 1, "the deadline passed")

    assert queue.counts().ready == 1
    assert queue.find(expired.id).state == "expired"
    assert queue.expire() == 0
    assert bodies(queue.claim(2)) == [b"next"]
    assert queue.counts().ready == 0
    assert queue.counts().totals["expired"] == 1


@pytest.mark.needs(Capability.DELAY)
def test_a_message_that_expires_while_delayed_is_reported_and_removed(queue: AnyQueue) -> None:
    expired = a_message(due=After(AN_HOUR_MS), deadline=After(1))
    queue.enqueue(expired)

    wait_until(lambda: queue.expire() == 1, "the deadline passed")

    assert queue.counts().waiting == 0
    assert queue.find(expired.id).state == "expired"
    assert queue.promote() == -1


def test_a_message_claimed_in_time_does_not_expire_in_hand(queue: AnyQueue) -> None:
    queue.enqueue(a_message(deadline=After(300)))
    delivery = queue.claim()[0]
    queue.enqueue(a_message(deadline=After(300)))

    wait_until(lambda: queue.expire() == 1, "the second deadline passed")

    assert queue.settle(Ack(delivery)) == []


@pytest.mark.needs(Capability.RETRY)
@pytest.mark.parametrize("ending", [Release, RetryAt])
def test_a_message_given_back_after_its_deadline_is_not_delivered_again(
    queue: AnyQueue, ending: type[Release | RetryAt]
) -> None:
    queue.enqueue(a_message(deadline=After(300)))
    delivery = queue.claim()[0]

    queue.settle(ending(delivery))
    wait_until(lambda: queue.expire() == 1, "the deadline passed")

    assert queue.claim() == []
    assert queue.counts().ready == 0


@pytest.mark.needs(Capability.CANCEL | Capability.PRIORITY)
@pytest.mark.parametrize("priority", [0, 5])
def test_an_expired_message_cannot_be_cancelled(queue: AnyQueue, priority: int) -> None:
    expired = a_message(deadline=PASSED, priority=priority)
    queue.enqueue(expired)
    queue.expire()

    is_cancelled = queue.cancel(expired.id)

    assert not is_cancelled
    assert queue.find(expired.id).state == "expired"
    assert queue.counts().ready == 0
    assert queue.claim() == []
    assert queue.counts().ready == 0


@pytest.mark.needs(Capability.CANCEL)
def test_a_cancelled_message_does_not_expire(queue: AnyQueue) -> None:
    message = a_message(deadline=After(300))
    queue.enqueue(message)
    queue.cancel(message.id)
    queue.enqueue(a_message(deadline=After(300)))

    wait_until(lambda: queue.expire() == 1, "the other deadline passed")

    assert queue.find(message.id).state == "cancelled"


def test_hundreds_of_expired_messages_are_all_passed_over_by_one_claim(queue: AnyQueue) -> None:
    queue.enqueue(*some_messages(500, deadline=PASSED), a_message(b"alive"))

    claimed = queue.claim()

    assert bodies(claimed) == [b"alive"]
    assert queue.counts().totals["expired"] == 500


def test_thousands_of_deadlines_are_reported_in_one_go(queue: AnyQueue) -> None:
    queue.enqueue(*some_messages(2_500, deadline=PASSED))

    reported = queue.expire()

    assert reported == 2_500
    assert queue.counts().ready == 0


@pytest.mark.needs(Capability.DEADLINE)
def test_a_long_row_of_expired_messages_does_not_hide_what_lies_behind_it(queue: AnyQueue) -> None:
    queue.enqueue(*[a_message(b"late", deadline=At(1)) for _ in range(1_200)])
    queue.enqueue(a_message(b"in time"))

    assert bodies(queue.claim()) == [b"in time"]
