"""A task with something around its runs: injected parameters, middleware. Everything opened is closed.

The time-out of a run covers what is opened for it and the task itself; cleaning up begins when it is over,
and is ended by the hard time-out only. Nor does a cancellation interrupt it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from contextvars import copy_context
from typing import Any

from mqworker.errors import TaskTimeout
from mqworker.model.envelope import Envelope
from mqworker.model.value_codec import Value
from mqworker.tasks.context import Context
from mqworker.tasks.injection import Dependency
from mqworker.tasks.registry import TaskDefinition
from mqworker.tasks.running.alarm import alarm
from mqworker.tasks.running.prepared_task import PreparedTask
from mqworker.tasks.running.resources import WorkerResources
from mqworker.tasks.running.run_scope import RunScope, Skipped


class InjectedTask(PreparedTask):
    """Prepared in place of a `PreparedTask` where there is anything to inject or to wrap."""

    __slots__ = ("_dependencies", "_middleware", "_resources")

    def __init__(self, definition: TaskDefinition, result_ttl_ms: int, resources: WorkerResources) -> None:
        super().__init__(definition, result_ttl_ms)
        self._dependencies: Sequence[tuple[str, Dependency]] = tuple(definition.dependencies.items())
        self._middleware: Sequence[Dependency] = tuple(resources.injection.middleware)
        self._resources = resources

    def call(self, envelope: Envelope, context: Context) -> Value:
        """Run the function in this thread; what it and its providers set in context variables ends."""
        return copy_context().run(self._call_inside, envelope, context)

    def _call_inside(self, envelope: Envelope, context: Context) -> Value:
        scope, value = RunScope(self._resources, context), None
        try:
            try:
                with self._limit(envelope):
                    value = self._run(scope, envelope, context)
            finally:
                context.is_closing = True
        except Skipped as skipped:
            value = skipped.value
        except BaseException as error:
            scope.close(None, error)
            raise
        scope.close(value, None)
        return value

    def _run(self, scope: RunScope, envelope: Envelope, context: Context) -> Value:
        for middleware in self._middleware:
            scope.enter(middleware)
        values = {name: scope.resolve(dependency) for name, dependency in self._dependencies}
        self._binding.fill_in(envelope.args, envelope.kwargs, context, values)
        return self._function(*envelope.args, **envelope.kwargs)

    def _limit(self, envelope: Envelope) -> AbstractContextManager[None]:
        timeout_ms = envelope.timeout_ms or self._timeout_ms
        return nullcontext() if timeout_ms is None else alarm(timeout_ms, self.definition.name)

    async def acall(self, envelope: Envelope, context: Context) -> Any:  # noqa: ANN401 - the user's value
        """Run the coroutine function on this event loop."""
        scope, value = RunScope(self._resources, context), None
        try:
            try:
                value = await self._arun_limited(scope, envelope, context)
            finally:
                context.is_closing = True
        except Skipped as skipped:
            value = skipped.value
        except BaseException as error:
            await scope.aclose(None, error)
            raise
        await scope.aclose(value, None)
        return value

    async def _arun_limited(self, scope: RunScope, envelope: Envelope, context: Context) -> Value:
        timeout_ms = envelope.timeout_ms or self._timeout_ms
        limit = asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000)
        try:
            async with limit:
                return await self._arun(scope, envelope, context)
        except TimeoutError as error:
            if limit.expired() and timeout_ms is not None:
                raise TaskTimeout(
                    f"{self.definition.name} ran longer than {timeout_ms / 1000:g} s"
                ) from error
            raise

    async def _arun(self, scope: RunScope, envelope: Envelope, context: Context) -> Value:
        for middleware in self._middleware:
            await scope.aenter(middleware)
        values = {name: await scope.aresolve(dependency) for name, dependency in self._dependencies}
        self._binding.fill_in(envelope.args, envelope.kwargs, context, values)
        return await self._function(*envelope.args, **envelope.kwargs)
