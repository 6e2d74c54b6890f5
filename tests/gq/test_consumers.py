"""Consumers: birth order, partitions, heartbeats, death and return."""

from __future__ import annotations

import threading

import pytest

from mqworker.errors import InvalidArgument
from mqworker.queues.gq.client import GqClient
from mqworker.queues.gq.database import GqNotRegistered
from mqworker.queues.gq.rules import GqLiveness, GqStatus, GqView
from tests.gq.databases import Database
from tests.support.deadline import wait_until

LIVENESS = GqLiveness(interval_ms=2_000, missed_beats=2, check_every=1)
JUST_ALIVE_MS = 5_000  # floor(5000 / 2000) = 2 = D, with a second for a slow test
JUST_DEAD_MS = 6_000


def push(client: GqClient, count: int) -> None:
    producer = client.producer(push_batch=min(count, 1_000), linger_ms=None)
    for number in range(1, count + 1):
        producer.push(b"%d" % number)
    producer.close()


def uuids(client: GqClient) -> list[str]:
    return [record.uuid for record in client.consumers()]


def test_the_first_pop_of_the_only_consumer_returns_the_ten_oldest(client: GqClient) -> None:
    """Q03."""
    push(client, 25)

    batch = client.consumer().pop()

    assert [message.id for message in batch] == list(range(1, 11))


def test_messages_are_partitioned_by_birth_order(client: GqClient) -> None:
    """Q04."""
    push(client, 30)
    consumers = [client.consumer(pop_batch=100) for _ in range(3)]
    for consumer in consumers:
        consumer.register()

    batches = [[message.id for message in consumer.pop()] for consumer in consumers]

    assert batches == [[id_ for id_ in range(1, 31) if id_ % 3 == index] for index in range(3)]


def test_a_message_whose_deadline_lies_ahead_is_delivered_like_one_without(client: GqClient) -> None:
    """Q06, first half; the second is in test_guarantees."""
    producer = client.producer()
    producer.push(b"with", 4_000_000_000)
    producer.push(b"without")

    for guarantee in ("at_most_once", "at_least_once"):
        consumer = client.consumer(guarantee=guarantee, pop_batch=1)
        assert len(consumer.pop()) == 1
        consumer.stop()


def test_a_partition_behind_thousands_of_others_is_found(client: GqClient) -> None:
    push(client, 9_000)
    for view in (GqView(0, 9_001), GqView(1, 9_001), GqView(8_999, 9_001)):
        ids = client.consumer().select(view)

        assert ids == [id_ for id_ in range(1, 9_001) if id_ % 9_001 == view.index]


def test_indexes_shift_when_an_older_consumer_leaves(client: GqClient) -> None:
    first, second = client.consumer(), client.consumer()
    first.register()
    second.register()
    before = (first.view(), second.view())

    first.stop()

    assert before == (GqView(0, 2), GqView(1, 2))
    assert second.view() == GqView(0, 1)
    with pytest.raises(GqNotRegistered):
        first.view()


def test_two_consumers_are_never_at_the_same_place(client: GqClient) -> None:
    consumers = [client.consumer() for _ in range(20)]
    for consumer in consumers:
        consumer.register()

    assert [consumer.view() for consumer in consumers] == [GqView(index, 20) for index in range(20)]


def test_a_pruned_consumer_registers_anew_before_it_receives(database: Database, client: GqClient) -> None:
    """Q14."""
    first, second = client.consumer(liveness=LIVENESS), client.consumer(liveness=LIVENESS)
    old = first.register()
    second.register()
    database.silence(old, JUST_DEAD_MS)
    second.heartbeat()
    assert uuids(client) == [second.uuid]
    push(client, 4)

    batch = first.pop()

    assert first.uuid != old
    assert uuids(client) == [second.uuid, first.uuid]
    assert first.view() == GqView(1, 2)
    assert [message.id for message in batch] == [1, 3]
    assert {message.claim.consumer for message in batch} == {first.uuid}


def test_a_dead_consumer_may_not_claim_before_it_registered(database: Database, client: GqClient) -> None:
    """Q14, the two-step form."""
    consumer = client.consumer(liveness=LIVENESS)
    consumer.register()
    push(client, 2)
    ids = consumer.select()
    database.silence(consumer.uuid, JUST_DEAD_MS)

    with pytest.raises(GqNotRegistered):
        consumer.claim(ids)

    assert client.counts()[GqStatus.QUEUED] == 2


