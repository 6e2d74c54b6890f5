"""Topics as a library, on one real server: GOMQ's keys and records, who gets what, and who is dropped."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import redis

from mqworker.errors import ConfigurationError, InvalidArgument, StoreFull, StoreRefused
from mqworker.queues.topics.arguments import TopicOptions
from mqworker.queues.topics.calls import TopicNameTaken, TopicRecord
from mqworker.queues.topics.client import AsyncTopics, Topics
from mqworker.queues.topics.xid import xid, xid_end
from mqworker.store.async_store import AsyncStore
from mqworker.store.link.address import parse_address
from mqworker.store.link.async_connection import open_async_connection
from mqworker.store.link.connection import Connection
from mqworker.store.store import Store
from tests.support.deadline import wait_until
from tests.support.fault_proxy import FaultProxy
from tests.support.messages import open_store
from tests.support.real_cluster import RealCluster
from tests.support.real_server import RealServer
from tests.support.topic_formats import parse_unix_date, parse_xid, unix_date

Anything: TypeAlias = Any
"""What a caller without types may pass."""

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "mqworker" / "queues" / "topics" / "scripts"
P1, P2, P3 = "127.0.0.1:5467", "127.0.0.1:5468", "[::1]:49806"
AT_ONCE = TopicOptions(grace_ms=0)
SIDE = "mqw:topics:{}"


@pytest.fixture
def store(connection: Connection) -> Store:
    return Store(connection)


@pytest.fixture
def topics(store: Store) -> Topics:
    """Topics whose backlog does not wait."""
    return Topics(store, AT_ONCE)


@pytest.fixture
def raw(server: RealServer) -> Iterator[redis.Redis]:
    with server.client() as client:
        yield client


def documented(raw: redis.Redis) -> set[str]:
    """All keys but our side keys."""
    return {key.decode() for key in raw.scan_iter() if not key.startswith(b"mqw:topics:")}


def texts(raw: redis.Redis, key: str) -> list[bytes]:
    return [text if isinstance(text, bytes) else text.encode() for text in raw.lrange(key, 0, -1)]


def payloads(records: list[TopicRecord]) -> list[bytes]:
    return [record.payload for record in records]


def observe_all(topics: Topics, consumer: str, peer: str) -> list[TopicRecord]:
    """Until nothing is left; records are dispatched on the way."""
    found: list[TopicRecord] = []
    while topics.dispatch() + len(records := topics.observe(consumer, peer)):
        found += records
    return found


def fall_silent(raw: redis.Redis, consumer: str, peer: str) -> None:
    """What the server does when the time to live is over."""
    assert raw.delete(f"LASTACTION_{consumer}_{peer}") == 1


def stored(raw: redis.Redis) -> dict[str, bytes | None]:
    return {name: raw.dump(name) for name in documented(raw) | {SIDE}}


def refusal_of(verb: Callable[[], object]) -> str:
    """What a verb that was refused said; '' when it was not."""
    try:
        verb()
    except StoreRefused as error:
        return str(error)
    return ""


# What is stored.


def test_a_published_record_is_stored_as_documented(topics: Topics, raw: redis.Redis) -> None:
    """G01."""
    before_s = int(raw.time()[0])

    record_id = topics.publish("FOO", b"x")

    [text] = texts(raw, "QUEUE_FOO")
    record = json.loads(text)
    published_s = parse_unix_date(record["timestamp"])
    assert re.fullmatch("[0-9a-v]{20}", record_id)
    assert before_s <= published_s <= int(raw.time()[0])
    assert parse_xid(record_id).seconds == published_s
    assert text == b'{"id":"%s","timestamp":"%s","payload":"eA=="}' % (
        record_id.encode(),
        unix_date(published_s).encode(),
    )
    assert raw.ttl("QUEUE_FOO") == -1
    assert documented(raw) == {"QUEUE_FOO"}


def test_a_waiting_record_reaches_the_first_subscriber_unchanged(topics: Topics, raw: redis.Redis) -> None:
    """G02."""
    topics.publish("FOO", b"early")
    before = texts(raw, "QUEUE_FOO")

    topics.subscribe("FOO", "BAR", P1)
    moved = topics.dispatch()

    assert moved == 1
    assert not raw.exists("QUEUE_FOO")
    assert texts(raw, f"MESSAGES_FOO_BAR_{P1}") == before


def test_a_subscription_is_stored_as_documented_and_again_changes_nothing(
    store: Store, raw: redis.Redis
) -> None:
    """G03."""
    topics = Topics(store)

    for _ in range(2):
        topics.subscribe("FOO", "BAR", P1)

    assert raw.smembers("CONSUMERS_FOO") == {b"BAR"}
    assert raw.smembers("SUBSCRIPTIONS_BAR") == {b"FOO"}
    assert raw.smembers("PEERS_BAR") == {P1.encode()}
    assert raw.smembers("SUBSCRIBED_KEYS") == {b"QUEUE_FOO"}
    assert 29_000 < raw.pttl(f"LASTACTION_BAR_{P1}") <= 30_000
    last_action = raw.get(f"LASTACTION_BAR_{P1}")
    assert isinstance(last_action, bytes)
    assert re.fullmatch(rb"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d{0,5}[1-9])? \+0000 UTC", last_action)
    assert documented(raw) == {
        *("CONSUMERS_FOO", "SUBSCRIPTIONS_BAR", "PEERS_BAR", "SUBSCRIBED_KEYS", f"LASTACTION_BAR_{P1}")
    }


@pytest.mark.parametrize(
    "day", ["1970-01-01", "1999-12-31", "2000-02-29", "2024-02-29", "2026-11-09", "2100-02-28", "2100-03-01"]
)
def test_the_server_writes_dates_and_ids_like_the_model(raw: redis.Redis, day: str) -> None:
    parts = "".join((SCRIPTS / "parts" / f"{name}.lua").read_text() for name in ("calendar", "xid"))
    code = (
        f"{parts} local s = tonumber(ARGV[1]) return {{unix_date(s), go_time(s, 120), xid_maker(s)(ARGV[2])}}"
    )
    midnight = int(datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp())
    tail = bytes(range(160, 256, 12))

    for seconds in (midnight, midnight + 86_399):
        date, time_text, record_id = raw.eval(code, 0, str(seconds), xid_end(tail))
        assert date.decode() == unix_date(seconds)
        assert (
            time_text.decode() == f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}.00012 +0000 UTC"
        )
        assert record_id.decode() == xid(seconds, tail)


def test_a_prefix_stands_before_every_documented_key(store: Store, raw: redis.Redis) -> None:
    topics, others = Topics(store, TopicOptions(prefix="shop:", grace_ms=0)), Topics(store, AT_ONCE)
    topics.subscribe("FOO", "BAR", P1)
    topics.publish("FOO", b"one")

    assert others.dispatch() + len(others.observe("BAR", P1)) == 0
    assert topics.dispatch() == 1
    topics.publish("FOO", b"two")
    assert raw.smembers("shop:SUBSCRIBED_KEYS") == {b"shop:QUEUE_FOO"}
    assert {key for key in documented(raw) if not key.startswith("shop:")} == {f"LASTACTION_BAR_{P1}"}
    assert payloads(topics.observe("BAR", P1)) == [b"one"]


@pytest.mark.parametrize("payload", [bytes.fromhex("ff000d0a0d0a6869"), bytes(range(256)), "grüß"])
def test_payloads_stay_as_they_are(topics: Topics, raw: redis.Redis, payload: bytes | str) -> None:
    """G06."""
    topics.subscribe("FOO", "BAR", P1)

    topics.publish("FOO", payload)
    stored = json.loads(texts(raw, "QUEUE_FOO")[0])["payload"]
    topics.dispatch()

    as_bytes = payload.encode() if isinstance(payload, str) else payload
    assert base64.b64decode(stored, validate=True) == as_bytes
    assert payloads(topics.observe("BAR", P1)) == [as_bytes]


def test_an_empty_payload_is_left_out_of_the_record(topics: Topics, raw: redis.Redis) -> None:
    """G07."""
    topics.subscribe("FOO", "BAR", P1)

    record_id = topics.publish("FOO", b"")
    stored = json.loads(texts(raw, "QUEUE_FOO")[0])
    topics.dispatch()

    assert list(stored) == ["id", "timestamp"]
    assert topics.observe("BAR", P1) == [TopicRecord("FOO", record_id, stored["timestamp"], b"")]


def test_foreign_keys_in_the_database_are_left_alone(topics: Topics, raw: redis.Redis) -> None:
    """G15."""
    raw.set("somebody", "else's")
    raw.rpush("QUEUEING", "not ours")

    topics.subscribe("FOO", "BAR", P1)
    topics.publish("FOO", b"x")
    observe_all(topics, "BAR", P1)
    fall_silent(raw, "BAR", P1)
    topics.sweep()

    assert documented(raw) == {"somebody", "QUEUEING"}


def test_a_main_queue_can_be_given_a_time_to_live(store: Store, raw: redis.Redis) -> None:
    Topics(store, TopicOptions(queue_ttl_ms=60_000)).publish("FOO", b"x")

    assert 0 < raw.pttl("QUEUE_FOO") <= 60_000


# Who gets what.


def test_every_peer_of_every_consumer_gets_a_copy(topics: Topics) -> None:
    """G04."""
    for consumer, peer in (("BAR", P1), ("BAR", P2), ("BAZ", P3)):
        topics.subscribe("FOO", consumer, peer)

    record_id = topics.publish("FOO", b"for all")
    topics.dispatch()

    for consumer, peer in (("BAR", P1), ("BAR", P2), ("BAZ", P3)):
        assert [(each.id, each.payload) for each in topics.observe(consumer, peer)] == [
            (record_id, b"for all")
        ]
        assert topics.observe(consumer, peer) == []


def test_peers_of_one_consumer_are_served_all_its_topics(topics: Topics) -> None:
    topics.subscribe("FOO", "BAR", P1)
    topics.subscribe("QUX", "BAR", P2)

    topics.publish("FOO", b"foo")
    topics.publish("QUX", b"qux")
    topics.dispatch()

    for peer in (P1, P2):
        assert sorted((each.key, each.payload) for each in topics.observe("BAR", peer)) == [
            ("FOO", b"foo"),
            ("QUX", b"qux"),
        ]


def test_observing_takes_fifty_of_each_topic_in_order(topics: Topics) -> None:
    """G05."""
    topics.subscribe("FOO", "BAR", P1)
    ids = topics.publish_many("FOO", [b"%d" % number for number in range(120)])
    topics.dispatch()

    taken = [topics.observe("BAR", P1) for _ in range(4)]

    assert [len(records) for records in taken] == [50, 50, 20, 0]
    assert [record.id for records in taken for record in records] == ids
    assert ids == sorted(set(ids))


def test_fifty_of_each_topic_come_together(topics: Topics) -> None:
    for key in ("FOO", "QUX"):
        topics.subscribe(key, "BAR", P1)
        topics.publish_many(key, [b"x"] * 60)
    topics.dispatch()

    assert [len(topics.observe("BAR", P1)) for _ in range(3)] == [100, 20, 0]


def test_an_unknown_consumer_observes_nothing(topics: Topics, raw: redis.Redis) -> None:
    """G08."""
    assert topics.observe("NOBODY", P1) == []
    assert documented(raw) == {f"LASTACTION_NOBODY_{P1}"}
    assert 0 < raw.ttl(f"LASTACTION_NOBODY_{P1}") <= 30


def test_unsubscribing_counts_for_all_peers(topics: Topics, raw: redis.Redis) -> None:
    """G09."""
    for peer in (P1, P2):
        topics.subscribe("FOO", "BAR", peer)
    topics.publish("FOO", b"unread")
    topics.dispatch()

    was_subscribed = topics.unsubscribe("FOO", "BAR")
    topics.publish("FOO", b"later")
    topics.dispatch()

    assert was_subscribed
    assert [topics.observe("BAR", peer) for peer in (P1, P2)] == [[], []]
    assert not raw.exists(f"MESSAGES_FOO_BAR_{P1}", f"MESSAGES_FOO_BAR_{P2}", "SUBSCRIBED_KEYS")
    assert [json.loads(text)["payload"] for text in texts(raw, "QUEUE_FOO")] == ["bGF0ZXI="]


def test_unsubscribing_twice_or_without_a_subscription_is_no_error(topics: Topics) -> None:
    """G11."""
    topics.subscribe("FOO", "BAR", P1)

    verdicts = [topics.unsubscribe("FOO", "BAR"), topics.unsubscribe("FOO", "BAR")]

    assert verdicts == [True, False]
    assert topics.unsubscribe("NEVER", "SEEN") is False


def test_an_unsubscribed_consumer_observes_no_more_and_another_one_goes_on(topics: Topics) -> None:
    """The third of GOMQ's own tests, with a neighbour."""
    topics.subscribe("FOO", "BAR", P1)
    topics.subscribe("FOO", "BAZ", P2)
    topics.publish_many("FOO", [b"1", b"2"])
    first = observe_all(topics, "BAR", P1)

    topics.unsubscribe("FOO", "BAR")
    topics.publish_many("FOO", [b"3", b"4"])

    assert payloads(first) == [b"1", b"2"]
    assert observe_all(topics, "BAR", P1) == []
    assert payloads(observe_all(topics, "BAZ", P2)) == [b"1", b"2", b"3", b"4"]


