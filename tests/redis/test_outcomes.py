"""Outcomes: whoever waits for a message is told how it ended; results are kept for a while, then dropped."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from mqworker.model.guard import chosen_id_guard
from mqworker.model.instant import After, At
from mqworker.model.message import Message
from mqworker.model.names import MessageId, TaskName
from mqworker.model.settlement import Ack, Bury, Crash, Release, RetryAt
from mqworker.queues.work.calls import WorkQueueOptions
from mqworker.queues.work.queue import WorkQueue
from mqworker.store.link.subscription import Subscription
from mqworker.store.store import Store
from tests.support.messages import AN_HOUR_MS, a_message, bodies, some_messages
from tests.support.raw_queue import LONG_AGO_MS, RawQueue


@pytest.fixture
def queue(store: Store) -> WorkQueue:
    return WorkQueue("q", store, WorkQueueOptions(dedup_window_ms=AN_HOUR_MS))


@pytest.fixture
def ends(queue: WorkQueue) -> Iterator[Subscription]:
    """What is announced of messages that somebody waits for."""
    subscription = queue.store.connection.subscribe([queue.calls.keys.done])
    while subscription.get(0.05) is not None:
        pass  # the wake-up that every new subscription begins with
    yield subscription
    subscription.close()


def announced(ends: Subscription) -> list[str]:
    """The ids of the next announcement."""
    told = ends.get(2.0)
    return [] if told is None else told[1].decode().split(" ")


def ask(queue: WorkQueue, *messages: Message) -> list[bytes | None]:
    """Asks to be told; the outcomes that are known already."""
    return queue.store.run(queue.calls.wait([message.id for message in messages]))


def rotate(queue: WorkQueue, raw: RawQueue) -> int:
    """Let a period of results be over."""
    raw.client.hset(raw.key("meta"), "rotated_at_ms", LONG_AGO_MS)
    return queue.rotate_results()


def ack(queue: WorkQueue, message: Message) -> None:
    queue.enqueue(message)
    ask(queue, message)
    queue.settle(Ack(queue.claim()[0]))


def ack_with_a_result(queue: WorkQueue, message: Message) -> None:
    queue.enqueue(message)
    ask(queue, message)
    queue.settle(Ack(queue.claim()[0], b"result"))


def bury(queue: WorkQueue, message: Message) -> None:
    queue.enqueue(message)
    ask(queue, message)
    queue.settle(Bury(queue.claim()[0], "why"))


def crash(queue: WorkQueue, message: Message) -> None:
    message.max_crashes = 1
    queue.enqueue(message)
    ask(queue, message)
    queue.settle(Crash(queue.claim()[0]))


def cancel(queue: WorkQueue, message: Message) -> None:
    queue.enqueue(message)
    ask(queue, message)
    queue.cancel(message.id)


def expire_in_line(queue: WorkQueue, message: Message) -> None:
    message.deadline = At(1)
    queue.enqueue(message)
    ask(queue, message)
    queue.expire()


def expire_at_the_claim(queue: WorkQueue, message: Message) -> None:
    message.deadline = At(1)
    queue.enqueue(message)
    ask(queue, message)
    queue.claim()


def stop_while_held(queue: WorkQueue, message: Message) -> None:
    queue.enqueue(message)
    ask(queue, message)
    delivery = queue.claim()[0]
    queue.store.run(queue.calls.request_cancel(message.id))
    queue.settle(RetryAt(delivery))


ENDS = [
    ack,
    ack_with_a_result,
    bury,
    crash,
    cancel,
    expire_in_line,
    expire_at_the_claim,
    stop_while_held,
]


@pytest.mark.parametrize("end", ENDS)
def test_who_waits_is_told_when_the_message_ends(
    queue: WorkQueue, ends: Subscription, end: Callable[[WorkQueue, Message], None]
) -> None:
    message = a_message()

    end(queue, message)

    assert announced(ends) == [message.id]


@pytest.mark.parametrize("end", ENDS)
def test_it_is_told_also_when_leases_are_watched(
    queue: WorkQueue, ends: Subscription, end: Callable[[WorkQueue, Message], None]
) -> None:
    queue.enqueue(a_message())
    queue.claim(lease_ms=AN_HOUR_MS)
    message = a_message()

    end(queue, message)

    assert announced(ends) == [message.id]


def test_of_a_batch_only_what_is_awaited_is_announced_and_once(queue: WorkQueue, ends: Subscription) -> None:
    messages = some_messages(5)
    queue.enqueue(*messages)
    ask(queue, messages[1], messages[3])

    queue.settle(*map(Ack, queue.claim(5)))

    assert sorted(announced(ends)) == sorted([messages[1].id, messages[3].id])
    assert ends.get(0.1) is None


@pytest.mark.parametrize("ending", [RetryAt, Release, Crash])
def test_a_message_that_comes_back_has_not_ended(
    queue: WorkQueue, ends: Subscription, ending: type[RetryAt | Release | Crash]
) -> None:
    message = a_message()
    queue.enqueue(message)
    ask(queue, message)

    queue.settle(ending(queue.claim()[0]))

    assert ends.get(0.1) is None
    assert ask(queue, message) == [None]


def test_outcomes_that_are_known_are_answered_at_once(queue: WorkQueue) -> None:
    done, cancelled, expired, dead, waiting = some_messages(5)
    expired.deadline = At(1)
    queue.enqueue(done)
    queue.settle(Ack(queue.claim()[0], b"result"))
    queue.enqueue(dead)
    queue.settle(Bury(queue.claim()[0], "why"))
    queue.enqueue(cancelled, expired, waiting)
    queue.cancel(cancelled.id)
    queue.expire()

    outcomes = ask(queue, done, cancelled, expired, dead, waiting)

    assert outcomes[:3] == [b"Sresult", b"C", b"E"]
    assert outcomes[3] is not None
    assert outcomes[3].startswith(b"D")
    assert outcomes[4] is None


@pytest.mark.parametrize("ending", [RetryAt, Release, Crash, lambda lost: RetryAt(lost, After(AN_HOUR_MS))])
def test_a_message_asked_to_stop_does_not_come_back(
    queue: WorkQueue, raw: RawQueue, ending: Callable[..., RetryAt | Release | Crash]
) -> None:
    message = a_message()
    queue.enqueue(message)
    delivery = queue.claim()[0]
    queue.store.run(queue.calls.request_cancel(message.id))
    rotate(queue, raw)  # it may run for longer than results are kept

    lost = queue.settle(ending(delivery))

    assert lost == []
    assert queue.find(message.id).state == "cancelled"
    assert (queue.counts().waiting, queue.counts().leased) == (0, 0)


def test_a_message_asked_to_stop_that_succeeds_has_succeeded(queue: WorkQueue) -> None:
    message = a_message()
    queue.enqueue(message)
    delivery = queue.claim()[0]
    queue.store.run(queue.calls.request_cancel(message.id))

    queue.settle(Ack(delivery, b"done"))

    assert queue.find(message.id).result == b"done"


def test_results_live_for_a_period_at_least_and_two_at_the_most(queue: WorkQueue, raw: RawQueue) -> None:
    message = a_message()
    queue.enqueue(message)
    queue.settle(Ack(queue.claim()[0], b"kept"))

    states = [queue.find(message.id).state]
    for _ in range(2):
        rotated = rotate(queue, raw)
        states.append(queue.find(message.id).state)

    assert rotated == 1
    assert states == ["succeeded", "succeeded", "absent"]


def test_results_are_not_rotated_before_their_time(queue: WorkQueue, raw: RawQueue) -> None:
    queue.enqueue(a_message())
    queue.settle(Ack(queue.claim()[0], b"kept"))

    rotated = [rotate(queue, raw), queue.rotate_results(), queue.rotate_results()]

    assert rotated == [1, 0, 0]


@pytest.mark.parametrize("end", [cancel, expire_in_line, ack_with_a_result])
def test_a_chosen_id_used_again_after_a_rotation_has_no_outcome_yet(
    queue: WorkQueue, raw: RawQueue, end: Callable[[WorkQueue, Message], None]
) -> None:
    end(queue, a_message(id="chosen", guard=chosen_id_guard("chosen")))
    rotate(queue, raw)
    raw.end_guard("id:chosen")

    again = a_message(b"again", id="chosen", guard=chosen_id_guard("chosen"))
    is_new = queue.enqueue(again)[0].is_new

    assert is_new
    assert queue.find("chosen").state == "ready"
    assert not queue.enqueue(again)[0].is_new, "it is live: its guard holds"
    assert ask(queue, again) == [None]
    assert bodies(queue.claim(5)) == [b"again"]


def test_what_a_foreign_hand_broke_is_mended(queue: WorkQueue, raw: RawQueue) -> None:
    queue.enqueue(*some_messages(2), a_message(b"parcel", due=After(AN_HOUR_MS)))
    held = queue.claim(2)
    raw.client.delete(raw.key("delayed"), raw.key("leases"))
    raw.client.zadd(raw.key("delayed"), {"ghost": 5})
    raw.client.zadd(raw.key("leases"), {"99": 5})

    repaired = queue.repair()
    reclaimed = queue.reclaim()

    assert repaired == 5
    assert reclaimed == (2, 0)
    assert sorted(bodies(queue.claim(9))) == [b"0", b"1", b"parcel"]
    assert queue.repair() == 0
    assert queue.settle(Ack(held[0])) != []


def test_what_is_whole_is_not_mended(queue: WorkQueue, raw: RawQueue) -> None:
    queue.enqueue(*some_messages(5), a_message(due=After(AN_HOUR_MS)))
    queue.claim(2)
    queue.claim(2, consumer="a")
    before = raw.dump()

    assert queue.repair() == 0
    assert raw.dump() == before


def test_silent_consumers_are_named(queue: WorkQueue, raw: RawQueue) -> None:
    queue.enqueue(*some_messages(2))
    queue.claim(consumer="silent")
    queue.claim(consumer="alive")
    raw.client.zadd(raw.key("consumers"), {"silent": LONG_AGO_MS})

    assert queue.silent_consumers(AN_HOUR_MS) == ["silent"]


@pytest.mark.parametrize("order", [(1, 600), (600, 1)])
def test_each_result_is_kept_as_long_as_its_task_says(
    queue: WorkQueue, raw: RawQueue, order: tuple[int, int]
) -> None:
    kept = {}
    for seconds in order:
        queue.enqueue(a_message())
        (delivery,) = queue.claim(1)
        queue.store.run(queue.calls.settle([Ack(delivery, b"x")], None, seconds * 1000, 600_000))
        kept[seconds] = delivery.id
    ends = raw.key("results:ends")
    assert raw.client.zrange(ends, 0, -1) == [kept[1].encode()]

    raw.client.zadd(ends, {kept[1]: 1})
    queue.rotate_results()

    assert (queue.find(kept[1]).state, queue.find(kept[600]).state) == ("absent", "succeeded")
    assert raw.client.exists(ends) == 0


def test_an_id_that_is_used_again_is_not_dropped_for_its_result_of_before(
    queue: WorkQueue, raw: RawQueue
) -> None:
    for seconds in (1, 600):
        queue.enqueue(Message(MessageId("m1"), b"", TaskName("t")))
        (delivery,) = queue.claim(1)
        queue.store.run(queue.calls.settle([Ack(delivery, b"x")], None, seconds * 1000, 600_000))

    assert raw.client.exists(raw.key("results:ends")) == 0