def test_a_heartbeat_of_one_who_was_given_up_registers_anew(database: Database, client: GqClient) -> None:
    consumer = client.consumer(liveness=LIVENESS)
    old = consumer.register()
    database.silence(old, JUST_DEAD_MS)

    is_registered = consumer.heartbeat()

    assert is_registered
    assert consumer.uuid != old
    assert uuids(client) == [consumer.uuid]


def test_d_intervals_of_silence_are_life_and_more_are_death(database: Database, client: GqClient) -> None:
    """Q15."""
    silent, other = client.consumer(liveness=LIVENESS), client.consumer(liveness=LIVENESS)
    silent.register()
    other.register()

    database.silence(silent.uuid, JUST_ALIVE_MS)
    other.heartbeat()
    alive = uuids(client)
    database.silence(silent.uuid, JUST_DEAD_MS)
    other.heartbeat()

    assert alive == [silent.uuid, other.uuid]
    assert uuids(client) == [other.uuid]


def test_the_dead_are_deleted_after_every_h_heartbeats(database: Database, client: GqClient) -> None:
    """Q15."""
    liveness = GqLiveness(interval_ms=2_000, missed_beats=2, check_every=3)
    silent, other = client.consumer(liveness=liveness), client.consumer(liveness=liveness)
    silent.register()
    other.register()
    database.silence(silent.uuid, JUST_DEAD_MS)

    known = []
    for _ in range(3):
        other.heartbeat()
        known.append(len(uuids(client)))

    assert known == [2, 2, 1]


def test_the_dead_do_not_count_even_before_they_are_deleted(database: Database, client: GqClient) -> None:
    silent, other = client.consumer(liveness=LIVENESS), client.consumer(liveness=LIVENESS)
    silent.register()
    other.register()

    database.silence(silent.uuid, JUST_DEAD_MS)

    assert other.view() == GqView(0, 1)


def test_a_beat_from_the_future_kills_nobody(database: Database, client: GqClient) -> None:
    consumer = client.consumer(liveness=LIVENESS)
    consumer.register()

    database.silence(consumer.uuid, -3_600_000)  # as after the database's clock was set back

    assert consumer.heartbeat()
    assert consumer.view() == GqView(0, 1)


def test_an_empty_queue_gives_an_empty_batch_and_the_consumer_lives(client: GqClient) -> None:
    """Q17."""
    consumer = client.consumer()

    assert consumer.pop() == []
    assert consumer.view() == GqView(0, 1)


def test_stop_finishes_the_batch_and_deletes_the_record(client: GqClient) -> None:
    """Q18."""
    push(client, 3)
    in_work, may_go_on = threading.Event(), threading.Event()

    def process(_payload: bytes) -> None:
        in_work.set()
        assert may_go_on.wait(10)

    consumer = client.consumer(process)
    worker = threading.Thread(target=consumer.run)
    worker.start()
    assert in_work.wait(10)
    assert len(client.consumers()) == 1

    stopper = threading.Thread(target=consumer.stop)
    stopper.start()
    still_there = len(client.consumers())
    may_go_on.set()
    stopper.join(10)
    worker.join(10)

    assert still_there == 1
    assert client.consumers() == []
    assert client.counts()[GqStatus.PROCESSED] == 3


def test_a_callback_may_stop_its_consumer(client: GqClient) -> None:
    """Q18."""
    push(client, 15)
    consumer = client.consumer(lambda _payload: consumer.stop())

    consumer.run()

    assert client.consumers() == []
    assert client.counts()[GqStatus.PROCESSED] == 10


def test_heartbeats_go_on_while_a_callback_runs(client: GqClient) -> None:
    liveness = GqLiveness(interval_ms=20, missed_beats=50)
    push(client, 1)
    go_on = threading.Event()
    consumer = client.consumer(lambda _payload: go_on.wait(10), liveness=liveness)
    worker = threading.Thread(target=consumer.run)
    worker.start()
    wait_until(lambda: client.counts()[GqStatus.CONSUMED] == 1, "the callback runs")
    before = client.consumers()[0].last_beat_at_ms

    wait_until(lambda: client.consumers()[0].last_beat_at_ms > before, "another heartbeat came")
    go_on.set()
    consumer.stop()
    worker.join(10)

    assert client.counts()[GqStatus.PROCESSED] == 1


@pytest.mark.parametrize(
    "options",
    [
        {"pop_batch": 0},
        {"pop_batch": 1_001},
        {"guarantee": "exactly_once"},
        {"max_retries": -1},
        {"reclaim_dead": True, "guarantee": "at_most_once"},
    ],
)
def test_options_out_of_bounds_are_refused(client: GqClient, options: dict[str, object]) -> None:
    with pytest.raises(InvalidArgument):
        client.consumer(**options)  # type: ignore[arg-type]