def test_what_nobody_listens_to_goes_to_the_next_subscriber(topics: Topics) -> None:
    topics.subscribe("FOO", "BAR", P1)
    topics.unsubscribe("FOO", "BAR")
    topics.publish("FOO", b"kept")
    topics.dispatch()

    topics.subscribe("FOO", "BAZ", P2)

    assert payloads(observe_all(topics, "BAZ", P2)) == [b"kept"]


def test_a_backlog_waits_for_more_subscribers(store: Store, raw: redis.Redis) -> None:
    """G17."""
    topics = Topics(store, TopicOptions(grace_ms=60_000))
    topics.publish_many("key1", [b"x"] * 1000)
    topics.publish_many("key2", [b"y"] * 34)

    topics.subscribe("key1", "c1", P1)
    topics.subscribe("key2", "c1", P1)
    dispatched_too_soon = topics.dispatch()
    topics.subscribe("key2", "c2", P2)
    for key in ("key1", "key2"):
        assert raw.delete(f"{SIDE}:grace:{key}") == 1  # a minute later

    assert dispatched_too_soon == 0
    assert len(observe_all(topics, "c1", P1)) == 1034
    assert len(observe_all(topics, "c2", P2)) == 34


def test_the_wait_ends_by_itself_and_only_a_backlog_waits(store: Store, raw: redis.Redis) -> None:
    """G17, and G02 with the wait that is usual."""
    topics = Topics(store)
    topics.publish("FOO", b"backlog")
    topics.subscribe("FOO", "BAR", P1)
    topics.subscribe("QUX", "BAR", P1)
    topics.publish("QUX", b"new")

    first = observe_all(topics, "BAR", P1)

    assert payloads(first) == [b"new"]
    assert 0 < raw.pttl(f"{SIDE}:grace:FOO") <= 1000
    wait_until(topics.dispatch, "the wait was over", deadline_s=2)
    assert payloads(topics.observe("BAR", P1)) == [b"backlog"]


