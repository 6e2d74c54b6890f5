"""How messages wait: delay, priority, pause, a limit of the length, cancelling and purging."""

from __future__ import annotations

import pytest

from mqworker.errors import QueueFull
from mqworker.model.instant import After, At
from mqworker.model.settlement import Ack, Release
from mqworker.queues.queue_model import Capability
from tests.conformance.models import AnyQueue
from tests.support.deadline import wait_until
from tests.support.messages import AN_HOUR_MS, a_message, bodies, some_messages


@pytest.mark.needs(Capability.DELAY)
def test_a_delayed_message_is_delivered_when_it_is_due_and_not_before(queue: AnyQueue) -> None:
    queue.enqueue(a_message(b"later", due=After(300)), a_message(b"now"))

    first = queue.claim(2)
    until_next_ms = queue.promote()
    wait_until(lambda: queue.promote() == -1, "the message was due")

    assert bodies(first) == [b"now"]
    assert 0 <= until_next_ms <= 300
    assert bodies(queue.claim(2)) == [b"later"]


@pytest.mark.needs(Capability.DELAY)
def test_delayed_messages_come_in_the_order_in_which_they_are_due(queue: AnyQueue) -> None:
    queue.enqueue(*(a_message(b"%d" % ms, due=After(ms)) for ms in (30, 10, 20)))

    wait_until(lambda: queue.promote() == -1, "all were due")

    assert bodies(queue.claim(3)) == [b"10", b"20", b"30"]


@pytest.mark.needs(Capability.DELAY)
def test_a_delay_that_is_over_is_none(queue: AnyQueue) -> None:
    queue.enqueue(a_message(b"0", due=At(1)), a_message(b"1", due=After(0)), a_message(b"2"))

    assert bodies(queue.claim(3)) == [b"0", b"1", b"2"]


@pytest.mark.needs(Capability.PRIORITY)
def test_the_higher_priority_goes_first_and_equal_ones_in_order(queue: AnyQueue) -> None:
    priorities = [0, 1, 9, 5, 9, 0, 1, 5]
    queue.enqueue(*(a_message(b"%d-%d" % (p, at), priority=p) for at, p in enumerate(priorities)))

    claimed = [body for _ in range(4) for body in bodies(queue.claim(2))]

    assert claimed == [b"9-2", b"9-4", b"5-3", b"5-7", b"1-1", b"1-6", b"0-0", b"0-5"]


@pytest.mark.needs(Capability.PRIORITY | Capability.RETRY)
def test_a_released_urgent_message_goes_before_others_of_its_priority_only(queue: AnyQueue) -> None:
    queue.enqueue(*(a_message(b"%d-%d" % (p, at), priority=p) for at, p in enumerate([5, 5, 7])))
    queue.claim()
    five = queue.claim()[0]
    queue.enqueue(a_message(b"7-3", priority=7))

    queue.settle(Release(five))

    assert bodies(queue.claim(3)) == [b"7-3", b"5-0", b"5-1"]


@pytest.mark.needs(Capability.PRIORITY | Capability.DELAY)
def test_a_delayed_message_keeps_its_priority(queue: AnyQueue) -> None:
    queue.enqueue(a_message(b"plain"), a_message(b"urgent", priority=9, due=After(1)))
    wait_until(lambda: queue.promote() == -1, "the message was due")

    assert bodies(queue.claim(2)) == [b"urgent", b"plain"]


@pytest.mark.needs(Capability.PAUSE)
def test_a_paused_queue_takes_messages_and_gives_none(queue: AnyQueue) -> None:
    queue.pause()
    queue.enqueue(a_message())

    while_paused = queue.claim()
    queue.resume()

    assert while_paused == []
    assert queue.counts().is_paused is False
    assert len(queue.claim()) == 1


@pytest.mark.needs(Capability.PAUSE)
def test_what_was_claimed_before_the_pause_can_be_settled(queue: AnyQueue) -> None:
    queue.enqueue(a_message())
    delivery = queue.claim()[0]
    queue.pause()

    lost = queue.settle(Ack(delivery))

    assert lost == []
    assert queue.counts().is_paused is True


@pytest.mark.needs(Capability.LENGTH_LIMIT)
def test_a_full_queue_refuses_the_whole_batch_and_stores_nothing(queue: AnyQueue) -> None:
    queue.limit(3)
    queue.enqueue(*some_messages(2))

    with pytest.raises(QueueFull):
        queue.enqueue(*some_messages(2))

    assert queue.counts().ready == 2
    assert queue.counts().totals["enqueued"] == 2


