"""Deliveries: from a work queue to a recipient, and the consumer's word back to the queue.

Running a delivery means to push it and to wait for the ack. Whatever happens, it ends in one settlement; the
consumer is answered when that is stored, not before: who was told `ack` is never sent the message again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from mqworker.gateway import (
    Ack,
    After,
    Bury,
    Delivery,
    Failure,
    NodeClient,
    Park,
    Release,
    Settlement,
    WorkSource,
)
from mqworker.log import Logger
from mqworker.queues.skmq.frame import encode_frame
from mqworker.queues.skmq.names import COPY, TO_ALL, TO_ONE, app_of_queue
from mqworker.queues.skmq.settlement import SILENCE, UNREACHABLE, look_again, settlement_of
from mqworker_services.gateways.skmq.connect_turns import ConnectTurns
from mqworker_services.gateways.skmq.connection import Answering, Connection
from mqworker_services.gateways.skmq.flights import Flight, Flights, flight_of
from mqworker_services.gateways.skmq.options import SkmqOptions
from mqworker_services.gateways.skmq.replies import ACK, ERROR
from mqworker_services.gateways.skmq.requests import Feedback, Verdict, unknown_message

_PAUSE_MS = 1_000
_MOST_PER_CALL = 500
_MOST_TRIES = 30
"""An ack of a message that is changing hands is carried out when it has; some seconds are long for that."""
_BETWEEN_TRIES_S = 0.1

NewConnection = Callable[[Flight], Connection]


class Deliveries:
    """Everything this gateway has taken from the queues and not settled yet."""

    def __init__(
        self, node: NodeClient, options: SkmqOptions, log: Logger, new_connection: NewConnection
    ) -> None:
        self._node = node
        self._options = options
        self._log = log
        self._new_connection = new_connection
        self._work: WorkSource | None = None
        self._flights = Flights()
        self._turns = ConnectTurns()
        self._fresh: dict[str, list[Flight]] = {}
        self._forgotten: list[tuple[str, str]] = []
        self._connecting: set[asyncio.Task[None]] = set()
        self._emptied: asyncio.Event | None = None
        self._loop = asyncio.get_running_loop()
        self.pushed = self.acked = self.retried = self.buried = 0

    @property
    def in_flight(self) -> int:
        """How many were pushed, or are about to be."""
        return self._flights.count

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
        self._fresh.setdefault(queue, []).append(flight_of(queue, delivery))

    def _assign_fresh(self) -> None:
        fresh, self._fresh = self._fresh, {}
        for queue, flights in fresh.items():
            for flight in flights:
                if flight.delivery.task == TO_ALL:
                    self._split(flight)
            singles = [flight for flight in flights if flight.delivery.task != TO_ALL]
            for start in range(0, len(singles), _MOST_PER_CALL):
                self._assign(queue, singles[start : start + _MOST_PER_CALL])

    def _assign(self, queue: str, flights: list[Flight]) -> None:
        for flight in flights:
            self._flights.add(flight)
        wishes = [[flight.delivery.fence, flight.delivery.id, flight.msgid, flight.key] for flight in flights]
        call = ["skmq_assign", queue, self._consumer, wishes]
        self._node.submit_call(call, partial(self._on_assigned, flights), 200 * len(flights))

    def _on_assigned(self, flights: list[Flight], reply: list[Any]) -> None:
        for position, flight in enumerate(flights):
            if flight.is_settling:
                continue  # its ack came by another way
            if not reply[0]:  # nobody knows why; no fault of the message
                self._settle(
                    flight, Park(flight.delivery, After(_PAUSE_MS), Failure("NotAssigned", reply[2]))
                )
            elif reply[1][position] is None:
                self._end(flight, UNREACHABLE)
            else:
                flight.key, flight.host, flight.port, _ = reply[1][position]
                self._start(self._push(flight))

    async def _push(self, flight: Flight) -> None:
        connection = await self._connect(flight)
        if connection is None:
            return
        if flight.is_settling:  # its ack came by another way
            connection.end()
            self._turns.freed(flight.address)
            return
        flight.connection = connection
        app = app_of_queue(flight.queue)
        connection.push(encode_frame("push", appid=app, msgid=flight.msgid, content=flight.delivery.body))
        self.pushed += 1
        self._await_ack(flight)

    async def _connect(self, flight: Flight) -> Connection | None:
        while not flight.is_settling:
            connection = self._new_connection(flight)
            try:
                async with self._turns.turn(flight.address):
                    began_s = self._loop.time()
                    await self._open(flight, connection)
                    self._turns.connected(flight.address, self._loop.time() - began_s)
            except TimeoutError:
                # Busy with others of ours, it is not lost: the message waits for its turn, uncounted.
                if not await self._turns.wait_while_busy(flight.address):
                    self._lose(flight, "time-out")
            except OSError as error:
                self._lose(flight, str(error))
            else:
                return connection
        return None

    async def _open(self, flight: Flight, connection: Connection) -> None:
        async with asyncio.timeout(self._options.connect_timeout / 1000):
            await self._loop.create_connection(lambda: connection, flight.host, flight.port)

    def _lose(self, flight: Flight, reason: str) -> None:
        self._log.info("skmq_recipient_lost", recipient=flight.key, reason=reason)
        self._node.submit_call(["skmq_lose", flight.queue, flight.key, flight.address], lambda _: None)
        self._end(flight, UNREACHABLE)

    def _await_ack(self, flight: Flight) -> None:
        flight.stop_timer()
        wait_s = self._options.ack_timeout / 1000
        flight.timer = self._loop.call_later(wait_s, self._end, flight, SILENCE)

    def _split(self, flight: Flight) -> None:
        delivery = flight.delivery
        call = ["skmq_split", flight.queue, delivery.id, delivery.body]
        self._node.submit_call(call, partial(self._on_split, flight), len(delivery.body) + 200)

    def _on_split(self, flight: Flight, reply: list[Any]) -> None:
        delivery = flight.delivery
        match reply[1] if reply[0] else None:
            case "done":
                self._settle(flight, Ack(delivery))
            case "waits":
                self._settle(flight, look_again(delivery))
            case "nobody":
                self._end(flight, UNREACHABLE)
            case _:
                self._settle(flight, Park(delivery, After(_PAUSE_MS), Failure("NotSplit", str(reply))))

    # From the consumer's word to the queue

    def hear(self, verdict: Verdict, connection: Connection, answering: Answering) -> None:
        """A consumer said something about a message, on any connection."""
        flight = self._flights.meant(verdict.msgid, verdict.key, connection)
        self._carry_out(verdict, flight, connection.host, answering)

    def _carry_out(
        self,
        verdict: Verdict,
        flight: Flight | None,
        host: str,
        answering: Answering,
        tries: int = _MOST_TRIES,
    ) -> None:
        if flight is None:
            self._hear_of_stranger(verdict, host, answering, tries)
        elif verdict.feedback is Feedback.ARRIVED:
            self._arrived(flight)
            answering(ACK)
        else:
            flight.waiting.append(answering)
            if not flight.is_settling:
                self._end(flight, verdict.feedback.value)

    def _arrived(self, flight: Flight) -> None:
        if flight.is_settling:
            return
        self._await_ack(flight)
        if flight.connection is not None:
            wait_s = min(self._options.arrived_wait, self._options.ack_timeout) / 1000
            self._loop.call_later(wait_s, flight.connection.end)

    def _hear_of_stranger(
        self, verdict: Verdict, host: str, answering: Answering, tries: int = _MOST_TRIES
    ) -> None:
        """Nothing that we pushed: another gateway did, or this one before it was started anew."""
        rules = [self._options.retry_times, self._options.retry_delay]
        about = [verdict.feedback.value, verdict.msgid, [verdict.key, host], rules, self._consumer]

        def flight_by_now() -> Flight | None:
            return self._flights.attributed(verdict.msgid, verdict.key, host)

        def ask_again() -> None:
            self._carry_out(verdict, flight_by_now(), host, answering, tries - 1)

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

    def _end(self, flight: Flight, feedback: str) -> None:
        if not flight.is_settling:
            self._settle(flight, self._verdict(flight, feedback))

    def _verdict(self, flight: Flight, feedback: str) -> Settlement:
        settlement = settlement_of(feedback, flight.delivery, self._options.rules)
        if isinstance(settlement, Bury):
            self._log.warning("skmq_message_dead", queue=flight.queue, msgid=flight.msgid, reason=feedback)
            if self._options.dead_letter == "delete":
                return Ack(flight.delivery)
        return settlement

    def _settle(self, flight: Flight, settlement: Settlement) -> None:
        flight.is_settling = True
        flight.stop_timer()
        on_settled = partial(self._on_settled, flight, settlement)
        self._settle_with(flight.queue, settlement, on_settled)

    def _settle_with(
        self, queue: str, settlement: Settlement, on_settled: Callable[[bool], None] | None = None
    ) -> None:
        if self._work is not None:
            self._work.settle(queue, settlement, on_settled)

    def _on_settled(self, flight: Flight, settlement: Settlement, is_sure: bool) -> None:  # noqa: FBT001 - a callback
        self._flights.remove(flight)
        if self._emptied is not None and not self._flights.count:
            self._emptied.set()
        if flight.connection is not None:
            flight.connection.end()
            self._turns.freed(flight.address)
        waiting, flight.waiting = flight.waiting, []
        if not is_sure and isinstance(settlement, Ack):
            # Somebody took us for dead and released it, perhaps: then it waits again, and must not.
            for answering in waiting or [lambda _: None]:
                verdict = Verdict(Feedback.ACK, flight.msgid, flight.key if flight.is_copy else "")
                self._hear_of_stranger(verdict, flight.host, answering)
            return
        self._count(settlement)
        if isinstance(settlement, Ack | Bury):
            self._forget(flight.field, flight.delivery.id)
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
        if self._flights.count:
            self._emptied = asyncio.Event()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._emptied.wait(), grace_s)
        for flight in self._flights:
            if not flight.is_settling:
                self._settle(flight, Release(flight.delivery))
        await self._work.close()

    def _start(self, push: Any) -> None:  # noqa: ANN401 - a coroutine
        task = self._loop.create_task(push)
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)
