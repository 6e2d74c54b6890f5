"""Both connections behind a real sentinel, through a real failover."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from mqworker.errors import StoreUnavailable
from mqworker.store.command import Command
from mqworker.store.link.address import parse_address
from mqworker.store.link.async_connection import open_async_connection
from mqworker.store.link.connection import Connection
from tests.support.deadline import wait_until
from tests.support.real_sentinel import RealSentinel

Connect = Callable[[str], Connection]

PORT: Command = ("CONFIG", "GET", "port")


@pytest.fixture(scope="module")
def sentinel() -> Iterator[RealSentinel]:
    with RealSentinel() as running:
        yield running


def port_of(connection: Connection) -> int:
    reply = connection.execute([PORT], None)[0]
    assert isinstance(reply, list)
    port = reply[1]
    assert isinstance(port, bytes)
    return int(port)


def async_port_of(url: str) -> int:
    async def ask() -> int:
        connection = open_async_connection(
            parse_address(url), connect_timeout_s=2, read_timeout_s=2, client_name=None
        )
        reply = (await connection.execute([PORT], None))[0]
        await connection.close()
        assert isinstance(reply, list)
        assert isinstance(reply[1], bytes)
        return int(reply[1])

    return asyncio.run(ask())


def test_unknown_service_is_unavailable_and_named(sentinel: RealSentinel, connect: Connect) -> None:
    with pytest.raises(StoreUnavailable, match="does not know the service 'nosuch'") as raised:
        connect(sentinel.url.replace("/mqw", "/nosuch")).execute([PORT], None)

    assert not raised.value.maybe_executed


def test_absent_sentinels_are_unavailable(connect: Connect) -> None:
    with pytest.raises(StoreUnavailable, match="No sentinel") as raised:
        connect("redis+sentinel://127.0.0.1:1/mqw").execute([PORT], None)

    assert not raised.value.maybe_executed


def test_failover_is_followed_from_the_first_sentinel_that_answers(
    sentinel: RealSentinel, connect: Connect
) -> None:
    connection = connect(sentinel.url)
    assert port_of(connection) == sentinel.primary.port
    assert async_port_of(sentinel.url) == sentinel.primary.port

    sentinel.fail_over()

    def writes_to_the_new_primary() -> bool:
        try:
            connection.execute([("INCR", "n")], "n")
        except StoreUnavailable:
            return False
        return port_of(connection) == sentinel.replica.port

    wait_until(writes_to_the_new_primary, "writes at the new primary")
    assert async_port_of(sentinel.url) == sentinel.replica.port


def test_demoted_primary_makes_the_connection_ask_again(sentinel: RealSentinel, connect: Connect) -> None:
    """READONLY on a link that nobody closed: runs after the failover, or swaps nothing."""
    connection = connect(sentinel.url)
    before = connection.execute([("CLIENT", "ID"), PORT], None)
    current = sentinel.replica if port_of(connection) == sentinel.replica.port else sentinel.primary
    with current.client() as client:
        client.execute_command("REPLICAOF", "127.0.0.1", "1")

        with pytest.raises(StoreUnavailable, match="looked up again") as raised:
            connection.execute([("INCR", "n")], "n")
        client.execute_command("REPLICAOF", "NO", "ONE")

    assert not raised.value.maybe_executed
    assert connection.execute([("CLIENT", "ID"), PORT], None) != before
