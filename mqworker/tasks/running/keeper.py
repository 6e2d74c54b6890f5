"""Keeper: holds an async generator open in a task of its own, so that it ends in the task it began in.

Task groups and cancel scopes insist on that; a pool that is opened by one run and closed when the worker ends
would otherwise be closed by somebody else.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any

from mqworker.errors import DidNotYield


class Keeper:
    """One async generator: `open` gives what it yields, `close` lets it go on to its end."""

    # Any: whatever the application yields.
    def __init__(
        self, generator: AsyncGenerator[Any, Any], on_lost: Callable[[BaseException], object] | None = None
    ) -> None:
        """`on_lost` hears of one that came to its end by itself, such as a task group whose task failed."""
        self._generator = generator
        self._on_lost = on_lost
        self._task: asyncio.Task[None] | None = None
        self._opened: asyncio.Future[Any] | None = None
        self._closing: asyncio.Future[tuple[Any, BaseException | None]] | None = None

    async def open(self) -> Any:  # noqa: ANN401 - see above
        """What it yields. Raises what it raised, or `DidNotYield`."""
        loop = asyncio.get_running_loop()
        self._opened, self._closing = loop.create_future(), loop.create_future()
        self._task = loop.create_task(self._keep(self._opened, self._closing))
        return await asyncio.shield(self._opened)

    async def close(self, value: Any = None, error: BaseException | None = None) -> None:  # noqa: ANN401
        """Let it go on, with the value or with the error; over when it has ended. Raises what it raises."""
        if self._task is None or self._opened is None or self._closing is None:
            return
        if not self._opened.done():
            self._task.cancel()  # whoever wanted it is gone
        elif not self._closing.done():
            self._closing.set_result((value, error))
        await asyncio.wait([self._task])
        if not self._task.cancelled() and (raised := self._task.exception()) is not None:
            raise raised

    async def _keep(
        self, opened: asyncio.Future[Any], closing: asyncio.Future[tuple[Any, BaseException | None]]
    ) -> None:
        try:
            opened.set_result(await anext(self._generator))
        except StopAsyncIteration:
            opened.set_exception(DidNotYield("came to its end without a yield"))
            return
        except BaseException as error:
            if not isinstance(error, Exception):
                opened.cancel()
                raise
            opened.set_exception(error)
            return
        try:
            value, reason = await closing
        except asyncio.CancelledError as cancelled:  # by a task group inside of it, as a rule
            await self._lost(cancelled)
            return
        await finish_async(self._generator, value, reason)

    async def _lost(self, cancelled: BaseException) -> None:
        try:
            await finish_async(self._generator, None, cancelled)
        except BaseException as error:
            if self._on_lost is None or error is cancelled:
                raise
            self._on_lost(error)


# Any: as above.
async def finish_async(
    generator: AsyncGenerator[Any, Any],
    value: Any,  # noqa: ANN401
    error: BaseException | None,
) -> None:
    """Let an async generator go on to its end: with the value, or with the error at its yield."""
    try:
        await (generator.asend(value) if error is None else generator.athrow(error))
    except StopAsyncIteration:
        return
    await generator.aclose()
    raise RuntimeError("a generator yields twice; accepted is one yield")