# Many at once.


def test_a_hundred_consumers_and_a_hundred_publishers(topics: Topics) -> None:
    """G16: a hundred publishers of ten each, by ten threads; two threads dispatch at the same time."""
    consumers = [f"c{number}" for number in range(100)]
    for consumer in consumers:
        topics.subscribe("FOO", consumer, P1)
    is_over = threading.Event()

    def dispatch() -> None:
        while topics.dispatch() or not is_over.is_set():
            pass

    with ThreadPoolExecutor(12) as pool:
        dispatchers = [pool.submit(dispatch) for _ in range(2)]
        list(pool.map(lambda number: [topics.publish("FOO", f"{number}") for _ in range(10)], range(100)))
        is_over.set()
        for dispatcher in dispatchers:
            dispatcher.result()

    for consumer in consumers:
        ids = [record.id for _ in range(20) for record in topics.observe(consumer, P1)]
        assert len(ids) == len(set(ids)) == 1000
        assert topics.observe(consumer, P1) == []


def test_two_publishers_of_a_thousand_each(topics: Topics) -> None:
    """The fourth of GOMQ's own tests; the order of each publisher is kept."""
    topics.subscribe("FOO", "BAR", P1)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda who: topics.publish_many("FOO", [f"{who} {n}" for n in range(1000)]), "AB"))
    found = payloads(observe_all(topics, "BAR", P1))

    for who in ("A", "B"):
        mine = [payload for payload in found if payload.startswith(who.encode())]
        assert mine == [f"{who} {number}".encode() for number in range(1000)]


