"""A node of a cluster that hangs: an actor waits for it once, and is back as soon as it answers."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

from mqworker.errors import MqworkerError, StoreUnavailable
from mqworker.store.link.address import parse_address
from mqworker.store.link.connection import Connection, open_connection
from tests.support.deadline import wait_until
from tests.support.real_cluster import RealCluster

TIMEOUT_S = 1.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[RealCluster]:
    with RealCluster() as running:
        yield running


@pytest.fixture
def connection(cluster: RealCluster) -> Iterator[Connection]:
    opened = open_connection(
        parse_address(cluster.url),
        connect_timeout_s=TIMEOUT_S,
        read_timeout_s=TIMEOUT_S,
        client_name=None,
        leaves_hung=True,
    )
    yield opened
    opened.close()


@pytest.fixture(params=[0, 2], ids=["the node that the address names", "another node"])
def hung(cluster: RealCluster, connection: Connection, request: pytest.FixtureRequest) -> Iterator[int]:
    for index in range(3):
        connection.execute([("PING",)], key_at(cluster, index))
    cluster.servers[request.param].pause()
    yield request.param
    cluster.servers[request.param].resume()


def key_at(cluster: RealCluster, index: int) -> str:
    keys = (f"{{q{number}}}" for number in range(1_000))
    return next(key for key in keys if cluster.owner(key) is cluster.servers[index])


def test_only_the_first_call_waits_for_a_node_that_hangs(
    cluster: RealCluster, connection: Connection, hung: int
) -> None:
    keys = [key_at(cluster, index) for index in range(3)]
    first = connection.execute_each([("PING",)] * 3, keys)
    began = time.monotonic()

    others = [connection.execute_each([("PING",)] * 3, keys) for _ in range(10)]

    # Without the guard each of the ten waits for the time-out.
    assert time.monotonic() - began < 10 * TIMEOUT_S / 2
    for outcome in (first, *others):
        assert [isinstance(each, MqworkerError) for each in outcome] == [index == hung for index in range(3)]
    assert all(not trouble.maybe_executed for trouble in troubles(others, hung))


def test_a_node_that_answers_again_is_used_again(
    cluster: RealCluster, connection: Connection, hung: int
) -> None:
    key = key_at(cluster, hung)
    with pytest.raises(StoreUnavailable):
        connection.execute([("PING",)], key)

    cluster.servers[hung].resume()

    wait_until(lambda: answers(connection, key), "it is used again")


def test_a_forked_child_asks_the_node_itself(cluster: RealCluster, connection: Connection, hung: int) -> None:
    key = key_at(cluster, hung)
    with pytest.raises(StoreUnavailable):
        connection.execute([("PING",)], key)
    child = os.fork()
    if child == 0:
        # The thread that probes is not there; nobody would ever say that the node answers.
        os._exit(0 if takes_long(connection, key) else 1)

    assert os.waitpid(child, 0)[1] == 0


def troubles(outcomes: list[list[object]], index: int) -> list[StoreUnavailable]:
    found = [outcome[index] for outcome in outcomes]
    return [each for each in found if isinstance(each, StoreUnavailable)]


def takes_long(connection: Connection, key: str) -> bool:
    began = time.monotonic()
    return not answers(connection, key) and time.monotonic() - began > TIMEOUT_S / 2


def answers(connection: Connection, key: str) -> bool:
    try:
        return connection.execute([("PING",)], key) == [b"PONG"]
    except StoreUnavailable:
        return False
