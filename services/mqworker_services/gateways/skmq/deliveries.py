"""Deliveries: from a work queue to a recipient, and the consumer's word back to the queue.

Running a delivery means to push it and to wait for the ack. Whatever happens, it ends in one settlement; the
consumer is answered when that is stored, not before: who was told `ack` is never sent the message again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from mqworker.gateway import (
    CONSUME,
    Ack,
    After,
    Bury,
    Delivery,
    Failure,
    GatewayUser,
    NodeClient,
    Park,
    Release,
    Settlement,
    WorkSource,
    matches,
)
from mqworker.log import Logger
from mqworker.queues.skmq.frame import encode_frame
from mqworker.queues.skmq.names import COPY, TO_ALL, TO_ONE, app_of_queue
from mqworker.queues.skmq.settlement import SILENCE, UNREACHABLE, look_again, settlement_of
from mqworker_services.gateways.skmq.connect_turns import ConnectTurns
from mqworker_services.gateways.skmq.connection import Answering, Connection
from mqworker_services.gateways.skmq.greetings import Greetings
from mqworker_services.gateways.skmq.options import SkmqOptions
from mqworker_services.gateways.skmq.pushes import Push, Pushes, push_of
from mqworker_services.gateways.skmq.replies import ACK, ERROR
from mqworker_services.gateways.skmq.requests import Feedback, MessageFeedback, unknown_message

_PAUSE_MS = 1_000
_MOST_PER_CALL = 500
_MOST_TRIES = 30
"""An ack of a message that is changing hands is carried out when it has; some seconds are long for that."""
_BETWEEN_TRIES_S = 0.1

NewConnection = Callable[[Push], Connection]


@dataclass(frozen=True, slots=True)
class Speaker:
    """Who says something of a message."""

    host: str
    apps: tuple[str, ...] | None = None
    """Patterns of the apps whose messages it may speak of; None: of all."""

    def may_speak_of(self, app: str) -> bool:
        """Whether its word counts for messages of this app."""
        return self.apps is None or matches(self.apps, app)


class Deliveries:
    """Everything this gateway has taken from the queues and not settled yet."""

    def __init__(
        self,
        node: NodeClient,
        options: SkmqOptions,
        log: Logger,
        greetings: Greetings,
        new_connection: NewConnection,
    ) -> None:
        self._node = node
        self._options = options
        self._log = log
        self._greetings = greetings
        self._new_connection = new_connection
        self._work: WorkSource | None = None
        self._pushes = Pushes()
        self._turns = ConnectTurns()
        self._fresh: dict[str, list[Push]] = {}
        self._forgotten: list[tuple[str, str]] = []
        self._connecting: set[asyncio.Task[None]] = set()
        self._emptied: asyncio.Event | None = None
        self._loop = asyncio.get_running_loop()
        self.pushed = self.acked = self.retried = self.buried = 0

    @property
    def in_flight(self) -> int:
        """How many were pushed, or are about to be."""
        return self._pushes.count

    @property
    def _consumer(self) -> str:
        return self._work.consumer if self._work is not None else ""

    def take_from(self, work: WorkSource) -> None:
        """Take deliveries from there."""
        self._work = work

    # From the queue to the recipient

    def take(self, queue: str, delivery: Delivery) -> None:
        """A delivery came; those of one turn are assigned together."""
        if delivery.task not in {TO_ONE, TO_ALL, COPY}:
            failure = Failure("UnknownTask", f"{delivery.task} is nothing that skmq could push")
            self._settle_with(queue, Bury(delivery, "unknown task", failure))
            return
        if not self._fresh:
            self._loop.call_soon(self._assign_fresh)
        self._fresh.setdefault(queue, []).append(push_of(queue, delivery))

    def _assign_fresh(self) -> None:
        fresh, self._fresh = self._fresh, {}
        for queue, pushes in fresh.items():
            for push in pushes:
                if push.delivery.task == TO_ALL:
                    self._split(push)
            singles = [push for push in pushes if push.delivery.task != TO_ALL]
            for start in range(0, len(singles), _MOST_PER_CALL):
                self._assign(queue, singles[start : start + _MOST_PER_CALL])

    def _assign(self, queue: str, pushes: list[Push]) -> None:
        for push in pushes:
            self._pushes.add(push)
        wishes = [[push.delivery.fence, push.delivery.id, push.msgid, push.key] for push in pushes]
        call = ["skmq_assign", queue, self._consumer, wishes]
        self._node.submit_call(call, partial(self._on_assigned, pushes), 200 * len(pushes))

    def _on_assigned(self, pushes: list[Push], reply: list[Any]) -> None:
        for position, push in enumerate(pushes):
            if push.is_settling:
                continue  # its ack came by another way
            if not reply[0]:  # nobody knows why; no fault of the message
                self._settle(push, Park(push.delivery, After(_PAUSE_MS), Failure("NotAssigned", reply[2])))
            elif reply[1][position] is None:
                self._end(push, UNREACHABLE)
            else:
                push.key, push.host, push.port, _ = reply[1][position]
                self._start(self._push(push))

    async def _push(self, push: Push) -> None:
        connection = await self._connect(push)
        if connection is None:
            return
        if push.is_settling:  # its ack came by another way
            connection.end()
            self._turns.freed(push.address)
            return
        push.connection = connection
        app = app_of_queue(push.queue)
        connection.send(encode_frame("push", appid=app, msgid=push.msgid, content=push.delivery.body))
        self.pushed += 1
        self._await_ack(push)

    async def _connect(self, push: Push) -> Connection | None:
        while not push.is_settling:
            connection = self._new_connection(push)
            try:
                async with self._turns.turn(push.address):
                    await self._greet(push)
                    began_s = self._loop.time()
                    await self._open(push, connection)
                    self._turns.connected(push.address, self._loop.time() - began_s)
            except TimeoutError:
                # Busy with others of ours, it is not lost: the message waits for its turn, uncounted.
                if not await self._turns.wait_while_busy(push.address):
                    self._lose(push, "time-out")
            except OSError as error:
                self._lose(push, str(error))
            else:
                return connection
        return None

    async def _open(self, push: Push, connection: Connection) -> None:
        async with asyncio.timeout(self._options.connect_timeout / 1000):
            await self._loop.create_connection(
                lambda: connection, push.host, push.port, **self._greetings.tls_of(push.host)
            )

    async def _greet(self, push: Push) -> None:
        """Who does not speak the protocol is not written to: it might obey."""
        if not await self._greetings.has_greeted(push.host, push.port):
            raise OSError("no pong")

    def _lose(self, push: Push, reason: str) -> None:
        self._log.info("skmq_recipient_lost", recipient=push.key, reason=reason)
        self._greetings.forget(push.host, push.port)
        self._node.submit_call(["skmq_lose", push.queue, push.key, push.address], lambda _: None)
        self._end(push, UNREACHABLE)

    def _await_ack(self, push: Push) -> None:
        push.stop_timer()
        wait_s = self._options.ack_timeout / 1000
        push.timer = self._loop.call_later(wait_s, self._end, push, SILENCE)

    def _split(self, push: Push) -> None:
        delivery = push.delivery
        call = ["skmq_split", push.queue, delivery.id, delivery.body]
        self._node.submit_call(call, partial(self._on_split, push), len(delivery.body) + 200)

    def _on_split(self, push: Push, reply: list[Any]) -> None:
        delivery = push.delivery
        match reply[1] if reply[0] else None:
            case "done":
                self._settle(push, Ack(delivery))
            case "waits":
                self._settle(push, look_again(delivery))
            case "nobody":
                self._end(push, UNREACHABLE)
            case _:
                self._settle(push, Park(delivery, After(_PAUSE_MS), Failure("NotSplit", str(reply))))

    # From the consumer's word to the queue

    def hear(self, verdict: MessageFeedback, connection: Connection, answering: Answering) -> None:
        """A consumer said something about a message, on any connection."""
        push = self._pushes.meant(verdict.msgid, verdict.key, connection)
        speaker = Speaker(connection.host, _apps_of(connection.user))
        if push is not None and not speaker.may_speak_of(app_of_queue(push.queue)):
            answering(unknown_message(verdict.feedback))
            return
        self._carry_out(verdict, push, speaker, answering)

    def _carry_out(
        self,
        verdict: MessageFeedback,
        push: Push | None,
        speaker: Speaker,
        answering: Answering,
        tries: int = _MOST_TRIES,
    ) -> None:
        if push is None:
            self._hear_of_stranger(verdict, speaker, answering, tries)
        elif verdict.feedback is Feedback.ARRIVED:
            self._arrived(push)
            answering(ACK)
        else:
            push.waiting.append(answering)
            if not push.is_settling:
                self._end(push, verdict.feedback.value)

    def _arrived(self, push: Push) -> None:
        if push.is_settling:
            return
        self._await_ack(push)
        if push.connection is not None:
            wait_s = min(self._options.arrived_wait, self._options.ack_timeout) / 1000
            self._loop.call_later(wait_s, push.connection.end)

    def _hear_of_stranger(
        self, verdict: MessageFeedback, speaker: Speaker, answering: Answering, tries: int = _MOST_TRIES
    ) -> None:
        """Nothing that we pushed: another gateway did, or this one before it was started anew."""
        rules = [self._options.retry_times, self._options.retry_delay]
        named = [verdict.key, speaker.host, speaker.apps]
        about = [verdict.feedback.value, verdict.msgid, named, rules, self._consumer]

        def flight_by_now() -> Push | None:
            return self._pushes.attributed(verdict.msgid, verdict.key, speaker.host)

        def ask_again() -> None:
            self._carry_out(verdict, flight_by_now(), speaker, answering, tries - 1)

        def on_reply(reply: list[Any]) -> None:
            outcome = reply[1] if reply[0] else "failed"
            if outcome == "missed" and tries > 1:
                # Somebody has taken it meanwhile; if that was this gateway, it need not be pushed any more.
                self._loop.call_later(0 if flight_by_now() else _BETWEEN_TRIES_S, ask_again)
            elif outcome == "unknown":
                answering(unknown_message(verdict.feedback))
            else:
                answering(ACK if outcome == "known" else ERROR)

        self._node.submit_call(["skmq_feedback", *about], on_reply, 200)

    # Settlements

    def _end(self, push: Push, feedback: str) -> None:
        if not push.is_settling:
            self._settle(push, self._verdict(push, feedback))

    def _verdict(self, push: Push, feedback: str) -> Settlement:
        settlement = settlement_of(feedback, push.delivery, self._options.rules)
        if isinstance(settlement, Bury):
            self._log.warning("skmq_message_dead", queue=push.queue, msgid=push.msgid, reason=feedback)
            if self._options.dead_letter == "delete":
                return Ack(push.delivery)
        return settlement

    def _settle(self, push: Push, settlement: Settlement) -> None:
        push.is_settling = True
        push.stop_timer()
        on_settled = partial(self._on_settled, push, settlement)
        self._settle_with(push.queue, settlement, on_settled)

    def _settle_with(
        self, queue: str, settlement: Settlement, on_settled: Callable[[bool], None] | None = None
    ) -> None:
        if self._work is not None:
            self._work.settle(queue, settlement, on_settled)

    def _on_settled(self, push: Push, settlement: Settlement, is_sure: bool) -> None:  # noqa: FBT001 - a callback
        self._pushes.remove(push)
        if self._emptied is not None and not self._pushes.count:
            self._emptied.set()
        if push.connection is not None:
            push.connection.end()
            self._turns.freed(push.address)
        waiting, push.waiting = push.waiting, []
        if not is_sure and isinstance(settlement, Ack):
            # Somebody took us for dead and released it, perhaps: then it waits again, and must not.
            for answering in waiting or [lambda _: None]:
                verdict = MessageFeedback(Feedback.ACK, push.msgid, push.key if push.is_copy else "")
                self._hear_of_stranger(verdict, Speaker(push.host), answering)
            return
        self._count(settlement)
        if isinstance(settlement, Ack | Bury):
            self._forget(push.field, push.delivery.id)
        for answering in waiting:
            answering(ACK)

    def _count(self, settlement: Settlement) -> None:
        match settlement:
            case Ack():
                self.acked += 1
            case Bury():
                self.buried += 1
            case _:
                self.retried += 1

    def _forget(self, field: str, message: str) -> None:
        if not self._forgotten:
            self._loop.call_soon(self._forget_now)
        self._forgotten.append((field, message))

    def _forget_now(self) -> None:
        entries, self._forgotten = self._forgotten, []
        for start in range(0, len(entries), _MOST_PER_CALL):
            some = entries[start : start + _MOST_PER_CALL]
            self._node.submit_call(["skmq_forget", some], lambda _: None, 100 * len(some))

    # The end

    async def close(self, grace_s: float) -> None:
        """Wait for acks as long as there is time; then give back what is left, uncounted."""
        if self._work is None:
            return
        if self._pushes.count:
            self._emptied = asyncio.Event()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._emptied.wait(), grace_s)
        for push in self._pushes:
            if not push.is_settling:
                self._settle(push, Release(push.delivery))
        await self._work.close()

    def _start(self, push: Any) -> None:  # noqa: ANN401 - a coroutine
        task = self._loop.create_task(push)
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)


def _apps_of(user: GatewayUser | None) -> tuple[str, ...] | None:
    """Those whose messages a user may consume; None for all, and where we opened the connection."""
    return None if user is None or user.is_unlimited else user.patterns_by_verb.get(CONSUME, ())