def test_concurrent_observers_of_one_peer_share_the_records(topics: Topics) -> None:
    topics.subscribe("FOO", "BAR", P1)
    ids = topics.publish_many("FOO", [b"x"] * 1000)
    topics.dispatch()

    with ThreadPoolExecutor(8) as pool:
        taken = list(pool.map(lambda _: topics.observe("BAR", P1), range(24)))

    assert sorted(record.id for records in taken for record in records) == ids


@pytest.mark.parametrize("killed_after", [1, 400, 950])
def test_a_killed_dispatcher_loses_and_doubles_nothing(
    server: RealServer, topics: Topics, raw: redis.Redis, killed_after: int
) -> None:
    """G18."""
    for peer in (P1, P2):
        topics.subscribe("FOO", "BAR", peer)
    ids = topics.publish_many("FOO", [b"%d" % number for number in range(1000)])
    command = [sys.executable, "-m", "tests.support.dispatching_process", server.url, "1"]
    with subprocess.Popen(command, cwd=ROOT) as dispatcher:
        wait_until(lambda: raw.llen("QUEUE_FOO") <= 1000 - killed_after, "the dispatcher was at work")
        dispatcher.kill()
    left = raw.llen("QUEUE_FOO")

    topics.dispatch()

    assert 0 <= left <= 1000 - killed_after
    for peer in (P1, P2):
        assert [json.loads(text)["id"] for text in texts(raw, f"MESSAGES_FOO_BAR_{peer}")] == ids


