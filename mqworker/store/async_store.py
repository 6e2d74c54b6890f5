"""The store for asyncio: the same exchanges, awaited."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from mqworker.errors import StoreFull, StoreRefused, StoreUnavailable
from mqworker.model.clock import Clock, SystemClock
from mqworker.store.command import Command, Reply
from mqworker.store.exchange import Exchange, LanePool
from mqworker.store.link.address import parse_address
from mqworker.store.link.async_connection import AsyncConnection, open_async_connection
from mqworker.store.link.options import DEFAULT_LIMITS
from mqworker.store.outage import DEFAULT_RETRY_FOR_MS, Tries
from mqworker.store.procedure import Commands, Procedure, ResultT, Step
from mqworker.store.script import Call, RawReply

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

    @classmethod
    def from_url(cls, url: str) -> Self:
        """A store on the server of `url`; the first call opens the first connection."""
        connection = open_async_connection(
            parse_address(url),
            connect_timeout_s=DEFAULT_LIMITS.connect_timeout_s,
            read_timeout_s=DEFAULT_LIMITS.read_timeout_s,
            client_name=DEFAULT_LIMITS.client_name,
        )
        return cls(connection)

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

    async def close(self) -> None:
        """Close the connections."""
        await self._connection.close()

    async def _answer(self, step: Step) -> RawReply:
        if isinstance(step, Commands):
            return await self._send(step.commands, step.key)
        return await self.run(step)

    async def _send(self, commands: Sequence[Command], key: str | None) -> list[Reply]:
        tries = Tries(self._retry_for_ms, self._clock, self._chance)
        while True:
            try:
                return await self._connection.execute(commands, key)
            except (StoreFull, StoreRefused) as error:
                raise tries.final(error) from error
            except StoreUnavailable as error:
                pause_ms = tries.pause_ms(error)
                if tries.has_failed_once and self._bring_up is not None:
                    await asyncio.to_thread(self._bring_up)
                await asyncio.sleep(pause_ms / 1000)


class AsyncStoreClient:
    """What the asynchronous clients of a store have in common: `close`, and `async with`."""

    def __init__(self, store: AsyncStore) -> None:
        self.store = store
        self.owns_store = False
        """Whether `close` closes the store: `from_url` opened it."""

    async def close(self) -> None:
        """Close the store that `from_url` opened; a store that was given stays the caller's."""
        if self.owns_store:
            await self.store.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
