"""A task, ready to run: what is the same for all its deliveries is worked out once."""

from __future__ import annotations

import asyncio
from contextvars import copy_context
from typing import Any

from mqworker.errors import InvalidMessage, TaskTimeout
from mqworker.model.envelope import Envelope, decode_call
from mqworker.model.value_codec import Value
from mqworker.tasks.context import Context
from mqworker.tasks.registry import TaskDefinition
from mqworker.tasks.running.alarm import alarm


class CallRefused(InvalidMessage):
    """The call was made for another version of the task; somebody else may know that one."""


class PreparedTask:
    """One task, ready to run: everything that is the same for all its deliveries, worked out once."""

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
        "is_usual",
        "keeps_result",
        "takes_batches",
    )

    def __init__(self, definition: TaskDefinition, result_ttl_ms: int) -> None:
        self.definition = definition
        self.is_async = definition.is_async
        self.takes_batches = definition.options.batch is not None
        self.is_usual = not self.is_async and not self.takes_batches
        """Whether it runs one delivery at a time, in the thread that asks."""
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
