"""Clients by URL alone: each opens a store of its own and closes it; a store that was given stays open."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from mqworker.errors import ConfigurationError
from mqworker.queues import (
    AsyncRsmqClient,
    AsyncTopics,
    AsyncWorkQueue,
    GqClient,
    RsmqClient,
    Topics,
    WorkQueue,
)
from mqworker.store.store import Store
from tests.support.messages import a_message, open_store
from tests.support.real_server import RealServer

Use = Callable[[str], object]


def use_rsmq(url: str) -> object:
    with RsmqClient.from_url(url) as rsmq:
        rsmq.create_queue("by-url")
        return rsmq.list_queues()


def use_topics(url: str) -> object:
    with Topics.from_url(url) as topics:
        topics.subscribe("news", "me", "127.0.0.1:1")
        return topics.unsubscribe("news", "me")


def use_work(url: str) -> object:
    with WorkQueue.from_url("by-url", url) as queue:
        queue.enqueue(a_message())
        return len(queue.claim(5))


def use_gq(url: str) -> object:
    with GqClient.from_url("by_url", url) as gq:
        with gq.producer() as producer:
            producer.push(b"x")
        return sum(gq.counts().values())


@pytest.mark.parametrize(
    ("use", "answer"), [(use_rsmq, ["by-url"]), (use_topics, True), (use_work, 1), (use_gq, 1)]
)
def test_a_client_needs_a_url_and_nothing_else(server: RealServer, use: Use, answer: object) -> None:
    assert use(server.url) == answer


def test_gq_takes_the_url_of_a_database_too(tmp_path: Path) -> None:
    pytest.importorskip("sqlalchemy")

    assert use_gq(f"sqlite:///{tmp_path}/jobs.db") == 1


def test_asynchronous_clients_are_opened_the_same_way(server: RealServer) -> None:
    async def use() -> list[object]:
        async with (
            AsyncRsmqClient.from_url(server.url) as rsmq,
            AsyncTopics.from_url(server.url) as topics,
            AsyncWorkQueue.from_url("by-url", server.url) as queue,
        ):
            return [await rsmq.list_queues(), await topics.sweep(), await queue.claim()]

    assert asyncio.run(use()) == [[], 0, []]


def test_only_the_store_that_the_client_opened_is_closed(
    server: RealServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[Store] = []

    def note(store: Store) -> None:
        closed.append(store)

    monkeypatch.setattr(Store, "close", note)
    given = open_store(server.url)

    for client in (RsmqClient(given), Topics(given), WorkQueue("q", given), GqClient.on_redis("q", given)):
        client.close()
    own = RsmqClient.from_url(server.url)
    own.close()
    GqClient.from_url("q", server.url).close()

    assert closed[:1] == [own.store]
    assert len(closed) == 2
    assert given not in closed


def test_an_address_of_another_kind_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="redis_url"):
        RsmqClient.from_url("http://localhost")
