"""Resources of a worker: its lifespans, and providers of scope "worker". Those of a run are in run_scope.py.

Everything that is opened stands in a list before it begins to open, so that whatever interrupts a run, at
whatever instant, finds it there and closes it: in reverse order, each once, all of them whoever fails.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from concurrent.futures import Future
from typing import Any, TypeAlias

from mqworker.errors import DidNotYield, LifespanFailed
from mqworker.log import get_logger
from mqworker.tasks.injection import (
    Dependency,
    Injection,
    Provider,
    ProviderKind,
    ProviderPlan,
    kind_of,
    name_of_function,
    unwrapped,
)
from mqworker.tasks.running.keeper import Keeper
from mqworker.tasks.running.loop_thread import LoopHome, LoopThread

# Any: whatever the application provides.
Value: TypeAlias = Any
Opened: TypeAlias = "Generator[Value, Value, Value] | AsyncGenerator[Value, Value] | Keeper"


class _OpeningFailed(Exception):
    """Whoever opened it failed, perhaps for a reason of his own: the next one tries again."""


class WorkerResources:
    """What lives as long as a worker. Safe between its threads."""

    def __init__(self, injection: Injection | None = None, loop: LoopHome | None = None) -> None:
        self.injection = injection or Injection()
        self.loop_thread = LoopThread()
        """Where async tasks run beside the others."""
        self.loop: LoopHome = loop or self.loop_thread
        self.on_lost: Callable[[str], object] = lambda _reason: None
        """Called when an async lifespan came to its end by itself: the worker is not whole any more."""
        self._lock = threading.Lock()
        self._values: dict[Provider, Future[Value]] = {}
        self._opened: list[tuple[str, Opened]] = []
        self._log = get_logger(part="resources")

    # Any: the app, which lifespans may ask for.
    def start(self, app: Any) -> None:  # noqa: ANN401 - see above
        """Open the lifespans, in the order in which they were declared. Raises `LifespanFailed`."""
        for declared in self.injection.lifespans:
            lifespan = self.injection.replacement(declared)
            name = name_of_function(lifespan)
            try:
                made = self._make(lifespan, name, app)
                given = self.loop.wait_for(made.open()) if isinstance(made, Keeper) else first_of(made, name)
            except Exception as error:
                raise _failed_start(name, error) from error
            self._take_state(name, given)

    async def astart(self, app: Any) -> None:  # noqa: ANN401 - see above
        """The same on an event loop."""
        for declared in self.injection.lifespans:
            lifespan = self.injection.replacement(declared)
            name = name_of_function(lifespan)
            try:
                made = self._make(lifespan, name, app)
                given = await made.open() if isinstance(made, Keeper) else first_of(made, name)
            except Exception as error:
                raise _failed_start(name, error) from error
            self._take_state(name, given)

    @property
    def has_async(self) -> bool:
        """Whether anything that is open wants an event loop to be closed."""
        return any(isinstance(opened, Keeper) for _, opened in self._opened)

    def close(self) -> None:
        """Close everything; what goes wrong is logged, and the next is closed."""
        while self._opened:
            name, opened = self._opened.pop()
            try:
                self._finish(opened)
            except BaseException:  # noqa: BLE001 - foreign code at the end of a process
                self._log.exception("resource_not_closed", resource=name)
        self._values = {}

    async def aclose(self) -> None:
        """The same on an event loop, on which everything async was opened."""
        while self._opened:
            name, opened = self._opened.pop()
            try:
                if isinstance(opened, Keeper):
                    await opened.close()
                else:
                    self._finish(opened)
            except BaseException:  # noqa: BLE001 - as above
                self._log.exception("resource_not_closed", resource=name)
        self._values = {}

    def resolve(self, plan: ProviderPlan) -> Value:
        """The value of a provider of scope "worker", for sync code; opened by whoever asks first."""
        while True:
            mine: Future[Value] = Future()
            try:
                if (theirs := self._claim(plan, mine)) is not mine:
                    return theirs.result()
                mine.set_result(self._open(plan))
                return mine.result()
            except _OpeningFailed:
                continue
            finally:
                self._give_up_unless_opened(plan, mine)

    async def aresolve(self, plan: ProviderPlan) -> Value:
        """The same on an event loop."""
        while True:
            mine: Future[Value] = Future()
            try:
                if (theirs := self._claim(plan, mine)) is not mine:
                    return await asyncio.shield(asyncio.wrap_future(theirs))
                mine.set_result(await self._aopen(plan))
                return mine.result()
            except _OpeningFailed:
                continue
            finally:
                self._give_up_unless_opened(plan, mine)

    def _claim(self, plan: ProviderPlan, mine: Future[Value]) -> Future[Value]:
        with self._lock:
            return self._values.setdefault(plan.call, mine)

    def _give_up_unless_opened(self, plan: ProviderPlan, mine: Future[Value]) -> None:
        with self._lock:
            if mine.done() or self._values.get(plan.call) is not mine:
                return
            del self._values[plan.call]
        mine.set_exception(_OpeningFailed())

    def _open(self, plan: ProviderPlan) -> Value:
        # Whoever lives as long as the worker asks only for others that do.
        arguments = {name: self.resolve(self._plan(asked)) for name, asked in plan.parameters}
        return self._begin(plan, arguments)

    async def _aopen(self, plan: ProviderPlan) -> Value:
        arguments = {name: await self.aresolve(self._plan(asked)) for name, asked in plan.parameters}
        if plan.kind is ProviderKind.AWAITED:
            return await plan.call(**arguments)
        if plan.kind is not ProviderKind.ASYNC_YIELDS:
            return self._begin(plan, arguments)
        keeper = Keeper(plan.call(**arguments))
        self._opened.append((plan.name, keeper))
        return await keeper.open()

    def _plan(self, asked: Dependency | None) -> ProviderPlan:
        assert asked is not None  # noqa: S101 - Injection refuses a context here
        return self.injection.plan_of(asked)

    def _begin(self, plan: ProviderPlan, arguments: Mapping[str, Value]) -> Value:
        made = plan.call(**arguments)
        match plan.kind:
            case ProviderKind.VALUE:
                return made
            case ProviderKind.YIELDS:
                self._opened.append((plan.name, made))
                return first_of(made, plan.name)
            case ProviderKind.AWAITED:
                return self.loop.wait_for(made)
            case ProviderKind.ASYNC_YIELDS:
                keeper = Keeper(made)
                self._opened.append((plan.name, keeper))
                return self.loop.wait_for(keeper.open())

    def _make(
        self,
        lifespan: Provider,
        name: str,
        app: Any,  # noqa: ANN401 - see above
    ) -> Keeper | Generator[Value, Value, Value]:
        made = unwrapped(lifespan)(*([app] if takes_argument(lifespan) else ()))
        kind = kind_of(lifespan)
        if kind not in (ProviderKind.YIELDS, ProviderKind.ASYNC_YIELDS):
            raise TypeError("it is no generator function; accepted is one that yields once")
        opened = (
            Keeper(made, lambda error: self._note_lost(name, error))
            if kind is ProviderKind.ASYNC_YIELDS
            else made
        )
        self._opened.append((name, opened))
        return opened

    def _take_state(self, name: str, given: Value) -> None:
        if given is not None and not isinstance(given, Mapping):
            raise LifespanFailed(
                f"the lifespan {name} yields {type(given).__qualname__}; accepted are nothing and a dict, "
                "whose entries become attributes of ctx.state"
            )
        for key, value in (given or {}).items():
            setattr(self.injection.state, key, value)

    def _note_lost(self, name: str, error: BaseException) -> None:
        self._log.error("lifespan_lost", lifespan=name, exc_info=error)
        self.on_lost(f"the lifespan {name} came to its end: {type(error).__name__}: {error}")

    def _finish(self, opened: Opened) -> None:
        if isinstance(opened, Keeper):
            self.loop.wait_for(opened.close())
        elif isinstance(opened, Generator):
            finish(opened, None, None)


def _failed_start(name: str, error: Exception) -> LifespanFailed:
    return LifespanFailed(f"the lifespan {name} failed at its start: {type(error).__name__}: {error}")


def first_of(generator: Generator[Value, Value, Value], name: str) -> Value:
    """What it yields."""
    try:
        return next(generator)
    except StopIteration:
        raise DidNotYield(f"{name} came to its end without a yield") from None


def finish(generator: Generator[Value, Value, Value], value: Value, error: BaseException | None) -> None:
    """Let a generator go on to its end: with the value, or with the error at its yield."""
    try:
        if error is None:
            generator.send(value)
        else:
            generator.throw(error)
    except StopIteration:
        return
    generator.close()
    raise RuntimeError("a generator yields twice; accepted is one yield")


def takes_argument(function: Provider) -> bool:
    """Whether a lifespan asks for the app."""
    code = getattr(unwrapped(function), "__code__", None)
    return code is not None and code.co_argcount > 0
