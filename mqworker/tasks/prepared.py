"""A task as the runner needs it: everything that is the same for all its deliveries, worked out once."""

from __future__ import annotations

import asyncio
from typing import Any

from mqworker.errors import TaskTimeout
from mqworker.model.envelope import Envelope, decode_call
from mqworker.model.value_codec import NotAccepted, Value, pack
from mqworker.model.value_problem import problem_with
from mqworker.tasks.context import Context
from mqworker.tasks.registry import TaskDefinition
from mqworker.tasks.soft_timeout import alarm


class ResultRefused(Exception):
    """What a task returned cannot be kept. Tells the reason as it stands in the dead letter."""

    def __init__(self, reason: str, problem: str) -> None:
        super().__init__(problem)
        self.reason = reason


class PreparedTask:
    """One task, ready to run."""

    __slots__ = ("_has_rebuilds", "_takes_context", "_timeout_ms", "definition", "is_async", "keeps_result")

    def __init__(self, definition: TaskDefinition, result_ttl_ms: int) -> None:
        self.definition = definition
        self.is_async = definition.is_async
        self.keeps_result = result_ttl_ms > 0
        self._has_rebuilds = bool(definition.rebuilds)
        self._takes_context = definition.binding.takes_context
        self._timeout_ms = definition.options.timeout_ms

    def open(self, body: bytes) -> Envelope:
        """The call in a body, fit for the function. Raises `InvalidMessage`."""
        envelope = decode_call(body)
        self.definition.binding.accept(envelope.args, envelope.kwargs)
        if self._has_rebuilds:
            self.definition.rebuild(envelope.args, envelope.kwargs)
        return envelope

    def call(self, envelope: Envelope, context: Context) -> Value:
        """Run the function in this thread, within its time."""
        if self._takes_context:
            self.definition.binding.inject(envelope.args, envelope.kwargs, context)
        timeout_ms = envelope.timeout_ms or self._timeout_ms
        if timeout_ms is None:
            return self.definition.function(*envelope.args, **envelope.kwargs)
        with alarm(timeout_ms, self.definition.name):
            return self.definition.function(*envelope.args, **envelope.kwargs)

    async def acall(self, envelope: Envelope, context: Context) -> Any:  # noqa: ANN401 - the user's value
        """Run the coroutine function on this event loop, within its time."""
        self.definition.binding.inject(envelope.args, envelope.kwargs, context)
        timeout_ms = envelope.timeout_ms or self._timeout_ms
        if timeout_ms is None:
            return await self.definition.function(*envelope.args, **envelope.kwargs)
        limit = asyncio.timeout(timeout_ms / 1000)
        try:
            async with limit:
                return await self.definition.function(*envelope.args, **envelope.kwargs)
        except TimeoutError as error:
            if limit.expired():
                raise TaskTimeout(
                    f"{self.definition.name} ran longer than {timeout_ms / 1000:g} s"
                ) from error
            raise


def encode_result(value: Value, max_bytes: int) -> bytes:
    """The bytes that are kept of a result. Raises `ResultRefused`: a result is never silently dropped."""
    try:
        result = pack(value)
    except NotAccepted as refused:
        problem = problem_with("the result", value) or f"the result cannot be kept: {refused}"
        raise ResultRefused("result_not_accepted", problem) from refused
    if len(result) > max_bytes:
        problem = f"the result is {len(result):,} bytes; accepted are up to {max_bytes:,}"
        raise ResultRefused("result_too_large", problem)
    return result
