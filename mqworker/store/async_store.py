"""The store for asyncio: the same exchanges, awaited."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from mqworker.errors import StoreFull, StoreRefused, StoreUnavailable
from mqworker.model.clock import Clock, SystemClock
from mqworker.store.command import Command, Reply
from mqworker.store.exchange import Exchange
from mqworker.store.lanes import LanePool
from mqworker.store.link.async_connection import AsyncConnection
from mqworker.store.link.retrying import in_view_of, pause_before_retry_ms
from mqworker.store.procedure import Procedure, Read, ResultT, Step
from mqworker.store.script import Call, RawReply
from mqworker.store.store import DEFAULT_RETRY_FOR_MS

ReplyT = TypeVar("ReplyT")


class AsyncStore:
    """Asynchronous access to Redis, for one event loop."""

    def __init__(
        self,
        connection: AsyncConnection,
        *,
        retry_for_ms: int = DEFAULT_RETRY_FOR_MS,
        clock: Clock | None = None,
        bring_up: Callable[[], object] | None = None,
    ) -> None:
        """`bring_up` is called before the first retry of a call: it may start a server that was stopped."""
        self._connection = connection
        self._retry_for_ms = retry_for_ms
        self._clock = clock or SystemClock()
        self._bring_up = bring_up
        self._lanes = LanePool()
        self._chance = random.SystemRandom()

    @property
    def connection(self) -> AsyncConnection:
        """The connection underneath, for whoever asks once and without patience."""
        return self._connection

    async def run(self, call: Call[ReplyT]) -> ReplyT:
        """Run one script and give its decoded reply."""
        result: ReplyT = (await self.run_together([call]))[0]
        return result

    async def run_together(self, calls: Sequence[Call[Any]]) -> list[Any]:
        """Run scripts of one queue in one round trip, in order. Each is atomic; together they are not."""
        exchange = Exchange(calls, self._lanes)
        while not exchange.take_replies(await self._send(exchange.commands(), exchange.key)):
            pass
        return exchange.results()

    def begin(self, calls: Sequence[Call[Any]]) -> Exchange:
        """Number calls of one queue for a round trip that the caller repeats itself, by `attempt`."""
        return Exchange(calls, self._lanes)

    async def attempt(self, exchange: Exchange) -> list[Any]:
        """Send an exchange once. After StoreUnavailable it may be attempted again: nothing happens twice."""
        while not exchange.take_replies(await self._connection.execute(exchange.commands(), exchange.key)):
            pass
        return exchange.results()

    async def follow(self, procedure: Procedure[ResultT]) -> ResultT:
        """Carry out a procedure to its end and give its result."""
        try:
            step = next(procedure)
            while True:
                step = procedure.send(await self._answer(step))
        except StopIteration as end:
            result: ResultT = end.value
            return result

    async def read(self, commands: Sequence[Command], key: str | None) -> list[Reply]:
        """Plain commands that only read; they may be sent again."""
        return await self._send(commands, key)

    async def close(self) -> None:
        """Close the connections."""
        await self._connection.close()

    async def _answer(self, step: Step) -> RawReply:
        if isinstance(step, Read):
            return await self._send(step.commands, step.key)
        return await self.run(step)

    async def _send(self, commands: Sequence[Command], key: str | None) -> list[Reply]:
        began_ms, tries = self._clock.monotonic_ms(), 0
        earlier: StoreUnavailable | None = None  # a try that may have been carried out
        while True:
            try:
                return await self._connection.execute(commands, key)
            except (StoreFull, StoreRefused) as error:
                raise in_view_of(earlier, error) from error
            except StoreUnavailable as error:
                waited_ms = self._clock.monotonic_ms() - began_ms
                pause_ms = pause_before_retry_ms(tries, waited_ms, self._retry_for_ms, self._chance)
                if pause_ms is None:
                    raise in_view_of(earlier, error) from error
                earlier = error if error.maybe_executed else earlier
                if tries == 0 and self._bring_up is not None:
                    await asyncio.to_thread(self._bring_up)
                tries += 1
                await asyncio.sleep(pause_ms / 1000)
