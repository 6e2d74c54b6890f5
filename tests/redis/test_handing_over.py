"""Handing over: a message enqueued while a consumer stands ready is that consumer's from the start."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mqworker.errors import StoreRefused
from mqworker.model.names import ConsumerName
from mqworker.model.record import decode_record
from mqworker.model.settlement import Ack
from mqworker.queues.work.queue import WorkQueue
from mqworker.store.link.subscription import Subscription
from mqworker.store.store import Store
from tests.support.messages import a_message, some_messages
from tests.support.raw_queue import RawQueue

READY = ConsumerName("node-1")
OTHER = ConsumerName("node-2")
WAIT_S = 5.0


@pytest.fixture
def ears(store: Store, queue: WorkQueue) -> Iterator[Subscription]:
    """What a consumer listens to that stands ready."""
    listening = store.connection.subscribe([queue.calls.keys.held(READY)])
    yield listening
    listening.close()


def stand_ready(queue: WorkQueue, count: int = 1, consumer: ConsumerName = READY) -> None:
    claimed = queue.store.run(queue.calls.claim_records(max(count, 1), consumer, ["-"] * count))
    assert claimed == []


def ready_count(queue: WorkQueue) -> tuple[int, int]:
    counts = queue.counts()
    return counts.ready, counts.leased


def test_it_travels_inside_the_wake_up_and_is_settled_like_any_other(
    queue: WorkQueue, ears: Subscription
) -> None:
    stand_ready(queue)

    queue.enqueue(a_message(b"hello"))
    heard = ears.get(WAIT_S)

    assert heard is not None
    fence, _, record = heard[1].split(b" ", 2)
    delivery = decode_record(record, int(fence))
    assert delivery.body == b"hello"
    assert ready_count(queue) == (0, 1)
    assert queue.settle(Ack(delivery, b"done"), consumer=READY) == []
    assert queue.find(delivery.id).state == "succeeded"


def test_no_more_than_were_offered_are_handed_over(queue: WorkQueue, ears: Subscription) -> None:
    stand_ready(queue, 2)

    for _ in range(3):
        queue.enqueue(a_message())

    assert [ears.get(WAIT_S) is not None for _ in range(2)] == [True, True]
    assert ready_count(queue) == (1, 2)


def test_with_a_ticket_it_goes_to_the_worker_too(store: Store, queue: WorkQueue, ears: Subscription) -> None:
    workers = store.connection.subscribe([queue.calls.keys.begin(READY, number) for number in (0, 1)])
    store.run(queue.calls.claim_records(3, READY, ["1:70", "-", "0:71"]))

    for _ in range(4):
        queue.enqueue(a_message())
    heard = [ears.get(WAIT_S) for _ in range(3)]
    heard_by_workers = [workers.get(WAIT_S) for _ in range(2)]
    workers.close()

    texts = [text for call in heard if call is not None for text in [call[1]]]
    assert [text.split(b" ", 2)[1] for text in texts] == [b"1:70", b"-", b"0:71"]
    assert heard_by_workers == [
        (queue.calls.keys.begin(READY, 1), texts[0]),
        (queue.calls.keys.begin(READY, 0), texts[2]),
    ]
    assert ready_count(queue) == (1, 3)


def test_the_first_tickets_are_for_what_was_claimed_at_once(queue: WorkQueue, ears: Subscription) -> None:
    queue.enqueue(*some_messages(2))
    claimed = queue.store.run(queue.calls.claim_records(3, READY, ["0:70", "1:71", "2:72"]))
    queue.enqueue(a_message())
    heard = ears.get(WAIT_S)

    assert isinstance(claimed, list)
    assert len(claimed) == 2
    assert heard is not None
    assert heard[1].split(b" ", 2)[1] == b"2:72"


@pytest.mark.parametrize("kind", ["plain", "several", "urgent"])
def test_what_is_put_behind_a_message_of_which_nobody_was_told_wakes_whoever_is_idle(
    store: Store, queue: WorkQueue, raw: RawQueue, kind: str
) -> None:
    """As a foreign client leaves it: pushed into the line without a word."""
    stand_ready(queue)
    raw.client.rpush(queue.calls.keys.named("ready"), b"rubbish")
    wake_ups = store.connection.subscribe([queue.calls.keys.meta])

    match kind:
        case "plain":
            queue.enqueue(a_message())
        case "several":
            queue.enqueue(*some_messages(2))
        case _:
            queue.enqueue(a_message(priority=5))
    heard = wake_ups.get(WAIT_S)
    wake_ups.close()

    assert heard == (queue.calls.keys.meta, b"ready")


def test_while_messages_wait_for_busy_consumers_nobody_is_woken_for_more(
    store: Store, queue: WorkQueue
) -> None:
    stand_ready(queue)
    wake_ups = store.connection.subscribe([queue.calls.keys.meta])
    queue.enqueue(*some_messages(3))
    assert wake_ups.get(WAIT_S) is not None
    queue.store.run(queue.calls.claim_records(1, READY, []))

    queue.enqueue(a_message())

    assert wake_ups.get(0.2) is None
    wake_ups.close()


def test_fences_go_on_counting_after_a_message_was_handed_over(queue: WorkQueue, ears: Subscription) -> None:
    stand_ready(queue)
    queue.enqueue(a_message())
    heard = ears.get(WAIT_S)
    queue.enqueue(a_message())
    (claimed,) = queue.claim(1, consumer=OTHER)

    assert heard is not None
    assert int(heard[1].split(b" ", 1)[0]) < claimed.fence


def test_without_a_listener_it_waits_in_line(queue: WorkQueue, raw: RawQueue) -> None:
    stand_ready(queue)

    queue.enqueue(a_message())

    assert ready_count(queue) == (1, 0)
    assert raw.client.hget(raw.key("meta"), "offer") is None, "whoever offered is gone"


def test_what_others_wait_before_is_not_handed_over(queue: WorkQueue, ears: Subscription) -> None:
    stand_ready(queue, 3)
    queue.enqueue(*some_messages(2))  # a batch goes in line, whole
    queue.enqueue(a_message())

    assert ready_count(queue) == (3, 0)
    assert ears.get(0) is None


def test_what_is_urgent_comes_first(queue: WorkQueue, ears: Subscription) -> None:
    stand_ready(queue)
    queue.enqueue(a_message(priority=9))
    queue.enqueue(a_message())

    assert ready_count(queue) == (2, 0)
    assert ears.get(0) is None


def test_a_long_message_waits_in_line(queue: WorkQueue, ears: Subscription) -> None:
    stand_ready(queue)
    queue.enqueue(a_message(b"x" * 100_000))

    assert ready_count(queue) == (1, 0)
    assert ears.get(0) is None


def test_a_paused_queue_hands_nothing_over(queue: WorkQueue, ears: Subscription) -> None:
    stand_ready(queue)
    queue.pause()
    queue.enqueue(a_message())
    stand_ready(queue)
    queue.enqueue(a_message())

    assert ready_count(queue) == (2, 0)
    assert ears.get(0) is None


def test_an_offer_is_withdrawn_by_a_claim_that_makes_none(queue: WorkQueue, ears: Subscription) -> None:
    stand_ready(queue)
    stand_ready(queue, 0)
    queue.enqueue(a_message())

    assert ready_count(queue) == (1, 0)
    assert ears.get(0) is None


def test_a_consumer_withdraws_only_its_own_offer(queue: WorkQueue, ears: Subscription) -> None:
    stand_ready(queue)
    stand_ready(queue, 0, OTHER)
    queue.enqueue(a_message())

    assert ears.get(WAIT_S) is not None


def test_who_was_found_silent_stands_ready_no_longer(queue: WorkQueue, ears: Subscription) -> None:
    stand_ready(queue)
    queue.reap(READY, silent_ms=0)
    queue.enqueue(a_message())

    assert ready_count(queue) == (1, 0)
    assert ears.get(0) is None


def test_what_was_handed_to_one_who_died_is_released_by_the_reaper(
    queue: WorkQueue, ears: Subscription
) -> None:
    stand_ready(queue)
    queue.enqueue(a_message())
    assert ears.get(WAIT_S) is not None

    assert queue.reap(READY, silent_ms=0) == 1

    assert ready_count(queue) == (1, 0)


def test_a_call_that_is_sent_again_hands_over_once(
    store: Store, queue: WorkQueue, ears: Subscription
) -> None:
    stand_ready(queue, 2)
    exchange = store.begin([queue.calls.enqueue([a_message()])])

    store.connection.execute(exchange.commands(), exchange.key)  # its reply is lost
    store.attempt(exchange)

    assert ready_count(queue) == (0, 1)
    assert ears.get(WAIT_S) is not None
    assert ears.get(0) is None


def test_a_foreign_type_in_the_way_refuses_the_message_whole(
    queue: WorkQueue, ears: Subscription, raw: RawQueue
) -> None:
    queue.enqueue(a_message())
    queue.purge_waiting()
    stand_ready(queue)
    raw.client.set(queue.calls.keys.held(READY), "foreign")
    before = raw.dump_without_calls()

    with pytest.raises(StoreRefused, match="WRONGTYPE"):
        queue.enqueue(a_message())

    assert raw.dump_without_calls() == before
    assert ears.get(0) is None
