"""Guards: what keeps a second message with the same meaning out, and when it stops doing so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mqworker.model.guard import GuardMode, chosen_id_guard, unique_guard
from mqworker.model.instant import After, At
from mqworker.model.message import Message
from mqworker.model.settlement import Ack, Bury, Crash, Release, RetryAt
from mqworker.queues.queue_model import Capability
from tests.conformance.models import AnyQueue
from tests.support.deadline import wait_until
from tests.support.messages import AN_HOUR_MS, Option, a_message, bodies

pytestmark = pytest.mark.needs(Capability.GUARD)

# In these two modes the second takes the place of the first: tests/redis/test_unique.py, test_newest_wins.py.
KEEPING_OUT = [mode for mode in GuardMode if mode not in (GuardMode.KEEP_LAST, GuardMode.NEWEST)]
LASTING = [GuardMode.CHOSEN_ID, GuardMode.UNTIL_SETTLED, GuardMode.FOR_A_TIME]


def guarded(mode: GuardMode, **options: Option) -> Message:
    """A message that only one of may be there at a time."""
    if mode is GuardMode.CHOSEN_ID:
        return a_message(id="order-7", guard=chosen_id_guard("order-7"), **options)
    return a_message(guard=unique_guard("order 7", mode, ttl_ms=AN_HOUR_MS), **options)


def is_free(queue: AnyQueue, mode: GuardMode) -> bool:
    """Whether another message of the kind is accepted now."""
    is_new: bool = queue.enqueue(guarded(mode))[0].is_new
    return is_new


@pytest.mark.parametrize("mode", KEEPING_OUT)
def test_a_second_message_is_kept_out_while_the_first_waits(queue: AnyQueue, mode: GuardMode) -> None:
    first = guarded(mode, body=b"first")
    queue.enqueue(first)

    second = queue.enqueue(guarded(mode, body=b"second"))[0]

    assert (second.id, second.is_new) == (first.id, False)
    assert bodies(queue.claim(2)) == [b"first"]
    assert queue.counts().totals["enqueued"] == 1


@pytest.mark.parametrize("mode", KEEPING_OUT)
def test_of_two_in_one_batch_the_first_wins(queue: AnyQueue, mode: GuardMode) -> None:
    first, second = guarded(mode, body=b"first"), guarded(mode, body=b"second")

    stored = queue.enqueue(a_message(b"other"), first, second)

    assert [enqueued.is_new for enqueued in stored] == [True, True, False]
    assert stored[2].id == first.id
    assert bodies(queue.claim(3)) == [b"other", b"first"]


@pytest.mark.parametrize("mode", LASTING)
@pytest.mark.parametrize("ending", [None, RetryAt, Release, Crash])
def test_a_guard_lasts_while_its_message_is_in_hand_or_tried_again(
    queue: AnyQueue, mode: GuardMode, ending: Callable[..., Any] | None
) -> None:
    queue.enqueue(guarded(mode))
    delivery = queue.claim()[0]

    if ending is not None:
        queue.settle(ending(delivery))

    assert not is_free(queue, mode)


def test_a_guard_until_claimed_ends_at_the_claim(queue: AnyQueue) -> None:
    queue.enqueue(guarded(GuardMode.UNTIL_CLAIMED, body=b"first"))
    first = queue.claim()[0]

    second = queue.enqueue(guarded(GuardMode.UNTIL_CLAIMED, body=b"second"))[0]
    queue.settle(RetryAt(first))

    assert second.is_new
    assert bodies(queue.claim(2)) == [b"second", b"first"]


@pytest.mark.needs(Capability.RETRY)
def test_a_retried_message_does_not_free_the_guard_that_another_holds_by_now(queue: AnyQueue) -> None:
    queue.enqueue(guarded(GuardMode.UNTIL_CLAIMED))
    first = queue.claim()[0]
    queue.settle(Release(first))
    second = queue.enqueue(guarded(GuardMode.UNTIL_CLAIMED))[0]

    queue.claim()  # the first one again: the guard is no longer its own

    assert second.is_new
    assert not is_free(queue, GuardMode.UNTIL_CLAIMED)


def test_a_guard_until_settled_ends_with_the_ack(queue: AnyQueue) -> None:
    queue.enqueue(guarded(GuardMode.UNTIL_SETTLED))

    queue.settle(Ack(queue.claim()[0]))

    assert is_free(queue, GuardMode.UNTIL_SETTLED)


def test_a_chosen_id_is_recognised_after_the_ack_and_free_when_the_window_is_over(queue: AnyQueue) -> None:
    queue.enqueue(guarded(GuardMode.CHOSEN_ID))
    queue.settle(Ack(queue.claim()[0]))

    within = queue.enqueue(guarded(GuardMode.CHOSEN_ID))[0]
    wait_until(lambda: is_free(queue, GuardMode.CHOSEN_ID), "the window was over")

    assert (within.id, within.is_new) == ("order-7", False)
    assert len(queue.claim(2)) == 1


def test_a_guard_for_a_time_outlives_its_message_and_ends_in_time(queue: AnyQueue) -> None:
    short = unique_guard("k", GuardMode.FOR_A_TIME, ttl_ms=400)
    queue.enqueue(a_message(guard=short))
    queue.settle(Ack(queue.claim()[0]))

    within = queue.enqueue(a_message(guard=short))[0].is_new
    wait_until(lambda: queue.enqueue(a_message(guard=short))[0].is_new, "the time was over")

    assert not within


def end_dead(queue: AnyQueue, message: Message) -> None:
    """The message is buried."""
    queue.enqueue(message)
    queue.settle(Bury(queue.claim()[0], "gave up"))


def end_crashed(queue: AnyQueue, message: Message) -> None:
    """The message crashed too often."""
    queue.enqueue(message)
    while delivery := queue.claim(lease_ms=1):
        wait_until(lambda: queue.reclaim() != (0, 0), "the lease ended")
        assert delivery[0].id == message.id


def end_cancelled(queue: AnyQueue, message: Message) -> None:
    """The message is cancelled."""
    queue.enqueue(message)
    queue.cancel(message.id)


def end_expired_in_line(queue: AnyQueue, message: Message) -> None:
    """The message expires, is reported, and still lies in the line."""
    message.deadline = At(1)
    queue.enqueue(message)
    queue.expire()


def end_expired_at_the_claim(queue: AnyQueue, message: Message) -> None:
    """The message expires and is passed over."""
    message.deadline = At(1)
    queue.enqueue(message)
    queue.claim()


def end_expired_while_delayed(queue: AnyQueue, message: Message) -> None:
    """The message expires before it is due."""
    message.deadline, message.due = At(1), After(AN_HOUR_MS)
    queue.enqueue(message)
    queue.expire()


def end_purged(queue: AnyQueue, message: Message) -> None:
    """The message is thrown away with all others."""
    queue.enqueue(message)
    queue.purge_waiting()


ENDS = [
    end_dead,
    end_crashed,
    end_cancelled,
    end_expired_in_line,
    end_expired_at_the_claim,
    end_expired_while_delayed,
    end_purged,
]


@pytest.mark.needs(Capability.DEAD_LETTER | Capability.CANCEL | Capability.DEADLINE | Capability.DELAY)
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("mode", [GuardMode.UNTIL_SETTLED, GuardMode.UNTIL_CLAIMED])
def test_a_guard_never_outlasts_a_message_that_ended_in_any_way(
    queue: AnyQueue, mode: GuardMode, end: Callable[[AnyQueue, Message], None]
) -> None:
    end(queue, guarded(mode))

    assert is_free(queue, mode)


@pytest.mark.needs(Capability.DEAD_LETTER | Capability.CANCEL | Capability.DEADLINE | Capability.DELAY)
@pytest.mark.parametrize("end", ENDS)
def test_a_chosen_id_is_taken_for_the_window_and_then_free_however_its_message_ended(
    queue: AnyQueue, end: Callable[[AnyQueue, Message], None]
) -> None:
    end(queue, guarded(GuardMode.CHOSEN_ID))

    wait_until(lambda: is_free(queue, GuardMode.CHOSEN_ID), "the window was over")

    assert len(queue.claim(5)) == 1
    assert queue.counts().waiting == 0


@pytest.mark.needs(Capability.DEADLINE)
def test_a_chosen_id_used_again_is_not_confused_with_its_expired_predecessor(queue: AnyQueue) -> None:
    queue.enqueue(guarded(GuardMode.CHOSEN_ID, deadline=At(1)))
    queue.expire()  # it lies in the line still
    again = guarded(GuardMode.CHOSEN_ID, body=b"again", deadline=After(AN_HOUR_MS))
    wait_until(lambda: queue.enqueue(again)[0].is_new, "the window was over")

    state, waiting = queue.find("order-7").state, queue.counts().ready
    claimed = queue.claim(5)

    assert (state, waiting) == ("ready", 1)
    assert bodies(claimed) == [b"again"]
    assert not is_free(queue, GuardMode.CHOSEN_ID), "the second message is in hand"
    assert queue.counts().ready == 0
    assert queue.counts().totals["expired"] == 1


@pytest.mark.needs(Capability.CANCEL)
def test_a_chosen_id_used_again_is_not_taken_for_cancelled(queue: AnyQueue) -> None:
    end_cancelled(queue, guarded(GuardMode.CHOSEN_ID))
    wait_until(lambda: is_free(queue, GuardMode.CHOSEN_ID), "the window was over")
    queue.claim()

    is_cancelled = queue.cancel("order-7")

    assert not is_cancelled
    assert queue.find("order-7").state == "leased"


def test_purging_what_waits_leaves_the_guards_of_what_is_in_hand(queue: AnyQueue) -> None:
    queue.enqueue(guarded(GuardMode.UNTIL_SETTLED))
    queue.claim()
    queue.enqueue(a_message())

    queue.purge_waiting()

    assert not is_free(queue, GuardMode.UNTIL_SETTLED)


@pytest.mark.needs(Capability.DEAD_LETTER)
def test_a_revived_message_holds_its_guard_again(queue: AnyQueue) -> None:
    dead = guarded(GuardMode.UNTIL_SETTLED)
    end_dead(queue, dead)

    queue.revive(dead.id)

    assert not is_free(queue, GuardMode.UNTIL_SETTLED)


def test_any_text_can_be_a_key(queue: AnyQueue) -> None:
    keys = ["a b", "ключ", "x" * 4096, "\x00\r\n", "#", "key:#"]
    for key in keys:
        queue.enqueue(a_message(guard=unique_guard(key, GuardMode.UNTIL_SETTLED)))

    again = [
        queue.enqueue(a_message(guard=unique_guard(key, GuardMode.UNTIL_SETTLED)))[0].is_new for key in keys
    ]

    assert again == [False] * len(keys)
    assert len(queue.claim(10)) == len(keys)
