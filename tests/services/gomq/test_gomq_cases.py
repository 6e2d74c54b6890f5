"""The cases of the GOMQ document over real gRPC connections, by clients that know the contract alone."""

from __future__ import annotations

import base64
import json
import re
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
import redis

from tests.services.gomq.conftest import Connect
from tests.services.gomq.gomq_node import Foreign
from tests.support.deadline import wait_until
from tests.support.topic_formats import parse_unix_date


def members(raw: redis.Redis, key: str) -> set[str]:
    return {member.decode() for member in raw.smembers(key)}


def peer_of(raw: redis.Redis, consumer: str) -> str:
    [peer] = members(raw, f"PEERS_{consumer}")
    return peer


def ids_of(client: Foreign, consumer: str, count: int) -> list[str]:
    return [record.value.id for record in client.observe_until(consumer, count)]


def test_a_published_record_waits_for_a_subscriber(connect: Connect, raw: redis.Redis) -> None:
    """G01, G02."""
    client = connect()

    code = client.publish("FOO", b"x")
    [text] = raw.lrange("QUEUE_FOO", 0, -1)
    record = json.loads(text)
    client.subscribe("FOO", "BAR")
    dedicated = f"MESSAGES_FOO_BAR_{peer_of(raw, 'BAR')}"
    wait_until(lambda: raw.llen(dedicated), "the record was moved")

    assert code == 0
    assert list(record) == ["id", "timestamp", "payload"]
    assert re.fullmatch("[0-9a-v]{20}", record["id"])
    assert abs(parse_unix_date(record["timestamp"]) - int(raw.time()[0])) < 60
    assert base64.b64decode(record["payload"]) == b"x"
    assert not raw.exists("QUEUE_FOO")
    assert raw.lrange(dedicated, 0, -1) == [text]
    assert raw.ttl(dedicated) == -1


def test_subscribing_writes_the_documented_keys(connect: Connect, raw: redis.Redis) -> None:
    """G03."""
    assert connect().subscribe("FOO", "BAR") == 0

    peer = peer_of(raw, "BAR")
    assert re.fullmatch(r"127\.0\.0\.1:\d+", peer)
    assert members(raw, "CONSUMERS_FOO") == {"BAR"}
    assert members(raw, "SUBSCRIPTIONS_BAR") == {"FOO"}
    assert members(raw, "SUBSCRIBED_KEYS") == {"QUEUE_FOO"}
    assert 0 < raw.ttl(f"LASTACTION_BAR_{peer}") <= 30


def test_every_connection_gets_a_copy(connect: Connect) -> None:
    """G04."""
    peers = [(connect(), consumer) for consumer in ("BAR", "BAR", "BAZ")]
    for client, consumer in peers:
        client.subscribe("FOO", consumer)

    connect().publish("FOO", b"for all")
    copies = [ids_of(client, consumer, 1) for client, consumer in peers]

    assert len(copies[0]) == 1
    assert copies[0] == copies[1] == copies[2]
    assert [client.observe(consumer) for client, consumer in peers] == [[], [], []]


def test_fifty_records_come_at_once_in_order(connect: Connect, raw: redis.Redis) -> None:
    """G05."""
    client = connect()
    client.subscribe("FOO", "BAR")
    for number in range(120):
        client.publish("FOO", b"%d" % number)
    dedicated = f"MESSAGES_FOO_BAR_{peer_of(raw, 'BAR')}"
    wait_until(lambda: raw.llen(dedicated) == 120, "all records were moved")

    taken = [client.observe("BAR") for _ in range(4)]

    assert [len(records) for records in taken] == [50, 50, 20, 0]
    assert [int(record.value.payload) for records in taken for record in records] == list(range(120))


@pytest.mark.parametrize("payload", [bytes.fromhex("ff000d0a0d0a6869"), b"", b"x" * 1_048_576])
def test_payloads_arrive_as_they_were(connect: Connect, raw: redis.Redis, payload: bytes) -> None:
    """G06, G07, and the largest one."""
    client = connect()

    client.publish("FOO", payload)
    stored = json.loads(raw.lindex("QUEUE_FOO", 0) or b"")
    client.subscribe("FOO", "BAR")
    [record] = client.observe_until("BAR", 1)

    assert ("payload" in stored) == bool(payload)
    assert (record.key, record.value.id, record.value.payload) == ("FOO", stored["id"], payload)
    assert record.value.timestamp == stored["timestamp"]


def test_large_records_come_in_answers_that_every_client_can_receive(connect: Connect) -> None:
    """Most clients refuse an answer of more than 4 MiB, and what was in it would be lost."""
    client = connect()
    client.subscribe("FOO", "BAR")
    for number in range(12):
        client.publish("FOO", b"%02d" % number + bytes(600_000))

    found = client.observe_until("BAR", 12)

    assert [int(record.value.payload[:2]) for record in found] == list(range(12))


