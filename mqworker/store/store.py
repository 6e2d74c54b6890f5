"""The store: runs calls of scripts on a server, one round trip for as many as there are, again if need be."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, TypeVar

from mqworker.errors import MqworkerError, StoreFull, StoreRefused, StoreUnavailable
from mqworker.model.clock import Clock, SystemClock
from mqworker.model.quarantine import Quarantine
from mqworker.store.command import NO_SCRIPT, Command, Reply, ReplyError
from mqworker.store.exchange import Exchange, decoded
from mqworker.store.group_commit import Entry, GroupCommit
from mqworker.store.lanes import LanePool
from mqworker.store.link.connection import Connection
from mqworker.store.link.retrying import in_view_of, pause_before_retry_ms
from mqworker.store.procedure import Procedure, Read, ResultT, Step
from mqworker.store.script import Call, RawReply

ReplyT = TypeVar("ReplyT")

DEFAULT_RETRY_FOR_MS = 10_000


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
        """Whoever reads through this store notes here what he had to skip."""
        self._connection = connection
        self._retry_for_ms = retry_for_ms
        self._clock = clock or SystemClock()
        self._bring_up = bring_up
        self._lanes = LanePool()
        self._chance = random.SystemRandom()

    @property
    def connection(self) -> Connection:
        """The connection underneath, for subscriptions and checks."""
        return self._connection

    def run(self, call: Call[ReplyT]) -> ReplyT:
        """Run one script and give its decoded reply. What an `Exchange` does, without the list around it."""
        lane = self._lanes.take() if call.is_numbered else None
        numbering = None if lane is None else lane.next_call()
        key = call.keys[0]
        (reply,) = self._send((call.command(numbering),), key)
        while isinstance(reply, ReplyError) and reply.code == NO_SCRIPT:
            (reply,) = self._send((call.command_with_source(numbering),), key)
        if lane is not None:
            self._lanes.give_back(lane)
        result: ReplyT = decoded(call, reply)
        return result

    def run_together(self, calls: Sequence[Call[Any]]) -> list[Any]:
        """Run scripts of one queue in one round trip, in order. Each is atomic; together they are not."""
        exchange = Exchange(calls, self._lanes)
        while not exchange.take_replies(self._send(exchange.commands(), exchange.key)):
            pass
        return exchange.results()

    def begin(self, calls: Sequence[Call[Any]]) -> Exchange:
        """Number calls of one queue for a round trip that the caller repeats itself, by `attempt`."""
        return Exchange(calls, self._lanes)

    def attempt(self, exchange: Exchange) -> list[Any]:
        """Send an exchange once. After StoreUnavailable it may be attempted again: nothing happens twice."""
        while not exchange.take_replies(self._connection.execute(exchange.commands(), exchange.key)):
            pass
        return exchange.results()

    def attempt_each(self, exchanges: Sequence[Exchange]) -> list[list[Any] | MqworkerError]:
        """Send exchanges of several queues once, together; of each its results, or its own trouble."""
        outcomes: dict[int, list[Any] | MqworkerError] = {}
        while len(outcomes) < len(exchanges):
            waiting = [at for at in range(len(exchanges)) if at not in outcomes]
            parts = [exchanges[at].commands() for at in waiting]
            keys = [exchanges[at].key for at, part in zip(waiting, parts, strict=True) for _ in part]
            replies = iter(self._connection.execute_each([each for part in parts for each in part], keys))
            for at, part in zip(waiting, parts, strict=True):
                outcome = exchanges[at].take_outcome(list(islice(replies, len(part))))
                if outcome is not None:
                    outcomes[at] = outcome
        return [outcomes[at] for at in range(len(exchanges))]

    def commit(self, entries: Sequence[Entry]) -> None:
        """Send the steps of many callers once, together; each entry has its outcome afterwards."""
        group = GroupCommit(entries)
        while not group.is_complete:
            group.take_replies(self._connection.execute_each(*group.commands()))

    def follow(self, procedure: Procedure[ResultT]) -> ResultT:
        """Carry out a procedure to its end and give its result."""
        try:
            step = next(procedure)
            while True:
                step = procedure.send(self._answer(step))
        except StopIteration as end:
            result: ResultT = end.value
            return result

    def read(self, commands: Sequence[Command], key: str | None) -> list[Reply]:
        """Plain commands that only read; they may be sent again."""
        return self._send(commands, key)

    def read_each(
        self, commands: Sequence[Command], keys: Sequence[str | None]
    ) -> list[Reply | MqworkerError]:
        """Plain commands that only read, of many queues, once: of each its reply, or its own trouble."""
        return self._connection.execute_each(commands, keys)

    def close(self) -> None:
        """Close the connections."""
        self._connection.close()

    def _answer(self, step: Step) -> RawReply:
        if isinstance(step, Read):
            return self._send(step.commands, step.key)
        return self.run(step)

    def _send(self, commands: Sequence[Command], key: str | None) -> list[Reply]:
        began_ms, tries = self._clock.monotonic_ms(), 0
        earlier: StoreUnavailable | None = None  # a try that may have been carried out
        while True:
            try:
                return self._connection.execute(commands, key)
            except (StoreFull, StoreRefused) as error:
                raise in_view_of(earlier, error) from error
            except StoreUnavailable as error:
                waited_ms = self._clock.monotonic_ms() - began_ms
                pause_ms = pause_before_retry_ms(tries, waited_ms, self._retry_for_ms, self._chance)
                if pause_ms is None:
                    raise in_view_of(earlier, error) from error
                earlier = error if error.maybe_executed else earlier
                if tries == 0 and self._bring_up is not None:
                    self._bring_up()
                tries += 1
                time.sleep(pause_ms / 1000)
