"""The asyncio connection: the same replies and errors, and calls that may be cancelled."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from mqworker.errors import StoreFull, StoreRefused, StoreUnavailable
from mqworker.store.command import Command, Reply, ReplyError
from mqworker.store.link.address import parse_address
from mqworker.store.link.async_connection import AsyncConnection, open_async_connection
from tests.support.real_server import RealServer

INCREMENT: Command = ("INCR", "n")


def opened(url: str) -> AsyncConnection:
    return open_async_connection(
        parse_address(url), connect_timeout_s=2, read_timeout_s=0.5, client_name="mqw-test"
    )


T = TypeVar("T")


def run(url: str, scenario: Callable[[AsyncConnection], Awaitable[T]]) -> T:
    async def with_connection() -> T:
        connection = opened(url)
        try:
            return await scenario(connection)
        finally:
            await connection.close()

    return asyncio.run(with_connection())


def test_replies_are_raw_values_and_answers(server: RealServer) -> None:
    async def scenario(connection: AsyncConnection) -> list[Reply]:
        return await connection.execute(
            [("SET", "k", b"\xff"), ("GET", "k"), ("EVAL", "return redis.error_reply('MQW_FULL 7')", 0)], "k"
        )

    assert run(server.url, scenario) == [b"OK", b"\xff", ReplyError("MQW_FULL", "7")]


def test_concurrent_calls_do_not_mix_replies(server: RealServer) -> None:
    async def scenario(connection: AsyncConnection) -> list[list[Reply]]:
        calls = [connection.execute([("ECHO", str(number))], None) for number in range(50)]
        return list(await asyncio.gather(*calls))

    assert run(server.tcp_url, scenario) == [[str(number).encode()] for number in range(50)]


def test_cancelled_call_drops_its_link_and_the_next_one_reads_its_own_reply(server: RealServer) -> None:
    async def scenario(connection: AsyncConnection) -> list[Reply]:
        await connection.execute([("PING",)], None)
        blocked = asyncio.ensure_future(connection.execute([("BLPOP", "nothing", 0.4)], None))
        await asyncio.sleep(0)
        blocked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await blocked
        return await connection.execute([("ECHO", "mine")], None)

    assert run(server.url, scenario) == [b"mine"]


def test_call_cancelled_while_waiting_for_the_reply_does_the_same(server: RealServer) -> None:
    async def scenario(connection: AsyncConnection) -> list[Reply]:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(connection.execute([("BLPOP", "nothing", 0.4)], None), 0.1)
        return await connection.execute([("ECHO", "mine")], None)

    assert run(server.url, scenario) == [b"mine"]


def test_silent_server_is_unavailable_and_may_have_executed(server: RealServer) -> None:
    async def scenario(connection: AsyncConnection) -> bool:
        with pytest.raises(StoreUnavailable, match="in time") as raised:
            await connection.execute([("BLPOP", "nothing", 0.8)], None)
        return raised.value.maybe_executed

    assert run(server.url, scenario)


def test_restart_while_idle_costs_no_failed_call() -> None:
    with RealServer() as server:

        async def scenario(connection: AsyncConnection) -> list[Reply]:
            await connection.execute([INCREMENT], "n")
            await asyncio.to_thread(server.kill)
            with pytest.raises(StoreUnavailable) as raised:
                await connection.execute([INCREMENT], "n")
            assert not raised.value.maybe_executed
            await asyncio.to_thread(server.start)
            return await connection.execute([INCREMENT], "n")

        assert run(server.url, scenario) == [1]


def test_forked_child_opens_its_own_link_and_the_parent_keeps_its_own(server: RealServer) -> None:
    connection = opened(server.url)
    ask: list[Command] = [("CLIENT", "ID")]
    with asyncio.Runner() as runner:
        before = runner.run(connection.execute(ask, None))
        if os.fork() == 0:
            is_other = asyncio.run(connection.execute(ask, None)) != before
            os._exit(0 if is_other else 1)
        assert os.waitstatus_to_exitcode(os.wait()[1]) == 0

        after = runner.run(connection.execute(ask, None))
        runner.run(connection.close())

    assert after == before


def test_refusals_raise_as_in_the_sync_connection(server: RealServer) -> None:
    async def scenario(connection: AsyncConnection) -> None:
        with pytest.raises(StoreRefused, match="WRONGTYPE"):
            await connection.execute([("SET", "k", 1), ("LPUSH", "k", 1)], "k")
        with pytest.raises(StoreFull):
            await connection.execute([("EVAL", "return redis.error_reply('OOM full')", 0)], None)

    run(server.url, scenario)


def test_one_connection_may_be_used_under_one_event_loop_after_another(server: RealServer) -> None:
    connection = opened(server.url)

    async def call() -> list[Reply]:
        try:
            return await connection.execute([INCREMENT], "n")
        finally:
            await connection.close()

    assert [asyncio.run(call()), asyncio.run(call())] == [[1], [2]]
