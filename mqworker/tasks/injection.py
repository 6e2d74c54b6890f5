"""Injection: what a task asks for beside its arguments, and who provides it.

`session: Annotated[Session, Depends(open_session)]` or `session: Session = Depends(open_session)`. The worker
fills such a parameter in; it is no part of the call. A provider is a function, or a generator function that
yields once and cleans up behind the yield; sync or async. It may ask for others, and for the `Context`.

A middleware is the same for all tasks: a generator function that yields once, around each run.
"""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterator,
    Mapping,
)
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Literal, TypeVar, overload

from mqworker.errors import ConfigurationError, InvalidArgument
from mqworker.model.names import shown
from mqworker.tasks.batch_context import BatchContext
from mqworker.tasks.context import Context, State

T = TypeVar("T")
FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])
Scope = Literal["run", "worker"]
# Any: whatever the application provides; its own annotations say what.
Provider = Callable[..., Any]

_CONTEXT_TEXT = re.compile(r"([A-Za-z_][\w.]*\.)?(Batch)?Context(\s*\|\s*None)?", re.ASCII)
_DEPENDS_TEXT = re.compile(r"(?:\A|[^\w])Depends\s*\(", re.ASCII)
_SCOPES = ("run", "worker")


@dataclass(frozen=True, slots=True)
class Dependency:
    """What `Depends` says: who provides a value, and for how long it is kept."""

    provider: Provider
    scope: Scope = "run"


@overload
def Depends(provider: Callable[..., AsyncIterator[T]], *, scope: Scope = "run") -> T: ...
@overload
def Depends(provider: Callable[..., Iterator[T]], *, scope: Scope = "run") -> T: ...
@overload
def Depends(provider: Callable[..., Awaitable[T]], *, scope: Scope = "run") -> T: ...
@overload
def Depends(provider: Callable[..., T], *, scope: Scope = "run") -> T: ...
def Depends(provider: Provider, *, scope: Scope = "run") -> Any:  # noqa: N802 - as FastAPI spells it
    """Let the worker fill a parameter in with what `provider` gives.

    With scope "run" it is called once for each run that asks for it, and cleaned up when that run ends; with
    "worker" once in the life of a worker, when first asked for, and cleaned up when the worker ends.
    """
    if not callable(provider):
        raise InvalidArgument(
            f"provider is {shown(provider)}; accepted is a function, or a generator function"
        )
    if scope not in _SCOPES:
        raise InvalidArgument(f'scope is {shown(scope)}; accepted are "run" and "worker"')
    return Dependency(provider, scope)


class ProviderKind(Enum):
    """How a provider gives its value."""

    VALUE = auto()
    YIELDS = auto()
    AWAITED = auto()
    ASYNC_YIELDS = auto()


@dataclass(frozen=True, slots=True)
class ProviderPlan:
    """A provider with everything that can be worked out once."""

    call: Provider
    kind: ProviderKind
    scope: Scope
    parameters: tuple[tuple[str, Dependency | None], ...]
    """By name; None stands for the context."""

    @property
    def name(self) -> str:
        """For errors and the log."""
        return name_of_function(self.call)


class Injection:
    """The providers of an app as they are at the moment, its middleware, its lifespans and its state."""

    def __init__(self) -> None:
        self.middleware: list[Dependency] = []
        self.lifespans: list[Provider] = []
        self.state = State()
        self._replacements: dict[Provider, Provider] = {}
        self._plans: dict[Dependency, ProviderPlan] = {}

    def plan_of(self, dependency: Dependency) -> ProviderPlan:
        """How its value is made now; raises `ConfigurationError` where it cannot be."""
        return self._plans.get(dependency) or self._compile(dependency, ())

    def replacement(self, provider: Provider) -> Provider:
        """What stands in for it now; itself, if nothing does."""
        return self._replacements.get(provider, provider)

    @contextmanager
    def override(self, provider: Provider, replacement: Provider) -> Iterator[None]:
        """Use another provider in its place, until the block ends."""
        before = self._replacements
        self._replacements = {**before, provider: replacement}
        self._plans = {}
        try:
            yield
        finally:
            self._replacements, self._plans = before, {}

    def _compile(self, dependency: Dependency, above: tuple[Provider, ...]) -> ProviderPlan:
        call = self.replacement(dependency.provider)
        if call in above:
            names = " → ".join(name_of_function(each) for each in (*above[above.index(call) :], call))
            raise ConfigurationError(f"providers ask for each other: {names}; accepted is a chain that ends")
        parameters = tuple(self._parameters(call, dependency, (*above, call)))
        plan = ProviderPlan(unwrapped(call), kind_of(call), dependency.scope, parameters)
        self._plans[dependency] = plan
        return plan

    def _parameters(
        self, call: Provider, dependency: Dependency, above: tuple[Provider, ...]
    ) -> Iterator[tuple[str, Dependency | None]]:
        wanted = Wanted.of(call)
        for parameter in _signature(call).parameters.values():
            if parameter.name in wanted.contexts:
                asked = None
            elif parameter.name in wanted.injected:
                asked = wanted.dependency(parameter.name)
            elif parameter.default is not parameter.empty or parameter.kind in _GATHERING:
                continue
            else:
                raise ConfigurationError(
                    f"the provider {name_of_function(call)} takes {parameter.name}, which nobody gives it; "
                    "accepted are Context, parameters with Depends(...), and those with a default"
                )
            self._check(call, dependency, parameter, asked)
            if asked is not None:
                self._compile(asked, above)
            yield parameter.name, asked

    def _check(
        self, call: Provider, dependency: Dependency, parameter: inspect.Parameter, asked: Dependency | None
    ) -> None:
        name = name_of_function(call)
        if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
            raise ConfigurationError(
                f"the provider {name} takes {parameter.name} by position only; accepted is one by name"
            )
        if dependency.scope == "worker" and (asked is None or asked.scope == "run"):
            what = "the context of a run" if asked is None else name_of_function(asked.provider)
            raise ConfigurationError(
                f"the provider {name} lives as long as its worker and asks for {what}, which ends with a "
                'run; accepted are providers with scope="worker"'
            )


