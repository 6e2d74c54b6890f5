"""A dispatcher without processes and without Redis, for tests that look at its mail and its calls."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from mqworker.actors.actor import SUPERVISOR, Post
from mqworker.actors.dispatcher.adoption import Predecessor
from mqworker.actors.dispatcher.dispatcher import Dispatcher
from mqworker.actors.dispatcher.foreign_queue import ForeignQueues
from mqworker.actors.dispatcher.queue import LARGEST_CLAIM, DispatchedQueues
from mqworker.actors.early_start.tickets import Tickets
from mqworker.actors.mail import DeliveriesFinished, Mail, PeerAttached, RunDeliveries, WorkerReady
from mqworker.actors.run_slot import RunSlots
from mqworker.errors import MqworkerError, StoreUnavailable
from mqworker.log import get_logger
from mqworker.model.names import ConsumerName
from mqworker.model.quarantine import Quarantine
from mqworker.queues.work.calls import WorkQueueOptions
from mqworker.store.script import Call, RawReply
from mqworker.store.store import Store

HELD = "mqw:{default}:held:node-1"


class ScriptedStore:
    """Answers claims from a list of records and remembers what was settled; can be away."""

    def __init__(self) -> None:
        self.line: list[bytes] = []
        self.settled: list[tuple[Any, ...]] = []
        self.attempts: list[Sequence[Call[Any]]] = []
        self.is_away = False
        self.trouble: Exception | None = None
        self.held: dict[int, bytes] = {}
        """What the server thinks the dispatcher holds, when it looks."""
        self.cancelled: set[bytes] = set()
        """Ids of messages that somebody asked to stop."""
        self.connection = self
        self.quarantine = Quarantine()
        self.channels: frozenset[str] = frozenset()
        self.calls: list[tuple[str, bytes]] = []
        """What is called out and not heard yet."""
        self.offers: list[list[str]] = []
        """A ticket for each that could begin at once, as the claims said."""
        self.ran: list[Call[Any]] = []
        """Calls that were not part of an exchange."""
        self.run_trouble: Exception | None = None
        self.is_lease_lost = False
        self._fence = 0
        self._record_by_fence: dict[int, bytes] = {}

    def subscribe(self, channels: Sequence[str]) -> ScriptedStore:
        self.channels = frozenset(channels)
        return self

    def get(self, _timeout_s: float) -> tuple[str, bytes] | None:
        return self.calls.pop(0) if self.calls else None

    def take(self, timeout_s: float) -> tuple[str, bytes] | None:
        return self.get(timeout_s)

    def close(self) -> None:
        self.calls.clear()

    def fileno(self) -> int:
        return -1

    def send(self, commands: Sequence[Sequence[Any]], _key: str) -> list[Any]:
        if self.is_away:
            raise StoreUnavailable("away")
        return [self._read(*command) for command in commands]

    def _read(self, name: str, key: str, *fields: Any) -> list[Any]:  # noqa: ANN401 - as redis takes them
        if name == "HKEYS":
            return [str(fence).encode() for fence in self.held]
        if ":results" in key:
            return [b"X" if field in self.cancelled else None for field in fields]
        return [self.held.get(fence) for fence in fields]

    def send_each(self, commands: Sequence[Sequence[Any]], keys: Sequence[str]) -> list[Any]:
        return [self.send([command], key)[0] for command, key in zip(commands, keys, strict=True)]

    def run(self, call: Call[Any]) -> bytes | None:
        """Only begin_probation."""
        if self.run_trouble is not None:
            raise self.run_trouble
        self.ran.append(call)
        record = self._record_by_fence[int(call.arguments[0])]
        mark = bytes([ord("A") + int(record[23:24], 36)])
        return None if self.is_lease_lost else record[:23] + mark + record[24:]

    def begin(self, calls: Sequence[Call[Any]]) -> Sequence[Call[Any]]:
        return list(calls)

    def attempt(self, calls: Sequence[Call[Any]]) -> list[Any]:
        self.attempts.append(calls)
        if self.is_away:
            raise StoreUnavailable("away")
        if self.trouble is not None:
            raise self.trouble
        return [self._answer(call) for call in calls]

    def attempt_each(self, exchanges: Sequence[Sequence[Call[Any]]]) -> list[list[Any] | MqworkerError]:
        outcomes: list[list[Any] | MqworkerError] = []
        for calls in exchanges:
            try:
                outcomes.append(self.attempt(calls))
            except MqworkerError as trouble:
                outcomes.append(trouble)
        return outcomes

    def _answer(self, call: Call[Any]) -> RawReply:
        if call.script.name == "claim":
            count = int(call.arguments[1])
            self.offers.append(str(call.arguments[5]).split())
            taken, self.line = self.line[:count], self.line[count:]
            first, self._fence = self._fence + 1, self._fence + len(taken)
            self._record_by_fence |= dict(enumerate(taken, first))
            return list(enumerate(taken, first))
        self.settled.append(call.arguments)
        return []


def no_foreign_queues() -> ForeignQueues:
    return ForeignQueues(
        ConsumerName("node-1"),
        WorkQueueOptions(),
        open_store=lambda: pytest.fail("no queue of another model is there"),
        max_crashes=3,
        log=get_logger(),
    )


class Stage:
    """A dispatcher with a clock and workers that say what they were told."""

    def __init__(self, directory: Path, predecessor: Predecessor | None = None) -> None:
        self.store = ScriptedStore()
        self.slots = RunSlots(str(directory / "slots"))
        self.tickets = Tickets(str(directory / "slots"))
        foreign_queues = no_foreign_queues()
        self.now_ms = 1_000
        self.dispatcher = Dispatcher(
            cast(Store, self.store),
            DispatchedQueues([], ConsumerName("node-1"), WorkQueueOptions(), foreign_queues),
            foreign_queues,
            slots=self.slots,
            tickets=self.tickets,
            log=get_logger(),
            predecessor=predecessor,
        )

    def mail(self, mail: Mail, sender: str = SUPERVISOR) -> None:
        self.dispatcher.handle(mail, sender, self.now_ms)

    def hire(self, *workers: str, **tasks: dict[str, Any]) -> None:
        known = {
            name: {"async": False, "once": False, "limited": False, "retries": 3} | task
            for name, task in tasks.items()
        }
        for task in known.values():
            task["queue"] = "default"
        for worker in workers:
            self.mail(PeerAttached(worker))
            self.mail(WorkerReady(known, {"default": {"weight": 1}}, 1, 1), worker)
        self.set_appetite(LARGEST_CLAIM)

    def set_appetite(self, count: int) -> None:
        """As if so many had found a worker the last time."""
        self.dispatcher._queues["default"]._appetite = count

    def turn(self, passed_ms: int = 0) -> list[Post]:
        self.now_ms += passed_ms
        return list(self.dispatcher.turn(self.now_ms))

    def finish(self, worker: str, post: Post, run_ms: float = 0.01) -> None:
        batch = cast(RunDeliveries, post.mail)
        total = (len(batch.fences), run_ms * len(batch.fences))
        report = DeliveriesFinished(batch.queue, batch.fences, ["done", *batch.fences], {"task": total})
        self.mail(report, worker)

    def hand_over(self, fence: int, record: bytes, ticket: str = "", queue: str = "default") -> None:
        """As enqueue.lua does; without a ticket, for a place where no worker may start early."""
        if not ticket:
            (ticket,) = self.dispatcher._queues[queue].places.offer(["-"])
        self.store.calls.append(
            (f"mqw:{{{queue}}}:held:node-1", b"%d %b %b" % (fence, ticket.encode(), record))
        )


def a_record(number: int, *, crashes: int = 0) -> bytes:
    return b"17000000000000--3000000%02did%d task body" % (crashes, number)
