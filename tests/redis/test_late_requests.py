"""Requests that a network delivers late: after their callers gave the link up, repeated the call, went on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from mqworker.errors import MqworkerError, StoreFull, StoreUnavailable
from mqworker.model.names import ConsumerName
from mqworker.store.async_store import AsyncStore
from mqworker.store.link.address import parse_address
from mqworker.store.link.async_connection import open_async_connection
from mqworker.store.link.connection import Connection, open_connection
from mqworker.store.link.given_up_links import GivenUpLinks, kill_of, may_still_arrive
from mqworker.store.script import Call
from mqworker.store.store import Store
from tests.support.fault_proxy import FaultProxy
from tests.support.messages import a_message, some_messages
from tests.support.numbered_calls import ENDS_THE_QUEUE, PREPARE_BY_SCRIPT, RSMQ, work
from tests.support.raw_queue import RawQueue
from tests.support.real_server import RealServer

READ_TIMEOUT_S = 0.4


@pytest.fixture
def proxy(server: RealServer) -> Iterator[FaultProxy]:
    with FaultProxy(server.port) as running:
        yield running


def open_far(url: str) -> Connection:
    return open_connection(
        parse_address(url), connect_timeout_s=5.0, read_timeout_s=READ_TIMEOUT_S, client_name=None
    )


@pytest.fixture
def far(proxy: FaultProxy) -> Iterator[Store]:
    """A store at the other end of a line on which requests are held back."""
    opened = Store(open_far(proxy.url))
    yield opened
    opened.close()


def calls_in_turn(name: str, store: Store) -> Callable[[int], Call[Any]]:
    copy = PREPARE_BY_SCRIPT[name](store)
    if name in ENDS_THE_QUEUE:
        return lambda number: copy(1)[0] if number == 1 else RSMQ.create_queue("q", 30, 0, 65_536)
    return lambda number: copy(number)[0]


@pytest.mark.parametrize("name", sorted(PREPARE_BY_SCRIPT))
def test_a_request_that_arrives_after_its_repetition_and_a_later_call_changes_nothing(
    store: Store, far: Store, proxy: FaultProxy, raw: RawQueue, name: str
) -> None:
    call = calls_in_turn(name, store)
    proxy.hold_scripts(1)
    far.run(call(1))
    with suppress(MqworkerError):  # a refusal is an answer, too
        far.run(call(2))
    (held,) = proxy.held
    before = raw.dump()

    on_its_link = proxy.deliver(held)
    elsewhere = proxy.deliver_elsewhere(held)

    assert on_its_link == b""
    assert elsewhere.startswith(b"-MQW_STALE")
    assert raw.dump() == before


@pytest.mark.parametrize("held_copies", [1, 3])
def test_a_request_that_arrives_after_its_repetition_is_stored_once(
    store: Store, far: Store, proxy: FaultProxy, held_copies: int
) -> None:
    work(store).enqueue(a_message())  # the server knows the script
    proxy.hold_scripts(held_copies)

    stored = work(far).enqueue(a_message())

    assert stored[0].is_new
    assert len(proxy.held) == held_copies
    assert all(proxy.deliver_elsewhere(each).endswith(b"*0\r\n") for each in proxy.held)
    assert work(store).counts().totals["enqueued"] == 2


def test_calls_without_a_number_do_not_arrive_late(far: Store, proxy: FaultProxy, raw: RawQueue) -> None:
    """A beat, and a plain command: neither knows that it came before."""
    queue = work(far)
    queue.enqueue(*some_messages(2))
    queue.claim(1, consumer=ConsumerName("c"))
    proxy.hold_scripts(1)
    queue.beat(ConsumerName("c"))
    proxy.hold(lambda request: b"INCR" in request)
    with pytest.raises(StoreUnavailable):
        far.connection.execute([("INCR", "n")], None)
    proxy.hold(lambda _request: False)
    far.connection.execute([("PING",)], None)
    before = raw.dump()

    assert [proxy.deliver(each) for each in proxy.held] == [b"", b""]
    assert raw.dump() == before


def test_the_async_store_closes_links_that_it_gave_up(proxy: FaultProxy, store: Store, raw: RawQueue) -> None:
    async def run() -> None:
        connection = open_async_connection(
            parse_address(proxy.url), connect_timeout_s=5.0, read_timeout_s=READ_TIMEOUT_S, client_name=None
        )
        far = AsyncStore(connection)
        await far.run(work(store).calls.enqueue([a_message()]))
        proxy.hold_scripts(2)
        await far.run(work(store).calls.enqueue([a_message()]))
        proxy.hold_scripts(1)
        with pytest.raises(TimeoutError):  # given up by its caller
            await asyncio.wait_for(far.run(work(store).calls.purge("waiting", 100)), READ_TIMEOUT_S / 4)
        await far.run(work(store).calls.enqueue([a_message()]))
        await far.close()

    asyncio.run(run())
    before = raw.dump()

    assert [proxy.deliver(each) for each in proxy.held] == [b"", b"", b""]
    assert raw.dump() == before
    assert work(store).counts().ready == 3


def test_a_server_that_was_stopped_answers_each_call_once() -> None:
    """Its socket buffers hold all copies; in which order it reads them is for nobody to say."""
    with RealServer() as server:
        far = Store(
            open_connection(
                parse_address(server.url), connect_timeout_s=5.0, read_timeout_s=0.1, client_name=None
            )
        )
        for _ in range(5):
            work(far).enqueue(a_message())
            server.pause()
            with pytest.raises(StoreUnavailable):
                far.connection.execute(
                    [work(far).calls.purge("waiting", 10).command_with_source(("lost", 1))], None
                )
            server.resume()
        work(far).enqueue(a_message())
        count = work(far).counts().totals["enqueued"]
        far.close()

    assert count == 6


def test_a_user_who_may_not_close_links_is_served_and_late_copies_are_turned_away(
    server: RealServer, store: Store
) -> None:
    work(store).enqueue(a_message())
    with server.client() as client:
        client.execute_command(
            "ACL", "SETUSER", "few", "reset", "on", ">x", "~*", "&*", "+@all", "-client|kill"
        )
        client.execute_command("ACL", "SETUSER", "fewer", "reset", "on", ">x", "~*", "&*", "+@all", "-client")
    for user in ("few", "fewer"):
        with FaultProxy(server.port) as proxy:
            far = Store(open_far(proxy.url.replace("//", f"//{user}:x@")))
            proxy.hold_scripts(1)

            work(far).enqueue(a_message())
            work(far).enqueue(a_message())

            assert proxy.deliver(proxy.held[0]).startswith(b"-MQW_STALE")
            far.close()

    assert work(store).counts().totals["enqueued"] == 5
    with server.client() as client:
        client.execute_command("ACL", "DELUSER", "few", "fewer")


def test_the_link_of_another_client_is_left_alone_after_a_restart(server: RealServer) -> None:
    """Numbers of clients begin anew: the address tells them apart, and on a unix socket nobody is closed."""
    with server.client() as client:
        mine = client.execute_command("CLIENT", "INFO")
        kill = kill_of(mine if isinstance(mine, bytes) else f"id={mine['id']} addr={mine['addr']} ".encode())
        assert kill is not None
        other_port = [*kill[:5], "127.0.0.1:1", *kill[6:7], "no"]

        assert client.execute_command(*other_port) == 0
    assert not may_still_arrive(kill, was_closed_by_server=True)
    assert may_still_arrive(kill, was_closed_by_server=False)
    assert may_still_arrive(kill_of(b"id=7 addr=10.0.0.1:4711 laddr=x"), was_closed_by_server=True)


def test_only_so_many_links_are_remembered() -> None:
    links = GivenUpLinks()
    for number in range(1_000):
        links.note(kill_of(b"id=%d addr=10.0.0.1:4711 name=" % number))
    links.note(kill_of(None))

    assert [kill[3] for kill in links.kills()] == [str(number) for number in range(744, 1_000)]
    links.forget(links.kills())
    assert links.kills() == []


# What a caller is told about a call of which an earlier copy may have been carried out.


def test_a_call_that_may_have_run_is_never_said_to_have_written_nothing() -> None:
    with RealServer("--maxmemory", "100mb") as server, FaultProxy(server.port) as line:
        far = Store(open_far(line.url), retry_for_ms=3_000)
        queue = work(far)
        queue.enqueue(a_message())
        with server.client() as client:

            def fills_the_server(request: bytes) -> bool:
                if b"EVAL" not in request or line.held:
                    return False
                client.config_set("maxmemory", 1)
                return True

            line.hold(fills_the_server)
            with pytest.raises(StoreUnavailable) as refused:
                queue.enqueue(a_message())
            line.hold(lambda _request: False)
            with pytest.raises(StoreFull):  # this one was sent once
                queue.enqueue(a_message())
        far.close()

    assert refused.value.maybe_executed
    assert "memory" in str(refused.value)


def test_a_call_that_may_have_run_says_so_though_the_last_try_did_not_reach_the_server(
    server: RealServer,
) -> None:
    with FaultProxy(server.port) as line:
        far = Store(open_far(line.url), retry_for_ms=1_500)
        work(far).enqueue(a_message())

        def is_last(request: bytes) -> bool:
            is_script = b"EVAL" in request
            if is_script:
                line.stop_listening()
            return is_script

        line.hold(is_last)
        with pytest.raises(StoreUnavailable) as refused:
            work(far).enqueue(a_message())
        far.close()

    assert refused.value.maybe_executed