def test_lost_replies_lose_and_double_nothing(server: RealServer, raw: redis.Redis) -> None:
    with FaultProxy(server.port, lose_every=3) as proxy:
        topics = Topics(open_store(proxy.url), AT_ONCE)
        topics.subscribe("FOO", "BAR", P1)

        ids = [topics.publish("FOO", b"x") for _ in range(60)]
        topics.dispatch()
        found = [record.id for _ in range(4) for record in topics.observe("BAR", P1)]
        lost = proxy.lost
        topics.store.close()

    assert lost > 10
    assert found == ids
    assert raw.keys(f"{SIDE}:call:*")
    assert all(0 < raw.pttl(key) <= 300_000 for key in raw.keys(f"{SIDE}:call:*"))


# Who is dropped.


def test_the_only_peer_that_falls_silent_ends_its_consumer(topics: Topics, raw: redis.Redis) -> None:
    """G13."""
    for key in ("FOO", "QUX"):
        topics.subscribe(key, "BAR", P1)
    topics.publish("FOO", b"unread")
    topics.dispatch()
    fall_silent(raw, "BAR", P1)

    dropped = topics.sweep()
    topics.publish("FOO", b"kept")

    assert dropped == 1
    assert topics.dispatch() == 0
    assert documented(raw) == {"QUEUE_FOO"}
    assert not raw.exists(SIDE)
    assert topics.sweep() == 0


def test_a_peer_is_dropped_after_its_time_and_not_before(store: Store, raw: redis.Redis) -> None:
    """G13, with a short time."""
    topics = Topics(store, TopicOptions(silent_ms=150, grace_ms=0))
    topics.subscribe("FOO", "BAR", P1)

    assert 0 < raw.pttl(f"LASTACTION_BAR_{P1}") <= 150
    wait_until(topics.sweep, "the peer was dropped", deadline_s=2)
    assert documented(raw) == set()


def test_observing_prolongs_the_time(store: Store, raw: redis.Redis) -> None:
    topics = Topics(store)
    topics.subscribe("FOO", "BAR", P1)
    raw.pexpire(f"LASTACTION_BAR_{P1}", 500)

    topics.observe("BAR", P1)

    assert raw.pttl(f"LASTACTION_BAR_{P1}") > 29_000
    assert topics.sweep() == 0


def test_the_other_peers_of_a_consumer_go_on(topics: Topics, raw: redis.Redis) -> None:
    """SPEC §1.3, time-out: the original cut the living peer off."""
    for peer in (P1, P2):
        topics.subscribe("FOO", "BAR", peer)
    fall_silent(raw, "BAR", P1)

    topics.publish_many("FOO", [b"1", b"2"])
    topics.dispatch()

    assert raw.smembers("PEERS_BAR") == {P2.encode()}
    assert not raw.exists(f"MESSAGES_FOO_BAR_{P1}")
    assert payloads(topics.observe("BAR", P2)) == [b"1", b"2"]
    assert topics.observe("BAR", P1) == []


