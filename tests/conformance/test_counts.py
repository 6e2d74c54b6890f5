"""Counting and finding: after every operation each message is counted once, in the state it is in."""

from __future__ import annotations

import pytest

from mqworker.model.instant import After, At
from mqworker.model.settlement import Ack, Bury, Release, RetryAt
from mqworker.queues.queue_model import Capability
from tests.conformance.models import AnyQueue
from tests.support.messages import AN_HOUR_MS, a_message, some_messages

pytestmark = pytest.mark.needs(~Capability.NONE)


def depths(queue: AnyQueue) -> tuple[int, int, int, int]:
    """(ready, delayed, leased, dead)."""
    counts = queue.counts()
    return counts.ready, counts.delayed, counts.leased, counts.dead


def test_counts_follow_a_message_through_its_states(queue: AnyQueue) -> None:
    queue.enqueue(a_message())
    seen = [depths(queue)]
    delivery = queue.claim()[0]
    seen.append(depths(queue))
    queue.settle(RetryAt(delivery, After(AN_HOUR_MS)))
    seen.append(depths(queue))
    queue.enqueue(a_message(priority=3))
    seen.append(depths(queue))
    queue.settle(Bury(queue.claim()[0], "gave up"))
    seen.append(depths(queue))

    assert seen == [(1, 0, 0, 0), (0, 0, 1, 0), (0, 1, 0, 0), (1, 1, 0, 0), (0, 1, 0, 1)]


def test_counts_are_right_after_cancelling_and_expiring_in_the_middle(queue: AnyQueue) -> None:
    messages = some_messages(6)
    messages[1].deadline = At(1)
    queue.enqueue(*messages)
    queue.cancel(messages[3].id)
    queue.expire()
    waiting = depths(queue)

    released = queue.claim(2)
    queue.settle(*map(Release, released))
    given_back = depths(queue)
    queue.settle(*map(Ack, queue.claim(10)))

    assert waiting == (4, 0, 0, 0)
    assert given_back == (4, 0, 0, 0)
    assert depths(queue) == (0, 0, 0, 0)
    assert queue.counts().totals["succeeded"] == 4


def test_every_state_is_found(queue: AnyQueue) -> None:
    ready, delayed, leased, dead, done, cancelled = some_messages(6)
    delayed.due = After(AN_HOUR_MS)
    for message in (leased, dead, done):
        queue.enqueue(message)
    _, doomed, finished = queue.claim(3)
    queue.settle(Bury(doomed, "gave up"), Ack(finished, b"the result"))
    queue.enqueue(a_message(priority=1), ready, delayed, cancelled)
    queue.cancel(cancelled.id)

    found = [queue.find(message.id).state for message in (ready, delayed, leased, dead, done, cancelled)]

    assert found == ["ready", "delayed", "leased", "dead", "succeeded", "cancelled"]
    assert queue.find("never-seen").state == "absent"
    assert queue.find(done.id).result == b"the result"
    assert queue.find(ready.id).position == 1


def test_what_consumers_hold_is_counted_and_found_with_their_name(queue: AnyQueue) -> None:
    mine, yours = some_messages(2)
    queue.enqueue(mine, yours)
    queue.claim(consumer="me")
    queue.claim(consumer="you")

    assert queue.counts().leased == 2
    assert queue.find(mine.id).consumer == "me"
    assert queue.find(yours.id).consumer == "you"


def test_a_message_is_found_in_the_middle_of_a_long_line(queue: AnyQueue) -> None:
    messages = some_messages(5_000)
    queue.enqueue(*messages)

    found = [queue.find(messages[position].id).position for position in (0, 2_500, 4_999)]

    assert found == [0, 2_500, 4_999]