_GATHERING = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which parameters of a function are filled in by the worker."""

    function: Provider
    contexts: tuple[str, ...]
    injected: Mapping[str, Dependency | None]
    """None where the text of an annotation says so and names what is not defined yet."""

    @classmethod
    def of(cls, function: Provider) -> Wanted:
        """Looked at once, where a task is defined."""
        contexts, injected = [], dict[str, Dependency | None]()
        hints = resolved_hints(function)
        for parameter in _signature(function).parameters.values():
            hint = hints.get(parameter.name, parameter.annotation)
            if isinstance(parameter.default, Dependency):
                injected[parameter.name] = parameter.default
            elif (found := _dependency_in(hint)) is not None:
                injected[parameter.name] = found
            elif isinstance(hint, str) and _DEPENDS_TEXT.search(hint):
                injected[parameter.name] = None
            elif _wants_context(hint):
                contexts.append(parameter.name)
        return cls(function, tuple(contexts), injected)

    def dependency(self, name: str) -> Dependency:
        """What a parameter asks for; raises `ConfigurationError` where that is not to be found."""
        known = self.injected[name] or _dependency_in(resolved_hints(self.function).get(name))
        if known is None:
            text = self.function.__annotations__[name]
            raise ConfigurationError(
                f"{name_of_function(self.function)}: {name} is annotated as {text}, which names what its "
                "module does not define; accepted are names of the module"
            )
        return known


def resolved_hints(function: Provider) -> dict[str, Any]:
    """The annotations that can be resolved now, each by itself; Annotated stays.

    Only those that stand in the code of a function. What somebody else published of a task is text from a
    server, which is never evaluated: its stand-in has a signature, and no such annotations.
    """
    plain = inspect.unwrap(function)
    if isinstance(plain, type):
        plain = vars(plain).get("__init__", plain)
    names = getattr(plain, "__globals__", {})
    found: dict[str, Any] = {}
    for name, hint in getattr(plain, "__annotations__", {}).items():
        try:
            one = types.SimpleNamespace(__annotations__={name: hint})
            found |= typing.get_type_hints(one, globalns=names, include_extras=True)
        except (NameError, AttributeError, TypeError, SyntaxError):
            continue
    return found


def kind_of(provider: Provider) -> ProviderKind:
    """How it gives its value; what `contextlib` made of a generator function counts as that function."""
    plain = unwrapped(provider)
    if inspect.isasyncgenfunction(plain):
        return ProviderKind.ASYNC_YIELDS
    if inspect.isgeneratorfunction(plain):
        return ProviderKind.YIELDS
    is_awaited = inspect.iscoroutinefunction(plain) or inspect.iscoroutinefunction(
        getattr(plain, "__call__", None)  # noqa: B004 - of an object that is called like a function
    )
    return ProviderKind.AWAITED if is_awaited else ProviderKind.VALUE


def unwrapped(provider: Provider) -> Provider:
    """The generator function inside of what `contextlib.contextmanager` made of it; else the same."""
    inner = getattr(provider, "__wrapped__", None)
    is_generator = inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner)
    return inner if inner is not None and is_generator else provider


def name_of_function(function: object) -> str:
    """For errors and the log."""
    name = getattr(function, "__qualname__", None)
    return repr(function) if name is None else f"{getattr(function, '__module__', '?')}.{name}"


def _signature(function: Provider) -> inspect.Signature:
    try:
        return inspect.signature(function)
    except ValueError as error:  # a class of C, such as `dict`
        raise ConfigurationError(
            f"the provider {name_of_function(function)} does not say what it takes; accepted is a function "
            "of yours"
        ) from error


def _dependency_in(hint: object) -> Dependency | None:
    metadata = getattr(hint, "__metadata__", ())
    return next((each for each in metadata if isinstance(each, Dependency)), None)


def _wants_context(hint: object) -> bool:
    if isinstance(hint, str):  # written under `from __future__ import annotations`
        return _CONTEXT_TEXT.fullmatch(hint.strip("'\" ")) is not None
    kinds = (hint, *typing.get_args(hint))
    return Context in kinds or BatchContext in kinds


def wants_batch(hint: object) -> bool:
    """Whether a parameter asks for the context of a batch."""
    if isinstance(hint, str):
        return _wants_context(hint) and "BatchContext" in hint
    return BatchContext in (hint, *typing.get_args(hint))
