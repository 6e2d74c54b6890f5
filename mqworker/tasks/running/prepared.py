"""A task as the runner needs it: everything that is the same for all its deliveries, worked out once."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import copy_context
from types import FrameType
from typing import Any

from mqworker.errors import InvalidMessage, TaskTimeout
from mqworker.model.envelope import Envelope, decode_call
from mqworker.model.value_codec import PACKED_NONE, NotAccepted, Value, pack
from mqworker.model.value_problem import problem_with
from mqworker.tasks.context import Context
from mqworker.tasks.registry import TaskDefinition


class CallRefused(InvalidMessage):
    """The call was made for another version of the task; somebody else may know that one."""


class ResultRefused(Exception):
    """What a task returned cannot be kept. Tells the reason as it stands in the dead letter."""

    def __init__(self, reason: str, problem: str) -> None:
        super().__init__(problem)
        self.reason = reason


class PreparedTask:
    """One task, ready to run."""

    __slots__ = (
        "_accepts",
        "_binding",
        "_function",
        "_has_rebuilds",
        "_takes_context",
        "_timeout_ms",
        "definition",
        "hard_timeout_ms",
        "has_lease",
        "is_async",
        "keeps_result",
    )

    def __init__(self, definition: TaskDefinition, result_ttl_ms: int) -> None:
        self.definition = definition
        self.is_async = definition.is_async
        self.hard_timeout_ms = definition.options.hard_timeout_ms
        self.has_lease = definition.options.delivery != "at_most_once"
        self.keeps_result = result_ttl_ms > 0
        self._function = definition.function
        self._binding = definition.binding
        self._accepts = definition.binding.positional_counts
        self._has_rebuilds = bool(definition.rebuilds)
        self._takes_context = definition.binding.takes_context
        self._timeout_ms = definition.options.timeout_ms

    def open(self, body: bytes) -> Envelope:
        """The call in a body, fit for the function. Raises `InvalidMessage`, `CallRefused`."""
        envelope = decode_call(body)
        try:
            if envelope.kwargs or len(envelope.args) not in self._accepts:
                self._binding.accept(envelope.args, envelope.kwargs)
            if self._has_rebuilds:
                self.definition.rebuild(envelope.args, envelope.kwargs)
        except InvalidMessage as error:
            raise CallRefused(str(error)) from error
        return envelope

    def call(self, envelope: Envelope, context: Context) -> Value:
        """Run the function in this thread, within its time; the context variables it sets end with it."""
        if self._takes_context:
            self._binding.inject(envelope.args, envelope.kwargs, context)
        timeout_ms = envelope.timeout_ms or self._timeout_ms
        if timeout_ms is None:
            return copy_context().run(self._function, *envelope.args, **envelope.kwargs)
        with alarm(timeout_ms, self.definition.name):
            return copy_context().run(self._function, *envelope.args, **envelope.kwargs)

    async def acall(self, envelope: Envelope, context: Context) -> Any:  # noqa: ANN401 - the user's value
        """Run the coroutine function on this event loop, within its time."""
        self._binding.inject(envelope.args, envelope.kwargs, context)
        timeout_ms = envelope.timeout_ms or self._timeout_ms
        if timeout_ms is None:
            return await self._function(*envelope.args, **envelope.kwargs)
        limit = asyncio.timeout(timeout_ms / 1000)
        try:
            async with limit:
                return await self._function(*envelope.args, **envelope.kwargs)
        except TimeoutError as error:
            if limit.expired():
                raise TaskTimeout(
                    f"{self.definition.name} ran longer than {timeout_ms / 1000:g} s"
                ) from error
            raise


def encode_result(value: Value, max_bytes: int) -> bytes:
    """The bytes that are kept of a result. Raises `ResultRefused`: a result is never silently dropped."""
    if value is None:  # of most tasks it is only asked whether they are done
        return PACKED_NONE
    try:
        result = pack(value)
    except NotAccepted as refused:
        problem = problem_with("the result", value) or f"the result cannot be kept: {refused}"
        raise ResultRefused("result_not_accepted", problem) from refused
    if len(result) > max_bytes:
        problem = f"the result is {len(result):,} bytes; accepted are up to {max_bytes:,}"
        raise ResultRefused("result_too_large", problem)
    return result


@contextmanager
def alarm(timeout_ms: int, task: str) -> Iterator[None]:
    """Raise `TaskTimeout` in the block when it takes longer."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    is_running = True

    def ring(_number: int, _frame: FrameType | None) -> None:
        if is_running:  # else it rang in the instant after the end
            raise TaskTimeout(f"{task} ran longer than {timeout_ms / 1000:g} s")

    previous = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, timeout_ms / 1000)
    try:
        yield
    finally:
        is_running = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
