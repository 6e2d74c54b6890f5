"""Run scope: what one run holds open: providers of scope "run", and middleware.

As in resources.py, everything stands in the list before it begins to open.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator

from mqworker.errors import DidNotYield
from mqworker.tasks.context import Context
from mqworker.tasks.injection import Dependency, Provider, ProviderKind, ProviderPlan
from mqworker.tasks.running.keeper import Keeper, finish_async
from mqworker.tasks.running.resources import Opened, Value, WorkerResources, finish, first_of


class Skipped(Exception):
    """A middleware came to its end without a yield: the task is not run."""

    def __init__(self, value: Value = None) -> None:
        super().__init__()
        self.value = value


class RunScope:
    """What one run holds open. `resolve` and `close` for sync tasks, their twins on an event loop."""

    def __init__(self, worker: WorkerResources, context: Context) -> None:
        self._worker = worker
        self._context = context
        self._values: dict[Provider, Value] = {}
        self._opened: list[Opened] = []

    def enter(self, middleware: Dependency) -> None:
        """Begin a middleware. Raises `Skipped` when it does not yield."""
        plan = self._worker.injection.plan_of(middleware)
        arguments = {name: self._argument(asked) for name, asked in plan.parameters}
        made = plan.call(**arguments)
        if plan.kind is ProviderKind.YIELDS:
            self._opened.append(made)
            try:
                next(made)
            except StopIteration as end:
                raise Skipped(end.value) from None
            return
        keeper = Keeper(made)
        self._opened.append(keeper)
        try:
            self._worker.loop.wait_for(keeper.open())
        except DidNotYield:
            raise Skipped from None

    async def aenter(self, middleware: Dependency) -> None:
        """The same on an event loop."""
        plan = self._worker.injection.plan_of(middleware)
        arguments = {name: await self._aargument(asked) for name, asked in plan.parameters}
        made = plan.call(**arguments)
        self._opened.append(made)
        try:
            if plan.kind is ProviderKind.YIELDS:
                next(made)
            else:
                await anext(made)
        except StopIteration as end:
            raise Skipped(end.value) from None
        except StopAsyncIteration:
            raise Skipped from None

    def resolve(self, dependency: Dependency) -> Value:
        """The value of a dependency: once per run, or per worker."""
        plan = self._worker.injection.plan_of(dependency)
        if plan.scope == "worker":
            return self._worker.resolve(plan)
        if plan.call not in self._values:
            self._values[plan.call] = self._open(plan)
        return self._values[plan.call]

    async def aresolve(self, dependency: Dependency) -> Value:
        """The same on an event loop."""
        plan = self._worker.injection.plan_of(dependency)
        if plan.scope == "worker":
            return await self._worker.aresolve(plan)
        if plan.call not in self._values:
            self._values[plan.call] = await self._aopen(plan)
        return self._values[plan.call]

    def close(self, value: Value, error: BaseException | None) -> None:
        """Close all in reverse; raises the newest error: the run's own, or one of a clean-up after it."""
        while self._opened:
            opened = self._opened.pop()
            try:
                if isinstance(opened, Keeper):
                    self._worker.loop.wait_for(opened.close(value, error))
                elif isinstance(opened, Generator):
                    finish(opened, value, error)
            except BaseException as raised:  # noqa: BLE001 - the others are closed in any case
                error = raised
        if error is not None:
            raise error

    async def aclose(self, value: Value, error: BaseException | None) -> None:
        """The same on an event loop."""
        while self._opened:
            opened = self._opened.pop()
            try:
                if isinstance(opened, Generator):
                    finish(opened, value, error)
                elif isinstance(opened, AsyncGenerator):
                    await finish_async(opened, value, error)
            except BaseException as raised:  # noqa: BLE001 - as above
                error = raised
        if error is not None:
            raise error

    def _argument(self, asked: Dependency | None) -> Value:
        return self._context if asked is None else self.resolve(asked)

    async def _aargument(self, asked: Dependency | None) -> Value:
        return self._context if asked is None else await self.aresolve(asked)

    def _open(self, plan: ProviderPlan) -> Value:
        made = plan.call(**{name: self._argument(asked) for name, asked in plan.parameters})
        match plan.kind:
            case ProviderKind.VALUE:
                return made
            case ProviderKind.YIELDS:
                self._opened.append(made)
                return first_of(made, plan.name)
            case ProviderKind.AWAITED:
                return self._worker.loop.wait_for(made)
            case ProviderKind.ASYNC_YIELDS:
                keeper = Keeper(made)
                self._opened.append(keeper)
                return self._worker.loop.wait_for(keeper.open())

    async def _aopen(self, plan: ProviderPlan) -> Value:
        made = plan.call(**{name: await self._aargument(asked) for name, asked in plan.parameters})
        match plan.kind:
            case ProviderKind.VALUE:
                return made
            case ProviderKind.YIELDS:
                self._opened.append(made)
                return first_of(made, plan.name)
            case ProviderKind.AWAITED:
                return await made
            case ProviderKind.ASYNC_YIELDS:
                self._opened.append(made)
                try:
                    return await anext(made)
                except StopAsyncIteration:
                    raise DidNotYield(f"{plan.name} came to its end without a yield") from None
