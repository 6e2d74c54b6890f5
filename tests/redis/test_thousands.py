"""Each script with as many entries as nobody sends at once: all of them are carried out, or none."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mqworker.model.delivery import Delivery
from mqworker.model.instant import After
from mqworker.model.names import ConsumerName
from mqworker.model.settlement import Ack, Bury, Failure, Park, Release, RetryAt, Settlement
from mqworker.queues.rsmq.client import RsmqClient
from mqworker.queues.work.queue import WorkQueue
from mqworker.store.store import Store
from tests.support.messages import AN_HOUR_MS, a_message
from tests.support.raw_queue import RawQueue

MANY = 9_001
"""More than Lua's stack holds, and as pairs far more."""
NODE = ConsumerName("node")
FAILURE = Failure("ValueError", "no")


def claim_all(queue: WorkQueue, consumer: ConsumerName | None = NODE) -> list[Delivery]:
    claimed = queue.store.run(queue.calls.claim(MANY, consumer, AN_HOUR_MS))
    assert isinstance(claimed, list)
    return [each for each in claimed if isinstance(each, Delivery)]


def claimed(queue: WorkQueue, consumer: ConsumerName | None = NODE) -> list[Delivery]:
    queue.store.run(queue.calls.enqueue([a_message(id=f"m{number}") for number in range(MANY)]))
    deliveries = claim_all(queue, consumer)
    assert len(deliveries) == MANY
    return deliveries


def settle(
    queue: WorkQueue, settlements: list[Settlement], consumer: ConsumerName | None = NODE
) -> list[Settlement]:
    return queue.store.run(queue.calls.settle(settlements, consumer))


@pytest.mark.parametrize("consumer", [NODE, None])
def test_all_are_acked_with_their_results(
    queue: WorkQueue, raw: RawQueue, consumer: ConsumerName | None
) -> None:
    deliveries = claimed(queue, consumer)

    lost = settle(queue, [Ack(each, b"\xc0") for each in deliveries], consumer)

    assert lost == []
    assert queue.counts().totals["succeeded"] == MANY
    assert len(raw.read().results) == MANY
    assert raw.read(NODE).held == [{}, {}]


@pytest.mark.parametrize(
    ("settlement", "place"),
    [
        (Release, "ready"),
        (lambda each: RetryAt(each, After(0), FAILURE), "ready"),
        (lambda each: RetryAt(each, After(60_000), FAILURE), "delayed"),
        (lambda each: Park(each, After(60_000), FAILURE), "delayed"),
        (lambda each: Bury(each, "failed", FAILURE), "dead"),
    ],
)
def test_all_come_back_or_are_buried(
    queue: WorkQueue, raw: RawQueue, settlement: Callable[[Delivery], Settlement], place: str
) -> None:
    deliveries = claimed(queue)

    assert settle(queue, [settlement(each) for each in deliveries]) == []

    assert len(getattr(raw.read(), place)) == MANY
    assert raw.read(NODE).held == [{}, {}]


def test_what_is_given_back_keeps_its_order(queue: WorkQueue) -> None:
    deliveries = claimed(queue)
    settle(queue, [Release(each) for each in deliveries])

    assert [each.id for each in claim_all(queue)] == [each.id for each in deliveries]


def test_all_of_a_dead_consumer_come_back(queue: WorkQueue, raw: RawQueue) -> None:
    claimed(queue)

    while queue.reap_dead(NODE):
        pass

    assert len(raw.read().ready) == MANY


def test_all_that_wait_are_waited_for(queue: WorkQueue, raw: RawQueue) -> None:
    deliveries = claimed(queue)
    queue.store.run(queue.calls.wait([each.id for each in deliveries]))

    settle(queue, [Ack(each, b"") for each in deliveries])

    assert raw.client.scard(raw.key("waiters")) == 0


def test_elements_are_pushed_popped_and_acked(queue: WorkQueue) -> None:
    queue.store.run(queue.calls.push([b"x"] * MANY))
    popped = queue.store.run(queue.calls.pop(MANY))
    assert isinstance(popped, list)
    assert len(popped) == MANY

    acked = queue.store.run(queue.calls.ack([message for message, _ in popped]))

    assert acked is not None
    assert len(acked) == MANY


def test_all_that_wait_are_purged(queue: WorkQueue, raw: RawQueue) -> None:
    messages = [a_message(id=f"m{number}", due=After(60_000)) for number in range(MANY)]
    queue.store.run(queue.calls.enqueue(messages))

    removed = sum(iter(queue.purge_waiting, 0))

    assert removed == MANY
    assert raw.read().delayed == []


def test_messages_are_sent_received_and_deleted_in_rsmq(store: Store) -> None:
    client = RsmqClient(store)
    client.create_queue("q")

    client.send_messages("q", ["x"] * 1_000)
    received = client.receive_messages("q", 1_000)

    assert all(client.delete_messages("q", [each.id for each in received]))
    assert len(received) == 1_000