def test_dispatching_to_silent_peers_only_moves_nothing(topics: Topics, raw: redis.Redis) -> None:
    topics.subscribe("FOO", "BAR", P1)
    fall_silent(raw, "BAR", P1)
    topics.publish("FOO", b"kept")

    assert topics.dispatch() == 0
    assert documented(raw) == {"QUEUE_FOO"}


def test_a_client_from_another_port_subscribes_anew(topics: Topics) -> None:
    """G14."""
    topics.subscribe("FOO", "BAR", P1)
    topics.publish("FOO", b"for the old port")
    topics.dispatch()

    before = topics.observe("BAR", P2)
    topics.subscribe("FOO", "BAR", P2)
    topics.publish("FOO", b"new")
    topics.dispatch()

    assert before == []
    assert payloads(topics.observe("BAR", P2)) == [b"new"]


def test_a_dropped_peer_that_observes_gets_nothing_until_it_subscribes(
    topics: Topics, raw: redis.Redis
) -> None:
    topics.subscribe("FOO", "BAR", P1)
    fall_silent(raw, "BAR", P1)
    topics.sweep()
    topics.publish("FOO", b"waits")

    before = observe_all(topics, "BAR", P1)
    topics.subscribe("FOO", "BAR", P1)

    assert before == []
    assert payloads(observe_all(topics, "BAR", P1)) == [b"waits"]


@pytest.mark.parametrize("notice", ["sweep", "dispatch"])
def test_orphans_return_to_the_front_of_their_queue(store: Store, raw: redis.Redis, notice: str) -> None:
    topics = Topics(store, TopicOptions(grace_ms=0, orphans="requeue"))
    topics.subscribe("FOO", "BAR", P1)
    ids = topics.publish_many("FOO", [b"x"] * 60)
    topics.dispatch()
    topics.observe("BAR", P1)
    ids += topics.publish_many("FOO", [b"y"] * 3)
    fall_silent(raw, "BAR", P1)

    getattr(topics, notice)()

    assert [json.loads(text)["id"] for text in texts(raw, "QUEUE_FOO")] == ids[50:]
    assert documented(raw) == {"QUEUE_FOO"}


def test_orphans_of_which_others_have_copies_are_dropped(store: Store, raw: redis.Redis) -> None:
    topics = Topics(store, TopicOptions(grace_ms=0, orphans="requeue"))
    for consumer, peer in (("BAR", P1), ("BAR", P2), ("BAZ", P3)):
        topics.subscribe("FOO", consumer, peer)
    ids = topics.publish_many("FOO", [b"x"] * 3)
    topics.dispatch()
    for consumer, peer in (("BAR", P1), ("BAR", P2)):
        fall_silent(raw, consumer, peer)

    dropped = topics.sweep()

    assert dropped == 2
    assert not raw.exists("QUEUE_FOO")
    assert [record.id for record in topics.observe("BAZ", P3)] == ids


def test_the_last_of_several_silent_peers_returns_its_orphans_once(store: Store, raw: redis.Redis) -> None:
    topics = Topics(store, TopicOptions(grace_ms=0, orphans="requeue"))
    for consumer, peer in (("BAR", P1), ("BAR", P2), ("BAZ", P3)):
        topics.subscribe("FOO", consumer, peer)
    ids = topics.publish_many("FOO", [b"x"] * 3)
    topics.dispatch()
    for consumer, peer in (("BAR", P1), ("BAR", P2), ("BAZ", P3)):
        fall_silent(raw, consumer, peer)

    topics.sweep()

    assert [json.loads(text)["id"] for text in texts(raw, "QUEUE_FOO")] == ids


def test_a_consumer_that_ended_all_subscriptions_is_swept_too(topics: Topics, raw: redis.Redis) -> None:
    topics.subscribe("FOO", "BAR", P1)
    topics.unsubscribe("FOO", "BAR")
    fall_silent(raw, "BAR", P1)

    topics.sweep()

    assert raw.keys(f"*{P1}*") == []
    assert documented(raw) == set()


# Bad input.


def test_names_that_would_share_a_queue_are_refused_to_one_peer(topics: Topics, raw: redis.Redis) -> None:
    topics.subscribe("A_B", "C", P1)
    before = documented(raw)

    with pytest.raises(TopicNameTaken, match="two connections") as refused:
        topics.subscribe("A", "B_C", P1)

    assert (refused.value.key, refused.value.consumer) == ("A_B", "C")
    assert documented(raw) == before
    topics.subscribe("A", "B_C", P2)
    topics.subscribe("A_B", "C", P1)