@pytest.mark.needs(Capability.LENGTH_LIMIT)
def test_a_full_queue_takes_messages_again_when_some_were_claimed(queue: AnyQueue) -> None:
    queue.limit(2)
    queue.enqueue(*some_messages(2))
    queue.claim()

    stored = queue.enqueue(a_message())

    assert stored[0].is_new


@pytest.mark.needs(Capability.LENGTH_LIMIT | Capability.DELAY | Capability.PRIORITY)
def test_delayed_and_urgent_messages_count_towards_the_limit(queue: AnyQueue) -> None:
    queue.limit(3)
    queue.enqueue(a_message(due=After(AN_HOUR_MS)), a_message(priority=1), a_message())

    with pytest.raises(QueueFull):
        queue.enqueue(a_message())


@pytest.mark.needs(Capability.LENGTH_LIMIT | Capability.CANCEL)
def test_cancelled_messages_do_not_count_towards_the_limit(queue: AnyQueue) -> None:
    first, second, third = some_messages(3)
    queue.limit(2)
    queue.enqueue(first, second)
    queue.cancel(first.id)

    queue.enqueue(third)

    assert queue.counts().ready == 2


@pytest.mark.needs(Capability.LENGTH_LIMIT)
def test_the_limit_can_be_lifted(queue: AnyQueue) -> None:
    queue.limit(1)
    queue.enqueue(a_message())
    queue.limit(None)

    queue.enqueue(a_message())

    assert queue.counts().limit is None
    assert queue.counts().ready == 2


@pytest.mark.needs(Capability.CANCEL)
@pytest.mark.parametrize("position", [0, 1, 2_499, 2_500, 4_998, 4_999])
def test_a_message_is_cancelled_wherever_it_stands_in_a_long_line(queue: AnyQueue, position: int) -> None:
    messages = some_messages(5_000)
    queue.enqueue(*messages)

    is_cancelled = queue.cancel(messages[position].id)

    left = [body for _ in range(5) for body in bodies(queue.claim(1_000))]
    assert is_cancelled
    assert queue.counts().ready == 0
    assert left == [message.body for at, message in enumerate(messages) if at != position]


@pytest.mark.needs(Capability.CANCEL | Capability.PRIORITY | Capability.DELAY)
@pytest.mark.parametrize("options", [{"priority": 5}, {"due": After(AN_HOUR_MS)}], ids=["urgent", "delayed"])
def test_urgent_and_delayed_messages_are_cancelled_too(queue: AnyQueue, options: dict[str, object]) -> None:
    doomed = a_message(**options)
    queue.enqueue(a_message(b"stays"), doomed)

    is_cancelled = queue.cancel(doomed.id)

    assert is_cancelled
    assert queue.counts().waiting == 1
    assert queue.find(doomed.id).state == "cancelled"


@pytest.mark.needs(Capability.CANCEL)
def test_a_message_in_hand_is_not_cancelled(queue: AnyQueue) -> None:
    message = a_message()
    queue.enqueue(message)
    delivery = queue.claim()[0]

    is_cancelled = queue.cancel(message.id)

    assert not is_cancelled
    assert queue.settle(Ack(delivery)) == []


@pytest.mark.needs(Capability.CANCEL)
def test_cancelling_twice_cancels_once(queue: AnyQueue) -> None:
    message = a_message()
    queue.enqueue(message, a_message(b"stays"))
    queue.cancel(message.id)

    queue.cancel(message.id)

    assert queue.counts().totals["cancelled"] == 1
    assert bodies(queue.claim(2)) == [b"stays"]


@pytest.mark.needs(Capability.CANCEL)
def test_nobody_cancels_a_message_that_never_was(queue: AnyQueue) -> None:
    assert not queue.cancel("never-seen")


@pytest.mark.needs(Capability.CANCEL | Capability.PRIORITY | Capability.DELAY)
def test_purging_throws_away_what_waits_and_nothing_in_hand(queue: AnyQueue) -> None:
    queue.enqueue(a_message(b"in hand"))
    delivery = queue.claim()[0]
    cancelled = a_message()
    queue.enqueue(*some_messages(2), cancelled, a_message(priority=1), a_message(due=After(AN_HOUR_MS)))
    queue.cancel(cancelled.id)

    thrown_away = queue.purge_waiting()

    assert thrown_away == 4
    assert queue.counts().waiting == 0
    assert queue.claim() == []
    assert queue.settle(Ack(delivery)) == []
