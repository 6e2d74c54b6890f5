"""The broker and the heartbeat reaper at work on topics, by hand, on one real server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from mqworker.actors.broker import BUSY_LOOK_MS, IDLE_LOOK_MS, TopicFanOut
from mqworker.actors.heartbeat_reaper import SWEEP_EVERY_MS, TopicSweep
from mqworker.errors import StoreRefused
from mqworker.log import get_logger
from mqworker.queues.topics.arguments import TopicOptions
from mqworker.queues.topics.calls import Dispatched
from mqworker.queues.topics.client import Topics
from mqworker.store.link.connection import Connection
from mqworker.store.store import Store
from tests.support.deadline import wait_until
from tests.support.messages import open_store
from tests.support.real_cluster import RealCluster
from tests.support.real_server import RealServer

P1, P2 = "127.0.0.1:5467", "127.0.0.1:5468"
LOG = get_logger(actor="test")


@pytest.fixture
def store(connection: Connection) -> Store:
    return Store(connection)


@pytest.fixture
def topics(store: Store) -> Topics:
    return Topics(store, TopicOptions(grace_ms=0))


@pytest.fixture
def raw(server: RealServer) -> Iterator[redis.Redis]:
    with server.client() as client:
        yield client


def commands_of(raw: redis.Redis, connection: str = "mqw-test") -> int:
    """How many commands that connection has sent."""
    return sum(int(each["tot-cmds"]) for each in raw.client_list() if each["name"] == connection)


# Where something waits.


def test_only_topics_in_which_something_waits_are_dispatched(topics: Topics, raw: redis.Redis) -> None:
    for number in range(50):
        topics.subscribe(f"key{number}", "BAR", P1)
    topics.publish_many("key7", [b"x", b"y"])
    before = commands_of(raw)

    first = topics.dispatch_waiting()
    second = topics.dispatch_waiting()

    assert (first, second) == (Dispatched(2, 50, None), Dispatched(0, 50, None))
    assert commands_of(raw) - before < 120  # SMEMBERS, fifty EXISTS, a script; and without the script
    assert [record.payload for record in topics.observe("BAR", P1)] == [b"x", b"y"]


def test_a_backlog_that_waits_says_how_long(store: Store) -> None:
    topics = Topics(store, TopicOptions(grace_ms=60_000))
    topics.publish("FOO", b"x")
    topics.subscribe("FOO", "BAR", P1)

    found = topics.dispatch_waiting()

    assert (found.count, found.topics) == (0, 1)
    assert found.next_in_ms is not None
    assert 50_000 < found.next_in_ms <= 60_000


def test_more_than_one_turn_moves_is_moved_at_once_after_it(store: Store) -> None:
    topics = Topics(store, TopicOptions(grace_ms=0, dispatched_at_once=10))
    topics.subscribe("FOO", "BAR", P1)
    topics.publish_many("FOO", [b"x"] * 25)

    turns = [topics.dispatch_waiting() for _ in range(3)]

    assert turns == [Dispatched(10, 1, 0), Dispatched(10, 1, 0), Dispatched(5, 1, None)]


def test_a_foreign_type_does_not_stop_the_other_topics(topics: Topics, raw: redis.Redis) -> None:
    for key in ("BAD", "FOO"):
        topics.subscribe(key, "BAR", P1)
    topics.publish("FOO", b"x")
    raw.set("QUEUE_BAD", "not ours")

    with pytest.raises(StoreRefused, match="QUEUE_BAD is a string"):
        topics.dispatch_waiting()

    raw.delete("QUEUE_BAD")
    assert [record.payload for record in topics.observe("BAR", P1)] == [b"x"]


# The broker.


def test_an_idle_broker_looks_once_every_five_seconds(topics: Topics, raw: redis.Redis) -> None:
    fan_out = TopicFanOut(topics, LOG)
    fan_out.turn(0)
    before = commands_of(raw)

    for now_ms in range(100, IDLE_LOOK_MS * 2 + 100, 100):
        fan_out.turn(now_ms)

    assert commands_of(raw) - before == 2
    assert list(fan_out.watched()) == []
    assert fan_out.due_in_ms(IDLE_LOOK_MS * 2) == IDLE_LOOK_MS


def test_a_publish_anywhere_calls_the_broker(server: RealServer, topics: Topics) -> None:
    topics.subscribe("FOO", "BAR", P1)
    fan_out = TopicFanOut(topics, LOG)
    fan_out.turn(0)
    fan_out.turn(1)  # listens from now on
    assert fan_out.due_in_ms(1) == BUSY_LOOK_MS - 1
    elsewhere = open_store(server.url)

    Topics(elsewhere).publish_many("FOO", [b"x", b"y"])
    wait_until(lambda: fan_out.turn(2) or fan_out.moved, "the broker was called")
    elsewhere.close()

    assert [record.payload for record in topics.observe("BAR", P1)] == [b"x", b"y"]


def test_a_lost_call_costs_a_second(topics: Topics, raw: redis.Redis) -> None:
    topics.subscribe("FOO", "BAR", P1)
    fan_out = TopicFanOut(topics, LOG)
    fan_out.turn(0)
    raw.rpush("QUEUE_FOO", '{"id":"a","timestamp":"b"}')  # by another program, which calls nobody

    fan_out.turn(BUSY_LOOK_MS - 1)
    too_soon = fan_out.moved
    fan_out.turn(BUSY_LOOK_MS)

    assert (too_soon, fan_out.moved) == (0, 1)


def test_a_backlog_is_moved_when_its_wait_ends(store: Store) -> None:
    topics = Topics(store, TopicOptions(grace_ms=300))
    topics.publish("FOO", b"x")
    topics.subscribe("FOO", "BAR", P1)
    fan_out = TopicFanOut(topics, LOG)

    fan_out.turn(0)

    assert 0 < fan_out.due_in_ms(0) <= 300


def test_on_a_cluster_the_broker_and_the_reaper_leave_topics_alone() -> None:
    with RealCluster() as cluster:
        store = open_store(cluster.url)
        fan_out, sweep = TopicFanOut(Topics(store), LOG), TopicSweep(Topics(store), LOG)

        for now_ms in (0, IDLE_LOOK_MS):
            fan_out.turn(now_ms)
            sweep.turn(now_ms)
        store.close()

    assert (fan_out.moved, sweep.dropped) == (0, 0)
    assert fan_out.due_in_ms(IDLE_LOOK_MS) == IDLE_LOOK_MS


# The heartbeat reaper.


def test_silent_peers_are_dropped_every_few_seconds(topics: Topics, raw: redis.Redis) -> None:
    """G13."""
    sweep = TopicSweep(topics, LOG)
    sweep.turn(0)
    topics.subscribe("FOO", "BAR", P1)
    topics.subscribe("FOO", "BAR", P2)
    raw.delete(f"LASTACTION_BAR_{P1}")

    sweep.turn(SWEEP_EVERY_MS - 1)
    too_soon = sweep.dropped
    sweep.turn(SWEEP_EVERY_MS)

    assert (too_soon, sweep.dropped) == (0, 1)
    assert raw.smembers("PEERS_BAR") == {P2.encode()}
