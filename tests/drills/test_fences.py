"""Fences across a server's histories: none is given out twice, and each is written in full."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mqworker.model.settlement import Ack
from mqworker.queues.work.queue import WorkQueue
from tests.support.messages import open_store, some_messages
from tests.support.real_server import RealServer

FAR_AHEAD = 3_000_000_000_000_000


@pytest.fixture
def queue(server: RealServer) -> Iterator[WorkQueue]:
    store = open_store(server.url)
    yield WorkQueue("q", store)
    store.close()


def test_a_server_that_went_back_gives_out_no_fence_again(queue: WorkQueue, server: RealServer) -> None:
    queue.enqueue(*some_messages(20))
    with server.client() as client:
        client.save()
        before = queue.claim(10)
        client.execute_command("DEBUG", "RELOAD", "NOSAVE")

        after = queue.claim(20)

    assert max(delivery.fence for delivery in before) < min(delivery.fence for delivery in after)
    assert len(queue.settle(*map(Ack, before))) == 10
    assert queue.settle(*map(Ack, after)) == []


def test_fences_grow_past_a_round_number(queue: WorkQueue, server: RealServer) -> None:
    queue.enqueue(*some_messages(30))
    with server.client() as client:
        client.hset(queue.calls.keys.meta, "fence", FAR_AHEAD - 15)

    first, second, third = (queue.claim(10) for _ in range(3))

    fences = [delivery.fence for delivery in (*first, *second, *third)]
    assert fences == sorted(set(fences))
    assert FAR_AHEAD not in fences
    assert queue.settle(*map(Ack, (*first, *second, *third))) == []
