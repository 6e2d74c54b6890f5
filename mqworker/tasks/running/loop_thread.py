"""The event loop of a worker, in a thread of its own: async tasks, async providers, async lifespans."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, Protocol, TypeVar

from mqworker.errors import MqworkerError

T = TypeVar("T")


class LoopHome(Protocol):
    """Where an event loop runs, as sync code sees it."""

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """Run it on the loop and wait for its end; if the caller is interrupted, it is cancelled."""


class LoopThread:
    """Started when first needed; most workers run no async code."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_closing = False

    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop, which runs."""
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(
                    target=self._turn, args=(self._loop,), name="async-tasks", daemon=True
                ).start()
            return self._loop

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """Run it on the loop and wait; for any thread but the loop's."""
        future = asyncio.run_coroutine_threadsafe(work, self.loop())
        try:
            return future.result()
        except BaseException:
            future.cancel()  # of no effect where it ended by itself
            raise

    def close(self) -> None:
        """Stop it; what still runs there is not waited for."""
        self._is_closing = True
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)

    def _turn(self, loop: asyncio.AbstractEventLoop) -> None:
        while not self._is_closing:  # a task that stops the loop must not stop the others for ever
            loop.run_forever()


class OwnLoop:
    """A loop in the caller's own thread, which turns while somebody waits. For calls without a worker."""

    def __init__(self) -> None:
        self._runner: asyncio.Runner | None = None

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """Run it here. Raises `MqworkerError` where another event loop runs already."""
        if is_loop_running():
            work.close()
            raise MqworkerError(
                "async code is to be waited for, and an event loop runs here already; accepted is the call "
                "from a thread without one, or that of the async twin"
            )
        if self._runner is None:
            self._runner = asyncio.Runner()
        return self._runner.run(work)

    def close(self) -> None:
        """Close the loop, if there was one."""
        runner, self._runner = self._runner, None
        if runner is not None:
            runner.close()


def is_loop_running() -> bool:
    """Whether this thread is inside of an event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
