"""The loop of a gateway's process, with real pipes and without a process: mail in, mail out, and its end."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from mqworker.actors.child_start import ChildStart
from mqworker.actors.gateway.client import NodeClient
from mqworker.actors.gateway.loop import GatewayLoop
from mqworker.actors.mail import (
    Attach,
    Drain,
    Drained,
    GatewayCalls,
    GatewayReplies,
    Hello,
    Mail,
    Ping,
    Pong,
    QueuesWoken,
    WatchQueues,
)
from mqworker.actors.mailbox import Mailbox, open_pipe
from mqworker.model.clock import SystemClock
from mqworker.model.gateway_options import GatewayOptions, TcpPlace
from mqworker.settings import Settings

OPTIONS = GatewayOptions("fake", TcpPlace("127.0.0.1", 0))
DEADLINE_S = 10.0

MailT = TypeVar("MailT")


class FakeGateway:
    """Listens to nobody; keeps what it was given."""

    name = "fake"

    def __init__(self) -> None:
        self.closed_within_ms: int | None = None

    async def open(self, node: NodeClient, _options: GatewayOptions) -> None:
        self.node = node

    async def close(self, grace_ms: int) -> None:
        self.closed_within_ms = grace_ms

    def facts(self) -> dict[str, Any]:
        return {"in": 3, "out": 2}


class Stage:
    """A loop that runs, and the far ends of its pipes."""

    def __init__(self) -> None:
        self.gateway = FakeGateway()
        ours, theirs = open_pipe()
        self.supervisor = Mailbox(theirs)
        start = ChildStart(Settings(), "redis://nowhere", "node", "consumer", "gateway:fake", 1, 1, None, "")
        control = Mailbox(ours, brings_descriptors=True)
        self.loop = GatewayLoop(self.gateway, control, start, SystemClock())
        self.running = asyncio.ensure_future(self.loop.run(OPTIONS))

    def attach(self, peer: str) -> Mailbox:
        """Give it a pipe to a peer; the peer's end."""
        ours, theirs = open_pipe()
        self.supervisor.send(Attach(peer), [ours])
        os.close(ours)
        return Mailbox(theirs)

    async def end(self) -> None:
        self.supervisor.send(Drain(0))
        await asyncio.wait_for(self.running, DEADLINE_S)

    def close(self) -> None:
        """A process would end here, and its pipes with it."""
        for mailbox in [self.supervisor, *self.loop._mailboxes.values()]:
            mailbox.close()


async def mail_of(mailbox: Mailbox, kind: type[MailT]) -> MailT:
    """The next mail of this kind; what comes before it is dropped."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            mails: list[Mail] = mailbox.receive()
            for mail in mails:
                if isinstance(mail, kind):
                    return mail
            await asyncio.sleep(0.001)


def play(scene: Callable[[Stage], Coroutine[Any, Any, None]]) -> None:
    """Run a scene on an event loop of its own."""

    async def run() -> None:
        stage = Stage()
        await mail_of(stage.supervisor, Hello)
        await scene(stage)
        stage.close()

    asyncio.run(run())


def test_a_ping_is_answered_with_the_facts_of_the_gateway() -> None:
    async def scene(stage: Stage) -> None:
        stage.supervisor.send(Ping(7))
        pong = await mail_of(stage.supervisor, Pong)

        assert pong.number == 7
        assert (pong.facts["in"], pong.facts["broker_waiting"]) == (3, 0)
        await stage.end()

    play(scene)


def test_a_call_goes_to_the_broker_and_its_reply_comes_back() -> None:
    async def scene(stage: Stage) -> None:
        broker = stage.attach("broker")
        call = asyncio.ensure_future(stage.gateway.node.call("echo", 5))
        asked = await mail_of(broker, GatewayCalls)
        broker.send(GatewayReplies(asked.numbers, [[True, 5]]))

        assert asked.calls == [["echo", 5]]
        assert await call == 5
        await stage.end()
        broker.close()

    play(scene)


def test_a_broker_that_replaces_another_is_sent_what_was_not_answered() -> None:
    async def scene(stage: Stage) -> None:
        first = stage.attach("broker")
        call = asyncio.ensure_future(stage.gateway.node.call("echo", 5))
        asked = await mail_of(first, GatewayCalls)
        first.close()
        second = stage.attach("broker")
        again = await mail_of(second, GatewayCalls)
        second.send(GatewayReplies(again.numbers, [[True, "done"]]))

        assert again == asked
        assert await call == "done"
        await stage.end()
        second.close()

    play(scene)


def test_the_dispatcher_is_told_what_is_watched_and_its_wake_ups_are_passed_on() -> None:
    async def scene(stage: Stage) -> None:
        woken = asyncio.Event()
        stage.gateway.node.watch("q", woken.set)
        dispatcher = stage.attach("dispatcher")
        watched = await mail_of(dispatcher, WatchQueues)
        dispatcher.send(QueuesWoken(["q"]))
        await asyncio.wait_for(woken.wait(), DEADLINE_S)

        assert watched == WatchQueues(["q"])
        await stage.end()
        dispatcher.close()

    play(scene)


def test_drained_it_closes_the_gateway_in_the_time_given_and_says_so() -> None:
    async def scene(stage: Stage) -> None:
        stage.supervisor.send(Drain(1_234))
        await mail_of(stage.supervisor, Drained)
        await stage.running

        assert stage.gateway.closed_within_ms == 1_234

    play(scene)


def test_without_a_supervisor_it_ends() -> None:
    async def scene(stage: Stage) -> None:
        stage.supervisor.close()
        await asyncio.wait_for(stage.running, DEADLINE_S)

        assert stage.gateway.closed_within_ms is None

    play(scene)