def test_a_peer_that_would_bring_such_a_pair_about_indirectly_is_refused(topics: Topics) -> None:
    topics.subscribe("A_B", "C", P1)
    topics.subscribe("A", "B_C", P2)

    with pytest.raises(TopicNameTaken):
        topics.subscribe("X", "B_C", P1)  # P1 would be served A under B_C
    with pytest.raises(TopicNameTaken):
        topics.subscribe("Y", "C", P2)  # P2 would be served A_B under C
    topics.subscribe("Z", "D", P1)
    topics.subscribe("Z", "D_E", P2)
    topics.subscribe("Z_D", "E", P3)
    with pytest.raises(TopicNameTaken):
        topics.subscribe("Z_D", "E", P2)


@pytest.mark.parametrize("name", ["", None, 1, b"FOO", "x" * 513, "\ud800", "ü" * 257])
def test_names_that_are_none_are_refused(topics: Topics, raw: redis.Redis, name: Anything) -> None:
    """SPEC §1.3: an empty key; and whatever else is not a name."""
    for call in (
        lambda: topics.publish(name, b"x"),
        lambda: topics.subscribe(name, "BAR", P1),
        lambda: topics.subscribe("FOO", name, P1),
        lambda: topics.subscribe("FOO", "BAR", name),
        lambda: topics.unsubscribe(name, "BAR"),
        lambda: topics.unsubscribe("FOO", name),
        lambda: topics.observe(name, P1),
        lambda: topics.observe("BAR", name),
    ):
        with pytest.raises(InvalidArgument, match="1 to 512 bytes"):
            call()
    assert raw.keys() == []


def test_a_peer_has_no_underscore(topics: Topics) -> None:
    with pytest.raises(InvalidArgument, match="without _"):
        topics.subscribe("FOO", "BAR", "a_b")


@pytest.mark.parametrize("payload", [None, 1, ["x"], "\ud800", b"x" * (1_048_576 + 1)])
def test_payloads_that_are_none_are_refused_and_nothing_of_the_batch_is_stored(
    topics: Topics, raw: redis.Redis, payload: Anything
) -> None:
    with pytest.raises(InvalidArgument, match="payload is"):
        topics.publish_many("FOO", [b"fine", payload])
    assert raw.keys() == []


@pytest.mark.parametrize("name", ["a b", "FOO\r\nBAR", "ключ", "{x}", "*", "A__B_", "\x00"])
def test_every_other_text_is_a_name(topics: Topics, name: str) -> None:
    topics.subscribe(name, name, P1)
    topics.publish(name, b"x")
    topics.dispatch()

    assert [(record.key, record.payload) for record in topics.observe(name, P1)] == [(name, b"x")]


@pytest.mark.parametrize(
    "options",
    [
        {"prefix": "a b"},
        {"prefix": "x" * 65},
        {"prefix": None},
        {"silent_ms": 0},
        {"grace_ms": -1},
        {"orphans": "keep"},
        {"observed_at_once": 0},
        {"dispatched_at_once": 1001},
        {"queue_ttl_ms": 0},
    ],
)
def test_options_that_are_none_are_refused(options: dict[str, Anything]) -> None:
    with pytest.raises(InvalidArgument, match="accepted"):
        TopicOptions(**options)


@pytest.mark.parametrize(
    "key",
    [
        *("QUEUE_FOO", "CONSUMERS_FOO", "SUBSCRIPTIONS_BAR", "PEERS_BAR", "SUBSCRIBED_KEYS", SIDE),
        *(f"MESSAGES_FOO_BAR_{P1}", f"LASTACTION_BAR_{P1}"),
    ],
)
def test_a_foreign_type_is_refused_and_nothing_is_half_written(
    topics: Topics, raw: redis.Redis, key: str
) -> None:
    topics.subscribe("FOO", "BAR", P1)
    topics.publish("FOO", b"x")
    topics.publish("FOO", b"y")
    topics.dispatch()
    topics.publish("FOO", b"z")
    raw.delete(key)
    raw.hset(key, "not", "ours")

    refused = []
    for verb in (
        lambda: topics.publish("FOO", b"more"),
        lambda: topics.subscribe("FOO", "BAR", P1),
        lambda: topics.unsubscribe("FOO", "BAR"),
        lambda: topics.observe("BAR", P1),
        topics.dispatch,
        topics.sweep,
    ):
        before = stored(raw)
        text = refusal_of(verb)
        if text:  # the others had nothing to do with that key
            refused.append(text)
            assert stored(raw) == before

    assert refused
    assert all("WRONGTYPE" in text for text in refused)
    assert raw.hgetall(key) == {b"not": b"ours"}


