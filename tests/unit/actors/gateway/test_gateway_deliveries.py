"""A gateway's work source: how much it claims, what it hands over, and how a settlement gets through."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest

from mqworker.actors.gateway import deliveries
from mqworker.actors.gateway.client import NodeClient
from mqworker.actors.gateway.deliveries import WorkSource
from mqworker.errors import InvalidArgument
from mqworker.model.delivery import Delivery
from mqworker.model.settlement import Ack
from mqworker.queues.work.calls import WorkQueueOptions
from tests.support.dispatcher_stage import a_record

TROUBLE = [False, "StoreUnavailable", "away"]


class ScriptedNode:
    """Keeps what it is asked; a test answers."""

    def __init__(self) -> None:
        self.asked: list[tuple[list[Any], Callable[[list[Any]], None]]] = []
        self.wakers: dict[str, Callable[[], None]] = {}

    def submit_pop(self, call: list[Any], on_reply: Callable[[list[Any]], None], _size: int = 0) -> None:
        self.asked.append((call, on_reply))

    def watch(self, queue: str, waker: Callable[[], None]) -> None:
        self.wakers[queue] = waker

    def unwatch(self, queue: str, _waker: Callable[[], None]) -> None:
        del self.wakers[queue]

    def answer(self, reply: list[Any]) -> list[Any]:
        """Answer the oldest question; what it was."""
        call, on_reply = self.asked.pop(0)
        on_reply(reply)
        return call


class Stage:
    """A work source with a scripted node; keeps what is handed over."""

    def __init__(self) -> None:
        self.node = ScriptedNode()
        self.taken: list[Delivery] = []
        self.is_refusing = False
        self.source = WorkSource(
            cast(NodeClient, self.node), "consumer", self._take, WorkQueueOptions(), result_ttl_ms=1_000
        )

    def _take(self, _queue: str, delivery: Delivery) -> None:
        if self.is_refusing:
            raise InvalidArgument("nothing of ours")
        self.taken.append(delivery)

    def claimed(self, *fences: int) -> list[Any]:
        """Answer a claim with so many deliveries."""
        return self.node.answer([True, [(fence, a_record(fence)) for fence in fences]])


Scene = Callable[[Stage], Coroutine[Any, Any, None]]


def play(scene: Scene) -> None:
    """Run a scene on an event loop of its own."""

    async def run() -> None:
        await scene(Stage())

    asyncio.run(run())


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deliveries, "OUTAGE_PAUSE_MS", 0)


def test_it_claims_as_much_as_there_is_room_for() -> None:
    async def scene(stage: Stage) -> None:
        stage.source.open("q", 3)
        first = stage.claimed(1, 2)
        second = stage.claimed()

        assert first == ["claim", "q", "consumer", 3]
        assert second == ["claim", "q", "consumer", 1]
        assert [delivery.fence for delivery in stage.taken] == [1, 2]
        assert stage.source.in_hand("q") == 2
        assert stage.node.asked == []

    play(scene)


def test_without_room_it_claims_nothing() -> None:
    async def scene(stage: Stage) -> None:
        stage.source.open("q", 1)
        stage.claimed(1)
        stage.node.wakers["q"]()

        assert stage.node.asked == []

    play(scene)


def test_a_wake_up_makes_it_claim() -> None:
    async def scene(stage: Stage) -> None:
        stage.source.open("q", 1)
        stage.claimed()
        stage.node.wakers["q"]()

        assert [call[0] for call, _ in stage.node.asked] == ["claim"]

    play(scene)


def test_settlements_of_one_turn_are_sent_together_and_make_room() -> None:
    async def scene(stage: Stage) -> None:
        told: list[bool] = []
        stage.source.open("q", 2)
        stage.claimed(1, 2)
        for delivery in stage.taken:
            stage.source.settle("q", Ack(delivery), told.append)
        await asyncio.sleep(0)
        (verb, *_), next_claim = stage.node.answer([True, 0]), stage.node.asked[0][0]

        assert (verb, told) == ("settle", [True, True])
        assert stage.source.in_hand("q") == 0
        assert next_claim == ["claim", "q", "consumer", 2]

    play(scene)


def test_a_settlement_is_sent_again_until_it_is_stored() -> None:
    async def scene(stage: Stage) -> None:
        told: list[bool] = []
        stage.source.open("q", 1)
        stage.claimed(1)
        stage.source.settle("q", Ack(stage.taken[0]), told.append)
        await asyncio.sleep(0)
        first = stage.node.answer(TROUBLE)
        await asyncio.sleep(0.01)
        again = stage.node.answer([True, 1])

        assert again == first
        assert told == [False]

    play(scene)


def test_after_a_claim_without_an_answer_it_asks_what_it_holds() -> None:
    async def scene(stage: Stage) -> None:
        stage.source.open("q", 5)
        stage.node.answer(TROUBLE)
        await asyncio.sleep(0.01)
        asked = stage.claimed(7)

        assert asked == ["held", "q", "consumer"]
        assert [delivery.fence for delivery in stage.taken] == [7]

    play(scene)


@pytest.mark.parametrize("record", [b"garbage", None])
def test_what_cannot_be_read_or_is_refused_is_buried(record: bytes | None) -> None:
    async def scene(stage: Stage) -> None:
        stage.is_refusing = True
        stage.source.open("q", 1)
        stage.node.answer([True, [(1, record or a_record(1))]])
        await asyncio.sleep(0)

        assert stage.taken == []
        assert [call[0] for call, _ in stage.node.asked] == ["settle"]
        assert "undecodable" in str(stage.node.asked[0][0])

    play(scene)


def test_closing_waits_for_the_last_settlement() -> None:
    async def scene(stage: Stage) -> None:
        stage.source.open("q", 1)
        stage.claimed(1)
        stage.source.settle("q", Ack(stage.taken[0]))
        closing = asyncio.ensure_future(stage.source.close())
        await asyncio.sleep(0.01)
        was_done = closing.done()
        stage.node.answer([True, 0])
        await closing

        assert (was_done, stage.node.wakers, stage.node.asked) == (False, {}, [])

    play(scene)
