"""The work queue for asyncio: every verb once; what they mean is the matter of the synchronous tests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from mqworker.errors import InvalidArgument, QueueFull
from mqworker.model.instant import After, At
from mqworker.model.settlement import Ack, Bury, Release, RetryAt
from mqworker.queues.work.async_queue import AsyncWorkQueue
from mqworker.queues.work.queue import WorkQueue
from mqworker.store.async_store import AsyncStore
from mqworker.store.link.address import parse_address
from mqworker.store.link.async_connection import open_async_connection
from tests.support.messages import AN_HOUR_MS, a_message, bodies, some_messages
from tests.support.real_server import RealServer

UPKEEP_OF_NODES = {"admit", "consumers", "repair", "rotate_results", "silent_consumers"}
"""What only the synchronous actors of a node do."""

Scenario = Callable[[AsyncWorkQueue], Awaitable[None]]


def follow(server: RealServer, scenario: Scenario) -> None:
    async def with_queue() -> None:
        connection = open_async_connection(
            parse_address(server.url), connect_timeout_s=2, read_timeout_s=5, client_name="mqw-test"
        )
        store = AsyncStore(connection)
        try:
            await scenario(AsyncWorkQueue("q", store))
        finally:
            await store.close()

    asyncio.run(with_queue())


def test_it_has_every_verb_of_the_synchronous_queue() -> None:
    verbs = {name for name in vars(WorkQueue) if not name.startswith("_")} - {"capabilities"}

    assert verbs - UPKEEP_OF_NODES <= set(vars(AsyncWorkQueue))


def test_messages_are_enqueued_claimed_extended_and_settled(server: RealServer) -> None:
    async def scenario(queue: AsyncWorkQueue) -> None:
        stored = await queue.enqueue(*some_messages(5))
        done, again, released, buried, held = await queue.claim(5)

        assert all(enqueued.is_new for enqueued in stored)
        assert await queue.extend(held, lease_ms=AN_HOUR_MS) == []
        assert (
            await queue.settle(Ack(done, b"r"), RetryAt(again), Release(released), Bury(buried, "why")) == []
        )
        assert bodies(await queue.claim(5)) == [b"2", b"1"]
        assert (await queue.find(done.id)).result == b"r"
        late = Ack(done)
        assert await queue.settle(late) == [late]

    follow(server, scenario)


def test_leases_end_and_consumers_are_reaped(server: RealServer) -> None:
    async def scenario(queue: AsyncWorkQueue) -> None:
        await queue.enqueue(*some_messages(2))
        await queue.claim(lease_ms=1)
        await queue.claim(consumer="a")
        await queue.beat("a")

        reclaimed = (0, 0)
        while reclaimed == (0, 0):
            reclaimed = await queue.reclaim()

        assert reclaimed == (1, 0)
        assert await queue.reap("a", silent_ms=AN_HOUR_MS) == 0
        assert await queue.reap("a", silent_ms=0) == 1

    follow(server, scenario)


def test_waiting_messages_are_promoted_expired_cancelled_and_purged(server: RealServer) -> None:
    async def scenario(queue: AsyncWorkQueue) -> None:
        delayed, expired, cancelled = some_messages(3)
        delayed.due, expired.deadline = After(AN_HOUR_MS), At(1)
        await queue.enqueue(delayed, expired, cancelled)

        assert 0 < await queue.promote() <= AN_HOUR_MS
        assert await queue.expire() == 1
        assert await queue.cancel(cancelled.id)
        assert not await queue.cancel("unknown")
        await queue.forget()
        assert (await queue.counts()).waiting == 1
        assert await queue.purge_waiting() == 1

    follow(server, scenario)


def test_a_queue_is_paused_and_limited(server: RealServer) -> None:
    async def scenario(queue: AsyncWorkQueue) -> None:
        await queue.limit(1)
        await queue.pause()
        await queue.enqueue(a_message())

        assert await queue.claim() == []
        with pytest.raises(QueueFull):
            await queue.enqueue(a_message())
        await queue.limit(None)
        await queue.resume()
        assert len(await queue.claim()) == 1
        with pytest.raises(InvalidArgument):
            await queue.limit(0)

    follow(server, scenario)


def test_dead_letters_are_listed_revived_and_purged(server: RealServer) -> None:
    async def scenario(queue: AsyncWorkQueue) -> None:
        await queue.enqueue(*some_messages(2))
        one, two = await queue.claim(2)
        await queue.settle(Bury(one, "why"), Bury(two, "why"))

        assert {letter.id for letter in await queue.dead_letters()} == {one.id, two.id}
        assert await queue.revive(one.id) == [one.id]
        assert await queue.purge_dead() == 1

    follow(server, scenario)


def test_the_verbs_of_the_redismq_document(server: RealServer) -> None:
    async def scenario(queue: AsyncWorkQueue) -> None:
        assert await queue.pop() is None
        first, second = await queue.push(b"a", "b")

        assert await queue.inspect(0, 9) == [(first, b"a"), (second, b"b")]
        assert await queue.pop() == [(first, b"a")]
        assert [item.id for item in await queue.inspect_pending(0, 9)] == [first]
        assert await queue.recover(9, 0) == [(first, b"a")]
        assert await queue.ack(first, second) == [first]

    follow(server, scenario)


def test_many_tasks_share_one_queue(server: RealServer) -> None:
    async def scenario(queue: AsyncWorkQueue) -> None:
        messages = some_messages(200)
        await asyncio.gather(*(queue.enqueue(message) for message in messages))

        shares = await asyncio.gather(*(queue.claim(50) for _ in range(8)))

        claimed = [delivery.id for share in shares for delivery in share]
        assert sorted(claimed) == sorted(message.id for message in messages)

    follow(server, scenario)
