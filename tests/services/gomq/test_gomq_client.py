"""Our own small client, blocking and awaited."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
import redis

from mqworker.errors import InvalidArgument, StoreUnavailable
from mqworker_services.gateways.gomq.client import AsyncGomqClient, GomqClient
from mqworker_services.gateways.gomq.client_calls import GomqRefused, Record
from tests.services.gomq.gomq_node import DEADLINE_S, GomqNode
from tests.support.deadline import wait_until
from tests.support.real_server import RealServer, free_port


def observe_some(client: GomqClient, consumer: str) -> list[Record]:
    found: list[Record] = []
    wait_until(lambda: found.extend(client.observe(consumer)) or found, "records came", DEADLINE_S)
    return found


def test_the_blocking_client(node: GomqNode, raw: redis.Redis) -> None:
    with GomqClient(node.target) as client:
        client.subscribe("FOO", "BAR")
        client.publish("FOO", "grüß")
        [record] = observe_some(client, "BAR")
        client.unsubscribe("FOO", "BAR")

        with pytest.raises(InvalidArgument, match="key is ''; accepted"):
            client.publish("", b"x")
        client.subscribe("A_B", "C")
        with pytest.raises(GomqRefused) as caught:
            client.subscribe("A", "B_C")

    assert (record.key, record.payload) == ("FOO", "grüß".encode())
    assert (len(record.id), len(record.timestamp)) == (20, 28)
    assert caught.value.status == "ALREADY_EXISTS"
    assert not raw.exists("CONSUMERS_FOO")


def test_the_awaited_client(node: GomqNode, raw: redis.Redis) -> None:  # noqa: ARG001 - the flush
    async def scenario() -> list[Record]:
        async with AsyncGomqClient(node.target) as client, asyncio.timeout(DEADLINE_S):
            await client.subscribe("FOO", "BAR")
            await asyncio.gather(*(client.publish("FOO", b"%d" % number) for number in range(20)))
            found: list[Record] = []
            while len(found) < 20:
                found += await client.observe("BAR")
            await client.unsubscribe("FOO", "BAR")
            with pytest.raises(InvalidArgument):
                await client.observe("")
            return found

    found = asyncio.run(scenario())

    assert sorted(int(record.payload) for record in found) == list(range(20))


def test_nobody_there_is_an_error_that_names_it() -> None:
    with GomqClient(f"127.0.0.1:{free_port()}", timeout_s=2) as client, pytest.raises(StoreUnavailable):
        client.publish("FOO", b"x")


def test_the_blocking_client_subscribes_again_after_its_connection_was_lost(server: RealServer) -> None:
    with server.client() as raw, GomqNode(server.url) as node:
        raw.flushall()
        with GomqClient(node.target, timeout_s=DEADLINE_S) as client:
            client.subscribe("FOO", "BAR")
            node.kill("gateway:gomq")
            wait_until(lambda: is_listening(client, raw), "it subscribed again", DEADLINE_S)
            client.publish("FOO", b"after")

            assert [record.payload for record in observe_some(client, "BAR")] == [b"after"]


def is_listening(client: GomqClient, raw: redis.Redis) -> bool:
    with suppress(StoreUnavailable):
        client.observe("BAR")
    return raw.scard("PEERS_BAR") == 2  # the old one is dropped after 30 s


def test_the_awaited_client_subscribes_again_after_its_connection_was_lost(server: RealServer) -> None:
    async def scenario() -> list[Record]:
        async with AsyncGomqClient(node.target) as client, asyncio.timeout(DEADLINE_S):
            await client.subscribe("FOO", "BAR")
            await asyncio.to_thread(node.kill, "gateway:gomq")
            while raw.scard("PEERS_BAR") < 2:
                with suppress(StoreUnavailable):
                    await client.observe("BAR")
            await client.publish("FOO", b"after")
            found: list[Record] = []
            while not found:
                found = await client.observe("BAR")
            return found

    with server.client() as raw, GomqNode(server.url) as node:
        raw.flushall()
        found = asyncio.run(scenario())

    assert [record.payload for record in found] == [b"after"]
