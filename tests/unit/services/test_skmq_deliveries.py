"""A consumer's word on a message that is changing hands: asked again until it can be carried out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from mqworker.gateway import Ack, Delivery, NodeClient, Settlement, WorkSource
from mqworker.log import get_logger
from mqworker.model.names import MessageId
from mqworker.queues.skmq.names import TO_ONE
from mqworker_services.gateways.skmq.connection import Connection
from mqworker_services.gateways.skmq.deliveries import Deliveries
from mqworker_services.gateways.skmq.greetings import Greetings
from mqworker_services.gateways.skmq.options import SkmqOptions
from mqworker_services.gateways.skmq.replies import ACK, ERROR, Answer
from mqworker_services.gateways.skmq.requests import Feedback, MessageFeedback

QUEUE = "skmq.app"


class ScriptedNode:
    """Answers feedback with one outcome after the other, and nothing else; without one, later."""

    def __init__(self, *outcomes: list[Any]) -> None:
        self._outcomes = list(outcomes)
        self.asked = 0
        self.asker = ""
        self.reply_to_feedback: Callable[[list[Any]], None] | None = None
        self.reply_to_assign: Callable[[list[Any]], None] | None = None

    def submit_call(self, call: list[Any], on_reply: Callable[[list[Any]], None], _size: int = 0) -> None:
        if call[0] == "skmq_feedback":
            self.asked += 1
            self.asker = call[-1]
            if self._outcomes:
                on_reply(self._outcomes.pop(0))
            else:
                self.reply_to_feedback = on_reply
        elif call[0] == "skmq_assign":
            self.reply_to_assign = on_reply


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

    host, push, user = "127.0.0.1", None, None


class Outwards(asyncio.Protocol):
    """A connection to a recipient, and what was pushed on it."""

    def __init__(self) -> None:
        self.pushed: list[bytes] = []
        self.closed = asyncio.Event()
        self._transport: asyncio.BaseTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - however it ended
        self.closed.set()

    def send(self, frame: bytes) -> None:
        self.pushed.append(frame)

    def end(self) -> None:
        if self._transport is not None:
            self._transport.close()


async def read_to_the_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A recipient that never says a word."""
    await reader.read()
    writer.close()


class Stage:
    def __init__(self, *outcomes: list[Any]) -> None:
        self.outwards = Outwards()
        self.node, self.work = ScriptedNode(*outcomes), Work()
        self.answers: asyncio.Queue[Answer | None] = asyncio.Queue()
        log = get_logger(actor="test")
        options = SkmqOptions(greeting="no")
        self.deliveries = Deliveries(
            cast("NodeClient", self.node),
            options,
            log,
            Greetings(options),
            lambda _: cast("Connection", self.outwards),
        )
        self.deliveries.take_from(cast("WorkSource", self.work))

    def take(self) -> None:
        """A delivery comes; it is assigned in the next turn of the loop."""
        delivery = Delivery(1, MessageId("m~q1"), TO_ONE, b"x", enqueued_at_ms=0)
        self.deliveries.take(QUEUE, delivery)

    def begin_ack(self) -> None:
        verdict = MessageFeedback(Feedback.ACK, "m")
        self.deliveries.hear(verdict, cast("Connection", Speaker()), self.answers.put_nowait)

    async def ack(self) -> Answer | None:
        self.begin_ack()
        return await asyncio.wait_for(self.answers.get(), 30)


def test_an_ack_is_carried_out_when_the_message_has_changed_hands() -> None:
    async def story() -> tuple[Answer | None, int]:
        stage = Stage([True, "missed"], [True, "missed"], [True, "known"])
        return await stage.ack(), stage.node.asked

    assert asyncio.run(story()) == (ACK, 3)


def test_an_ack_of_a_message_that_came_to_this_gateway_meanwhile_is_its_own() -> None:
    async def story() -> tuple[Answer | None, list[Settlement]]:
        stage = Stage([True, "missed"])
        stage.take()
        return await stage.ack(), stage.work.settled

    answer, settled = asyncio.run(story())

    assert answer == ACK
    assert [type(each) for each in settled] == [Ack]


def test_a_message_whose_ack_came_before_it_is_not_pushed_after_the_answer() -> None:
    """Asked of a stranger, taken and assigned meanwhile: the ack ends the push that is about to be made."""

    async def story() -> Stage:
        stage = Stage()
        listening = await asyncio.start_server(read_to_the_end, "127.0.0.1", 0)
        stage.begin_ack()
        stage.take()
        await asyncio.sleep(0)
        assert stage.node.reply_to_assign is not None
        assert stage.node.reply_to_feedback is not None
        async with listening:
            stage.node.reply_to_assign([True, [("r", *listening.sockets[0].getsockname(), "r")]])
            stage.node.reply_to_feedback([True, "missed"])
            assert await asyncio.wait_for(stage.answers.get(), 30) == ACK
            await asyncio.wait_for(stage.outwards.closed.wait(), 30)
        return stage

    stage = asyncio.run(story())

    assert stage.node.asker == Work.consumer
    assert [type(each) for each in stage.work.settled] == [Ack]
    assert stage.outwards.pushed == []


def test_an_ack_that_the_store_cannot_take_is_an_error_at_once() -> None:
    async def story() -> tuple[Answer | None, int]:
        stage = Stage([False, "unavailable", "Redis is away"])
        return await stage.ack(), stage.node.asked

    assert asyncio.run(story()) == (ERROR, 1)
