"""SIGKILL in the middle of ten thousand messages: what was answered is there, and nothing is there twice."""

from __future__ import annotations

import asyncio
import json
from base64 import b64decode
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import redis

from mqworker.errors import StoreUnavailable
from mqworker_services.gateways.gomq.client import AsyncGomqClient
from tests.services.gomq.gomq_node import DEADLINE_S, GomqNode
from tests.support.real_server import RealServer

MESSAGES = 10_000
CHANNELS = 20
KILLS = 3


class Publishers:
    """Publish every number once, and know of each what was answered."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._numbers = iter(range(MESSAGES))
        self._progress = asyncio.Event()
        self.answered: set[int] = set()
        self.unknown: set[int] = set()

    @property
    def done(self) -> int:
        return len(self.answered) + len(self.unknown)

    async def reach(self, count: int) -> None:
        """Wait until so many are done."""
        while self.done < count:
            self._progress.clear()
            await self._progress.wait()

    async def run(self) -> None:
        await asyncio.gather(*(self._run_one() for _ in range(CHANNELS)))

    async def _run_one(self) -> None:
        async with AsyncGomqClient(self._target, timeout_s=DEADLINE_S) as client:
            await asyncio.gather(*(self._publish(client) for _ in range(4)))

    async def _publish(self, client: AsyncGomqClient) -> None:
        for number in self._numbers:
            try:
                await client.publish("FOO", b"%d" % number)
            except StoreUnavailable:
                self.unknown.add(number)
                await asyncio.sleep(0.1)  # the gateway is away; not all that is left shall meet that
            else:
                self.answered.add(number)
            self._progress.set()


class Listener:
    """Observes until all numbers came, or all that can."""

    def __init__(self, client: AsyncGomqClient) -> None:
        self._client = client
        self.seen: Counter[int] = Counter()

    async def run(self, is_over: Callable[[], bool]) -> None:
        now_s = asyncio.get_running_loop().time
        heard_at_s = now_s()
        while not is_over():
            assert now_s() < heard_at_s + DEADLINE_S, f"nothing more came after {len(self.seen)} numbers"
            records = await self._client.observe("BAR")
            self.seen.update(int(record.payload) for record in records)
            heard_at_s = now_s() if records else heard_at_s
            await asyncio.sleep(0 if records else 0.02)


async def kill_now_and_then(node: GomqNode, child: str, publishers: Publishers) -> None:
    for number in range(1, KILLS + 1):
        await publishers.reach(number * MESSAGES // (KILLS + 2))
        await asyncio.to_thread(node.kill, child)


@asynccontextmanager
async def listener(target: str) -> AsyncIterator[Listener]:
    async with AsyncGomqClient(target, timeout_s=DEADLINE_S) as client:
        await client.subscribe("FOO", "BAR")
        yield Listener(client)


def test_a_broker_killed_while_somebody_listens_costs_nothing(server: RealServer) -> None:
    """G18, with everything in between: every message comes exactly once, and nobody notices."""

    async def scenario() -> tuple[Publishers, Listener]:
        publishers = Publishers(node.target)
        async with listener(node.target) as listening:
            await asyncio.gather(
                publishers.run(),
                kill_now_and_then(node, "broker", publishers),
                listening.run(
                    lambda: publishers.done == MESSAGES and listening.seen.keys() >= publishers.answered
                ),
            )
        return publishers, listening

    with server.client() as raw, GomqNode(server.url) as node:
        raw.flushall()
        publishers, listening = asyncio.run(scenario())

    assert publishers.unknown == set()
    assert listening.seen == Counter(range(MESSAGES))


def test_a_killed_gateway_loses_nothing_that_it_answered(server: RealServer) -> None:
    """Its clients do not know of what was under way: that is there once, or not at all."""

    async def scenario() -> Publishers:
        publishers = Publishers(node.target)
        await asyncio.gather(publishers.run(), kill_now_and_then(node, "gateway:gomq", publishers))
        return publishers

    with server.client() as raw, GomqNode(server.url) as node:
        raw.flushall()
        publishers = asyncio.run(scenario())
        stored = stored_numbers(raw)

    assert len(publishers.answered) > MESSAGES // 2
    assert max(stored.values()) == 1
    assert publishers.answered <= set(stored) <= publishers.answered | publishers.unknown


def stored_numbers(raw: redis.Redis) -> Counter[int]:
    texts = raw.lrange("QUEUE_FOO", 0, -1)
    return Counter(int(b64decode(json.loads(text)["payload"])) for text in texts)
