"""The store: runs calls of scripts on a server, one round trip for as many as there are, again if need be."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from itertools import islice
from types import TracebackType
from typing import Any, Self, TypeVar

from mqworker.errors import MqworkerError, StoreFull, StoreRefused, StoreUnavailable
from mqworker.model.clock import Clock, SystemClock
from mqworker.model.quarantine import Quarantine
from mqworker.store.command import Command, Reply
from mqworker.store.exchange import Entry, Exchange, GroupCommit, LanePool, Request
from mqworker.store.link.address import parse_address
from mqworker.store.link.connection import Connection, open_connection
from mqworker.store.link.options import DEFAULT_LIMITS
from mqworker.store.outage import DEFAULT_RETRY_FOR_MS, Tries
from mqworker.store.procedure import Commands, Procedure, ResultT, Step
from mqworker.store.script import Call, RawReply

ReplyT = TypeVar("ReplyT")


class Store:
    """Synchronous access to Redis. Safe between threads; a forked child may go on using it."""

    def __init__(
        self,
        connection: Connection,
        *,
        retry_for_ms: int = DEFAULT_RETRY_FOR_MS,
        clock: Clock | None = None,
        bring_up: Callable[[], object] | None = None,
        quarantine: Quarantine | None = None,
    ) -> None:
        """`bring_up` is called before the first retry of a call: it may start a server that was stopped."""
        self.quarantine = quarantine or Quarantine()
        """Readers note here the entries that they had to skip."""
        self.after_round_trip: Callable[[], object] | None = None
        """Called when a server answered, or did not in time: for what cannot wait until a turn ends."""
        self._connection = connection
        self._retry_for_ms = retry_for_ms
        self._clock = clock or SystemClock()
        self._bring_up = bring_up
        self._lanes = LanePool()
        self._chance = random.SystemRandom()

    @classmethod
    def from_url(cls, url: str) -> Self:
        """A store on the server of `url`; the first call opens the first connection."""
        connection = open_connection(
            parse_address(url),
            connect_timeout_s=DEFAULT_LIMITS.connect_timeout_s,
            read_timeout_s=DEFAULT_LIMITS.read_timeout_s,
            client_name=DEFAULT_LIMITS.client_name,
        )
        return cls(connection)

    @property
    def connection(self) -> Connection:
        """The connection underneath, for subscriptions and checks."""
        return self._connection

    def run(self, call: Call[ReplyT]) -> ReplyT:
        """Run one script and give its decoded reply. What an `Exchange` does, without the list around it."""
        lane = self._lanes.take() if call.is_numbered else None
        request = Request(call, None if lane is None else lane.next_call())
        while not request.take(self.send(request.commands(), call.keys[0])):
            pass
        if lane is not None:
            self._lanes.give_back(lane)
        result: ReplyT = request.answer()
        return result

    def run_together(self, calls: Sequence[Call[Any]]) -> list[Any]:
        """Run scripts of one queue in one round trip, in order. Each is atomic; together they are not."""
        exchange = Exchange(calls, self._lanes)
        while not exchange.take_replies(self.send(exchange.commands(), exchange.key)):
            pass
        return exchange.results()

    def begin(self, calls: Sequence[Call[Any]]) -> Exchange:
        """Number calls of one queue for a round trip that the caller repeats itself, by `attempt`."""
        return Exchange(calls, self._lanes)

    def attempt(self, exchange: Exchange) -> list[Any]:
        """Send an exchange once. After StoreUnavailable it may be attempted again: nothing happens twice."""
        while not exchange.take_replies(self._execute(exchange.commands(), exchange.key)):
            pass
        return exchange.results()

    def attempt_each(self, exchanges: Sequence[Exchange]) -> list[list[Any] | MqworkerError]:
        """Send exchanges of several queues once, together; of each its results, or its own trouble."""
        outcomes: dict[int, list[Any] | MqworkerError] = {}
        while len(outcomes) < len(exchanges):
            waiting = [at for at in range(len(exchanges)) if at not in outcomes]
            parts = [exchanges[at].commands() for at in waiting]
            keys = [exchanges[at].key for at, part in zip(waiting, parts, strict=True) for _ in part]
            replies = iter(self._execute_each([each for part in parts for each in part], keys))
            for at, part in zip(waiting, parts, strict=True):
                outcome = exchanges[at].take_outcome(list(islice(replies, len(part))))
                if outcome is not None:
                    outcomes[at] = outcome
        return [outcomes[at] for at in range(len(exchanges))]

    def commit(self, entries: Sequence[Entry]) -> None:
        """Send the steps of many callers once, together; each entry has its outcome afterwards."""
        group = GroupCommit(entries)
        while not group.is_complete:
            group.take_replies(self._execute_each(*group.commands()))

    def follow(self, procedure: Procedure[ResultT]) -> ResultT:
        """Carry out a procedure to its end and give its result."""
        try:
            step = next(procedure)
            while True:
                step = procedure.send(self._answer(step))
        except StopIteration as end:
            result: ResultT = end.value
            return result

    def send(self, commands: Sequence[Command], key: str | None) -> list[Reply]:
        """Send plain commands: reads, and writes that do no harm when they are sent twice."""
        tries = Tries(self._retry_for_ms, self._clock, self._chance)
        while True:
            try:
                return self._execute(commands, key)
            except (StoreFull, StoreRefused) as error:
                raise tries.final(error) from error
            except StoreUnavailable as error:
                pause_ms = tries.pause_ms(error)
                if tries.has_failed_once and self._bring_up is not None:
                    self._bring_up()
                time.sleep(pause_ms / 1000)

    def send_each(
        self, commands: Sequence[Command], keys: Sequence[str | None]
    ) -> list[Reply | MqworkerError]:
        """Send plain commands for many queues, once: of each command its reply, or its own trouble."""
        return self._execute_each(commands, keys)

    def close(self) -> None:
        """Close the connections."""
        self._connection.close()

    def _answer(self, step: Step) -> RawReply:
        if isinstance(step, Commands):
            return self.send(step.commands, step.key)
        return self.run(step)

    def _execute(self, commands: Sequence[Command], key: str | None) -> list[Reply]:
        try:
            return self._connection.execute(commands, key)
        finally:
            self._note_round_trip()

    def _execute_each(
        self, commands: Sequence[Command], keys: Sequence[str | None]
    ) -> list[Reply | MqworkerError]:
        try:
            return self._connection.execute_each(commands, keys)
        finally:
            self._note_round_trip()

    def _note_round_trip(self) -> None:
        if self.after_round_trip is not None:
            self.after_round_trip()


class StoreClient:
    """What the clients of a store have in common: `close`, and `with`."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.owns_store = False
        """Whether `close` closes the store: `from_url` opened it."""

    def close(self) -> None:
        """Close the store that `from_url` opened; a store that was given stays the caller's."""
        if self.owns_store:
            self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
