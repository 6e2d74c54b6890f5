"""Answers that are lost in the middle of a batch: the call is repeated, and nothing is lost or done twice."""

from __future__ import annotations

import pytest

from mqworker.errors import StoreUnavailable
from mqworker.queues.gq.client import GqClient
from mqworker.queues.gq.consumer import BatchReport
from mqworker.queues.gq.rules import GqStatus
from tests.gq.databases import Database
from tests.gq.deaf_store import DeafStore


@pytest.fixture
def deaf(client: GqClient) -> DeafStore:
    return DeafStore(client.store)


def push(client: GqClient, count: int) -> None:
    with client.producer(push_batch=count) as producer:
        for number in range(1, count + 1):
            producer.push(b"%d" % number)


def test_a_batch_whose_claim_was_not_heard_is_received_by_the_next_pop(
    client: GqClient, deaf: DeafStore
) -> None:
    push(client, 15)
    consumer = GqClient(deaf).consumer()
    deaf.deaf_to = ["pop"]

    with pytest.raises(StoreUnavailable):
        consumer.pop()
    taken = client.counts()[GqStatus.CONSUMED]
    batches = [[message.id for message in consumer.pop()] for _ in range(3)]

    assert taken == 10
    assert batches == [list(range(1, 11)), list(range(11, 16)), []]


def test_the_batch_is_received_even_if_the_consumer_was_given_up_meanwhile(
    database: Database, client: GqClient, deaf: DeafStore
) -> None:
    push(client, 15)
    consumer = GqClient(deaf).consumer()
    deaf.deaf_to = ["pop"]
    with pytest.raises(StoreUnavailable):
        consumer.pop()
    old = consumer.uuid
    database.silence(old, 60_000)
    consumer.heartbeat()

    batches = [[message.id for message in consumer.pop()] for _ in range(2)]

    assert consumer.uuid != old
    assert batches == [list(range(1, 11)), list(range(11, 16))]


def test_a_claim_that_was_reclaimed_meanwhile_is_forgotten(
    database: Database, client: GqClient, deaf: DeafStore
) -> None:
    push(client, 4)
    consumer = GqClient(deaf).consumer(reclaim_dead=True)
    deaf.deaf_to = ["pop"]
    with pytest.raises(StoreUnavailable):
        consumer.pop()
    database.silence(consumer.uuid, 60_000)
    consumer.heartbeat()

    batch = consumer.pop()

    assert [(message.id, message.attempt) for message in batch] == [(1, 2), (2, 2), (3, 2), (4, 2)]
    assert len(client.consumers()) == 1


def test_results_that_were_not_written_are_written_by_the_next_call(
    client: GqClient, deaf: DeafStore
) -> None:
    push(client, 3)
    seen: list[bytes] = []
    consumer = GqClient(deaf).consumer(seen.append)
    deaf.deaf_to = ["register", "settle"]

    with pytest.raises(StoreUnavailable):
        consumer.run_once()
    with pytest.raises(StoreUnavailable):
        consumer.run_once()
    report = consumer.run_once()

    assert seen == [b"1", b"2", b"3"]
    assert report == BatchReport()
    assert client.counts()[GqStatus.PROCESSED] == 3


def test_run_waits_an_outage_out(client: GqClient, deaf: DeafStore) -> None:
    push(client, 3)

    def process(payload: bytes) -> None:
        if payload == b"3":
            consumer.stop()

    consumer = GqClient(deaf).consumer(process)
    deaf.deaf_to = ["register", "pop", "pop"]

    consumer.run()

    assert client.counts()[GqStatus.PROCESSED] == 3
    assert consumer.run_once() == BatchReport()