def test_an_unknown_consumer_observes_nothing(connect: Connect) -> None:
    """G08."""
    assert connect().observe("NEVER SEEN") == []


def test_unsubscribing_counts_for_all_peers_and_may_be_repeated(connect: Connect, raw: redis.Redis) -> None:
    """G09, G11, and the third of the document's own tests."""
    one, two = connect(), connect()
    for client in (one, two):
        client.subscribe("FOO", "BAR")
    for payload in (b"1", b"2"):
        one.publish("FOO", payload)
    before = [len(client.observe_until("BAR", 2)) for client in (one, two)]

    codes = [one.unsubscribe("FOO", "BAR"), one.unsubscribe("FOO", "BAR"), one.unsubscribe("NO", "BODY")]
    for payload in (b"3", b"4"):
        two.publish("FOO", payload)

    assert before == [2, 2]
    assert codes == [0, 0, 0]
    assert raw.llen("QUEUE_FOO") == 2
    assert [client.observe("BAR") for client in (one, two)] == [[], []]


def test_a_silent_peer_is_dropped_and_its_consumer_with_it(connect: Connect, raw: redis.Redis) -> None:
    """G13: by the sweep of the heartbeat reaper; the end of the 30 s is brought forward."""
    client = connect()
    client.subscribe("FOO", "BAR")
    raw.delete(f"LASTACTION_BAR_{peer_of(raw, 'BAR')}")

    wait_until(lambda: not raw.exists("PEERS_BAR"), "the sweep came")
    client.publish("FOO", b"stays")

    assert not raw.exists("CONSUMERS_FOO", "SUBSCRIPTIONS_BAR", "SUBSCRIBED_KEYS")
    assert raw.llen("QUEUE_FOO") == 1
    assert client.observe("BAR") == []


def test_a_client_that_reconnects_subscribes_anew(connect: Connect) -> None:
    """G14."""
    old, publisher = connect(), connect()
    old.subscribe("FOO", "BAR")
    old.close()

    new = connect()
    before = new.observe("BAR")
    new.subscribe("FOO", "BAR")
    publisher.publish("FOO", b"new")

    assert before == []
    assert [record.value.payload for record in new.observe_until("BAR", 1)] == [b"new"]


def test_foreign_keys_are_left_alone(connect: Connect, raw: redis.Redis) -> None:
    """G15."""
    raw.set("somebody", "else's")
    client = connect()

    client.publish("FOO", b"x")
    client.subscribe("FOO", "BAR")
    client.observe_until("BAR", 1)

    assert raw.get("somebody") == b"else's"


def test_a_hundred_consumers_and_a_hundred_publishers(connect: Connect) -> None:
    """G16, the first of the document's own tests: ten connections of ten consumers and of ten publishers."""
    listening = [connect() for _ in range(10)]
    for index, client in enumerate(listening):
        for number in range(10):
            client.subscribe("FOO", f"c{index}.{number}")

    def publish(client: Foreign) -> None:
        client.publish_many("FOO", [b"%d" % number for number in range(100)])

    def observe(index: int) -> list[int]:
        found = [ids_of(listening[index], f"c{index}.{number}", 1000) for number in range(10)]
        return [len(set(ids)) for ids in found if len(ids) == len(set(ids))]

    with ThreadPoolExecutor(10) as pool:
        list(pool.map(publish, [connect() for _ in range(10)]))
        counts = list(pool.map(observe, range(10)))

    assert counts == [[1000] * 10] * 10


def test_a_backlog_goes_to_all_who_subscribe_at_the_same_time(connect: Connect) -> None:
    """G17, the second of the document's own tests."""
    one, two = connect(), connect()

    connect().publish_many("key1", [b"x"] * 1000)
    connect().publish_many("key2", [b"y"] * 34)

    one.subscribe("key1", "c1")
    one.subscribe("key2", "c1")
    two.subscribe("key2", "c2")

    assert len(one.observe_until("c1", 1034)) == 1034
    assert len(two.observe_until("c2", 34)) == 34


def test_two_publishers_of_a_thousand_each(connect: Connect) -> None:
    """The fourth of the document's own tests."""
    client = connect()
    client.subscribe("FOO", "BAR")

    for who in ("A", "B"):
        connect().publish_many("FOO", [f"{who} {number}".encode() for number in range(1000)])
    found = [record.value.payload.decode() for record in client.observe_until("BAR", 2000)]

    assert sorted(found) == sorted(f"{who} {number}" for who in ("A", "B") for number in range(1000))


def test_names_that_would_make_two_queues_one_are_refused(connect: Connect) -> None:
    client = connect()
    client.subscribe("A_B", "C")

    with pytest.raises(grpc.RpcError) as caught:
        client.subscribe("A", "B_C")

    assert caught.value.code() is grpc.StatusCode.ALREADY_EXISTS
    assert "'A_B' with consumer 'C'" in caught.value.details()
