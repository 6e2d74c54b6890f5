"""Both connections on a real cluster of three nodes, with slots that move."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable, Iterator

import pytest

from mqworker.errors import StoreRefused, StoreUnavailable
from mqworker.model.names import ConsumerName
from mqworker.queues.work.queue import WorkQueue
from mqworker.store.command import Command, Reply
from mqworker.store.link.address import parse_address
from mqworker.store.link.async_connection import open_async_connection
from mqworker.store.link.connection import Connection
from mqworker.store.link.subscription import RESUBSCRIBED
from mqworker.store.server_check import check_server
from mqworker.store.store import Store
from tests.support.deadline import wait_until
from tests.support.messages import a_message
from tests.support.real_cluster import RealCluster
from tests.support.real_server import RealServer

Connect = Callable[[str], Connection]

TAGS = (f"q{number}" for number in itertools.count())
TWO_KEYS = "redis.call('INCR', KEYS[1]) return redis.call('INCR', KEYS[2])"


@pytest.fixture(scope="module")
def cluster() -> Iterator[RealCluster]:
    with RealCluster() as running:
        yield running


@pytest.fixture(autouse=True)
def _flushed_nodes(cluster: RealCluster) -> None:
    for server in cluster.servers:
        with server.client() as client:
            client.flushall()


@pytest.fixture
def key(cluster: RealCluster) -> str:
    """A key in a slot of the first node that no other test uses."""
    return next(key for key in (f"{{{tag}}}:n" for tag in TAGS) if cluster.owner(key) is cluster.servers[0])


def executed_async(cluster: RealCluster, *calls: list[Command], key: str) -> list[list[Reply]]:
    async def run() -> list[list[Reply]]:
        connection = open_async_connection(
            parse_address(cluster.url), connect_timeout_s=2, read_timeout_s=2, client_name=None
        )
        try:
            return [await connection.execute(call, key) for call in calls]
        finally:
            await connection.close()

    return asyncio.run(run())


def test_keys_are_sent_to_the_nodes_that_own_them(cluster: RealCluster, connect: Connect) -> None:
    connection = connect(cluster.url)

    for number in range(30):
        name = f"{{k{number}}}"
        connection.execute([("SET", name, number), ("INCR", name)], name)

    sizes = []
    for server in cluster.servers:
        with server.client() as client:
            sizes.append(client.dbsize())
    assert all(sizes)
    assert sum(sizes) == 30


def test_each_primary_is_asked(cluster: RealCluster, connect: Connect) -> None:
    connection = connect(cluster.url)

    assert list(connection.each_primary([("PING",)]).values()) == [[b"PONG"]] * 3
    assert check_server(connection).is_cluster


def test_moved_slot_is_followed_and_remembered(cluster: RealCluster, connect: Connect, key: str) -> None:
    source, target, _ = cluster.servers
    connection = connect(cluster.url)
    assert connection.execute([("INCR", key)], key) == [1]
    cluster.begin_move(key, source, target)
    cluster.move_key(key, source, target)
    cluster.end_move(key, source, target)

    assert connection.execute([("INCR", key), ("INCR", key)], key) == [2, 3]

    with source.client() as client:
        before = client.info("stats")["total_commands_processed"]
        assert connection.execute([("INCR", key)], key) == [4]
        assert client.info("stats")["total_commands_processed"] == before + 1


def test_slot_under_way_is_asked_for_at_its_new_node(
    cluster: RealCluster, connect: Connect, key: str
) -> None:
    source, target, _ = cluster.servers
    cluster.begin_move(key, source, target)
    connection = connect(cluster.url)

    assert connection.execute([("INCR", key), ("INCR", key)], key) == [1, 2]
    assert executed_async(cluster, [("INCR", key)], [("INCR", key)], key=key) == [[3], [4]]

    cluster.end_move(key, source, target)
    assert connection.execute([("INCR", key)], key) == [5]
    assert executed_async(cluster, [("INCR", key)], [("INCR", key)], key=key) == [[6], [7]]


def test_keys_torn_apart_by_a_move_are_waited_for(cluster: RealCluster, connect: Connect, key: str) -> None:
    source, target, _ = cluster.servers
    other = f"{key}2"
    connection = connect(cluster.url)
    connection.execute([("SET", key, 1), ("SET", other, 1)], key)
    cluster.begin_move(key, source, target)
    cluster.move_key(key, source, target)
    script: Command = ("EVAL", TWO_KEYS, 2, key, other)

    with pytest.raises(StoreUnavailable, match="moving this slot") as raised:
        connection.execute([script], key)
    mover = threading.Timer(0.03, lambda: cluster.move_key(other, source, target))
    mover.start()
    replies = connection.execute([script], key)
    mover.join()

    assert not raised.value.maybe_executed
    assert replies == [2]
    cluster.end_move(key, source, target)


def test_keys_of_two_slots_in_one_command_are_refused(cluster: RealCluster, connect: Connect) -> None:
    with pytest.raises(StoreRefused, match="slots"):
        connect(cluster.url).execute([("DEL", "a", "b")], "a")


def test_address_of_a_single_server_does_not_fit_a_cluster(cluster: RealCluster, connect: Connect) -> None:
    connection = connect(cluster.servers[2].url)

    with pytest.raises(StoreRefused, match=r"redis\+cluster://"):
        connection.execute([("GET", "{q0}")], "{q0}") or connection.execute([("GET", "{q1}")], "{q1}")


def test_channels_are_heard_at_the_nodes_that_own_them(cluster: RealCluster, connect: Connect) -> None:
    connection = connect(cluster.url)
    channels = [f"{{c{number}}}" for number in range(8)]
    subscription = connection.subscribe(channels)

    for channel in channels:
        connection.execute([("SPUBLISH", channel, channel)], channel)

    found: list[tuple[str, bytes] | None] = [subscription.get(5) for _ in channels]
    assert sorted(entry for entry in found if entry) == [(channel, channel.encode()) for channel in channels]
    subscription.close()


def test_channel_of_a_moved_slot_is_subscribed_again(
    cluster: RealCluster, connect: Connect, key: str
) -> None:
    source, target, _ = cluster.servers
    connection = connect(cluster.url)
    subscription = connection.subscribe([key])
    cluster.begin_move(key, source, target)
    cluster.end_move(key, source, target)

    assert subscription.get(5) == RESUBSCRIBED
    connection.execute([("SPUBLISH", key, "here")], key)

    assert subscription.get(5) == (key, b"here")
    subscription.close()


def test_a_message_is_handed_over_in_the_slot_of_its_queue(cluster: RealCluster, connect: Connect) -> None:
    store = Store(connect(cluster.url))
    for name in ("one", "two", "three", "four"):  # of several nodes
        queue, consumer = WorkQueue(name, store), ConsumerName("node-1")
        ears = store.connection.subscribe([queue.calls.keys.held(consumer)])
        worker = store.connection.subscribe([queue.calls.keys.begin(consumer, 0)])
        store.run(queue.calls.claim_records(1, consumer, ["0:7"]))

        queue.enqueue(a_message())
        heard, heard_by_worker = ears.get(5.0), worker.get(5.0)

        assert heard is not None
        assert heard_by_worker is not None
        assert heard[1] == heard_by_worker[1]
        assert queue.counts().leased == 1
        ears.close()
        worker.close()


def test_limited_messages_are_let_in_within_the_slot_of_their_queue(
    cluster: RealCluster, connect: Connect
) -> None:
    store = Store(connect(cluster.url))
    for name in ("one", "two", "three", "four"):
        queue = WorkQueue(name, store)

        queue.enqueue(a_message(limits="bucket=2/60000/2"), a_message(limits="bucket=2/60000/2"))

        assert queue.admit(10)[0] == 2
        assert queue.counts().ready == 2


def test_dead_node_is_unavailable_while_the_others_serve(cluster: RealCluster, connect: Connect) -> None:
    """Last: it costs the cluster a node for a while."""
    connection = connect(cluster.url)
    keys = {server.port: name for name in map(str, range(50)) for server in [cluster.owner(name)]}
    victim: RealServer = cluster.servers[0]
    for name in keys.values():
        connection.execute([("PING",)], name)
    victim.kill()

    with pytest.raises(StoreUnavailable) as raised:
        connection.execute([("INCR", keys[victim.port])], keys[victim.port])
    survivors = [
        connection.execute([("INCR", keys[port])], keys[port]) for port in keys if port != victim.port
    ]

    assert not raised.value.maybe_executed
    assert survivors == [[1], [1]]
    victim.start()

    def works_again() -> bool:
        try:
            return bool(connection.execute([("INCR", keys[victim.port])], keys[victim.port]))
        except StoreUnavailable:
            return False

    wait_until(works_again, "the node to be used again")