def test_trouble_with_one_topic_does_not_stop_the_others(topics: Topics, raw: redis.Redis) -> None:
    for key in ("BAD", "FOO"):
        topics.subscribe(key, key, P1)
    topics.publish("FOO", b"x")
    raw.set("QUEUE_BAD", "not ours")

    with pytest.raises(StoreRefused, match="QUEUE_BAD is a string and should be a list"):
        topics.dispatch()
    for consumer in ("BAD", "FOO"):
        fall_silent(raw, consumer, P1)
    with pytest.raises(StoreRefused, match="QUEUE_BAD"):
        topics.sweep()

    assert raw.smembers("PEERS_BAD") == {P1.encode()}
    assert not raw.exists("PEERS_FOO")


@pytest.mark.parametrize(
    "element", [b"", b"text", b"[]", b"\xff", b'{"id":1}', b'{"id":"a","timestamp":"b","payload":"?"}']
)
def test_an_element_of_a_foreign_hand_is_handed_on_as_it_is(
    topics: Topics, raw: redis.Redis, element: bytes
) -> None:
    topics.subscribe("FOO", "BAR", P1)
    raw.rpush("QUEUE_FOO", element)
    record_id = topics.publish("FOO", b"ours")
    topics.dispatch()

    foreign, ours = topics.observe("BAR", P1)

    assert foreign == TopicRecord("FOO", "", "", element)
    assert ours.id == record_id


def test_members_of_a_foreign_hand_are_passed_over(topics: Topics, raw: redis.Redis) -> None:
    raw.sadd("SUBSCRIBED_KEYS", b"QUEUE_\xff", "something", "QUEUE_GONE")
    raw.sadd("CONSUMERS_LEFT", "NOBODY")
    raw.sadd("SUBSCRIBED_KEYS", "QUEUE_LEFT")
    topics.publish("LEFT", b"kept")

    assert topics.dispatch() == 0
    assert raw.smembers("SUBSCRIBED_KEYS") == {b"something"}
    assert documented(raw) == {"SUBSCRIBED_KEYS", "QUEUE_LEFT"}


def test_a_full_server_refuses_to_publish_and_lets_observe(topics: Topics, raw: redis.Redis) -> None:
    topics.subscribe("FOO", "BAR", P1)
    topics.publish("FOO", b"before")
    topics.dispatch()
    raw.config_set("maxmemory", "1")
    try:
        with pytest.raises(StoreFull):
            topics.publish("FOO", b"more")
        observed = topics.observe("BAR", P1)
        topics.unsubscribe("FOO", "BAR")
    finally:
        raw.config_set("maxmemory", "0")

    assert payloads(observed) == [b"before"]
    assert not raw.exists("QUEUE_FOO")


def test_a_cluster_is_refused_in_one_sentence() -> None:
    with RealCluster() as cluster:
        topics = Topics(open_store(cluster.url))

        with pytest.raises(ConfigurationError, match="topics need a single server"):
            topics.publish("FOO", b"x")
        topics.store.close()


# The same, awaited.


def test_every_verb_is_there_for_asyncio(server: RealServer) -> None:
    async def scenario() -> list[Anything]:
        connection = open_async_connection(
            parse_address(server.url), connect_timeout_s=2.0, read_timeout_s=2.0, client_name="mqw-test"
        )
        topics = AsyncTopics(AsyncStore(connection), AT_ONCE)
        await topics.subscribe("FOO", "BAR", P1)
        first = await topics.publish("FOO", b"1")
        others = await topics.publish_many("FOO", [b"2", "3"])
        moved = await topics.dispatch()
        observed = await topics.observe("BAR", P1)
        rest = [await topics.unsubscribe("FOO", "BAR"), await topics.sweep()]
        await topics.store.close()
        return [[first, *others] == [record.id for record in observed], moved, payloads(observed), *rest]

    assert asyncio.run(scenario()) == [True, 3, [b"1", b"2", b"3"], True, 0]
