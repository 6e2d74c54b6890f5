"""A gateway's way in: `Desk` calls the broker and the dispatcher and brings their answers, in asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from mqworker.actors.gateway.call_batches import Door, OnReply
from mqworker.actors.gateway.errors import error_of
from mqworker.actors.gateway.size import size_of
from mqworker.model.clock import Clock

_SMALL_BYTES = 64


class Desk:
    """What a gateway does with the rest of mqworker. All in one event loop; nothing here blocks."""

    def __init__(self, clock: Clock, flush: Callable[[], None], watch: Callable[[], None]) -> None:
        """`flush` sends what the doors have gathered, `watch` tells the dispatcher who is waited for."""
        self.broker, self.dispatcher = Door(), Door()
        self._clock = clock
        self._flush = flush
        self._watch = watch
        self._is_flush_due = False
        self._wakers_by_queue: dict[str, list[Callable[[], None]]] = {}

    # Calls are given up only when it is long past the desk's own patience; see gateway_door.py.

    async def call(self, verb: str, *arguments: Any) -> Any:  # noqa: ANN401 - plain values, as the verb says
        """Have the broker carry out a verb; raises one of the MqworkerError family."""
        return await self._outcome(self.submit_call, [verb, *arguments])

    async def pop(self, verb: str, *arguments: Any) -> Any:  # noqa: ANN401 - as above
        """Have the dispatcher carry out a verb. Who is cancelled meanwhile may lose what was handed out."""
        return await self._outcome(self.submit_pop, [verb, *arguments])

    def submit_call(self, call: list[Any], on_reply: OnReply, size: int = _SMALL_BYTES) -> None:
        """As `call`, without a future: for gateways that make tens of thousands each second."""
        self.broker.submit(call, on_reply, size, self._clock.monotonic_ms())
        self._flush_soon()

    def submit_pop(self, call: list[Any], on_reply: OnReply, size: int = _SMALL_BYTES) -> None:
        """As `pop`, without a future."""
        self.dispatcher.submit(call, on_reply, size, self._clock.monotonic_ms())
        self._flush_soon()

    def watch(self, queue: str, waker: Callable[[], None]) -> None:
        """Call `waker` whenever there may be something in the queue; a lost wake-up is possible, so poll."""
        wakers = self._wakers_by_queue.setdefault(queue, [])
        wakers.append(waker)
        if len(wakers) == 1:
            self._watch()

    def unwatch(self, queue: str, waker: Callable[[], None]) -> None:
        """Call it no more."""
        wakers = self._wakers_by_queue.get(queue, [])
        if waker in wakers:
            wakers.remove(waker)
        if not wakers and self._wakers_by_queue.pop(queue, None) is not None:
            self._watch()

    def watched_queues(self) -> list[str]:
        """All queues that somebody waits at."""
        return sorted(self._wakers_by_queue)

    def wake(self, queues: Iterable[str]) -> None:
        """There may be something in these queues."""
        for queue in queues:
            for waker in list(self._wakers_by_queue.get(queue, ())):
                waker()

    def _flush_soon(self) -> None:
        """One mail for all calls of this turn of the event loop."""
        if not self._is_flush_due:
            self._is_flush_due = True
            asyncio.get_running_loop().call_soon(self._flush_now)

    def _flush_now(self) -> None:
        self._is_flush_due = False
        self._flush()

    async def _outcome(self, submit: Callable[[list[Any], OnReply, int], None], call: list[Any]) -> Any:  # noqa: ANN401 - as above
        future: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()

        def resolve(reply: list[Any]) -> None:
            if not future.done():
                future.set_result(reply)

        submit(call, resolve, size_of(call))
        return outcome_of(await future)


def outcome_of(reply: list[Any]) -> Any:  # noqa: ANN401 - plain values
    """The value of a reply, or its error raised."""
    if reply[0]:
        return reply[1]
    raise error_of(reply[1], reply[2])
