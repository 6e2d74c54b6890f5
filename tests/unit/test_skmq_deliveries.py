"""A consumer's word on a message that is changing hands: asked again until it can be carried out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from mqworker.gateway import Ack, Delivery, Desk, Settlement, WorkSource
from mqworker.log import get_logger
from mqworker.model.names import MessageId
from mqworker.queues.skmq_names import TO_ONE
from services.skmq.connection import Connection
from services.skmq.deliveries import Deliveries
from services.skmq.options import SkmqOptions
from services.skmq.replies import ACK, ERROR, Answer
from services.skmq.requests import Feedback, Verdict

QUEUE = "skmq.app"


class ScriptedDesk:
    """Answers feedback with one outcome after the other, and nothing else."""

    def __init__(self, *outcomes: list[Any]) -> None:
        self._outcomes = list(outcomes)
        self.asked = 0

    def submit_call(self, call: list[Any], on_reply: Callable[[list[Any]], None], _size: int = 0) -> None:
        if call[0] == "skmq_feedback":
            self.asked += 1
            on_reply(self._outcomes.pop(0))


class Work:
    """Stores every settlement at once."""

    consumer = "gateway-1"

    def __init__(self) -> None:
        self.settled: list[Settlement] = []

    def settle(self, _queue: str, settlement: Settlement, on_settled: Callable[[bool], None] | None) -> None:
        self.settled.append(settlement)
        if on_settled is not None:
            on_settled(True)  # noqa: FBT003 - as the work source calls it


class Speaker:
    """A connection that somebody else opened."""

    host, flight = "127.0.0.1", None


class Stage:
    def __init__(self, *outcomes: list[Any]) -> None:
        self.desk, self.work = ScriptedDesk(*outcomes), Work()
        self.answers: asyncio.Queue[Answer | None] = asyncio.Queue()
        log = get_logger(actor="test")
        self.deliveries = Deliveries(
            cast("Desk", self.desk), SkmqOptions(), log, lambda _: pytest.fail("pushed")
        )
        self.deliveries.take_from(cast("WorkSource", self.work))

    async def ack(self) -> Answer | None:
        verdict = Verdict(Feedback.ACK, "m")
        self.deliveries.hear(verdict, cast("Connection", Speaker()), self.answers.put_nowait)
        return await asyncio.wait_for(self.answers.get(), 30)


def test_an_ack_is_carried_out_when_the_message_has_changed_hands() -> None:
    async def story() -> tuple[Answer | None, int]:
        stage = Stage([True, "missed"], [True, "missed"], [True, "known"])
        return await stage.ack(), stage.desk.asked

    assert asyncio.run(story()) == (ACK, 3)


def test_an_ack_of_a_message_that_came_to_this_gateway_meanwhile_is_its_own() -> None:
    async def story() -> tuple[Answer | None, list[Settlement]]:
        stage = Stage([True, "missed"])
        delivery = Delivery(1, MessageId("m~q1"), TO_ONE, b"x", enqueued_at_ms=0)
        stage.deliveries.take(QUEUE, delivery)  # it is assigned in the next turn of the loop
        return await stage.ack(), stage.work.settled

    answer, settled = asyncio.run(story())

    assert answer == ACK
    assert [type(each) for each in settled] == [Ack]


def test_an_ack_that_the_store_cannot_take_is_an_error_at_once() -> None:
    async def story() -> tuple[Answer | None, int]:
        stage = Stage([False, "unavailable", "Redis is away"])
        return await stage.ack(), stage.desk.asked

    assert asyncio.run(story()) == (ERROR, 1)
