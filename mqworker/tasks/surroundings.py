"""What an application declares around its tasks: lifespans of workers, middleware of runs and of calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from mqworker.errors import InvalidArgument
from mqworker.model.foreign_types import register_codec
from mqworker.model.names import shown
from mqworker.tasks.hooks import Hooks, OutgoingCall
from mqworker.tasks.injection import Dependency, Injection, Provider, ProviderKind, kind_of

# Any: what a lifespan yields and takes, and what a middleware asks for, is the application's.
FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])
AroundEnqueueT = TypeVar("AroundEnqueueT", bound=Callable[[OutgoingCall], Iterator[None]])

T = TypeVar("T")

_NOT_GIVEN = object()
_YIELDING = (ProviderKind.YIELDS, ProviderKind.ASYNC_YIELDS)


class Surroundings:
    """The declarations; an `App` has these methods as its own."""

    def __init__(self, injection: Injection, hooks: Hooks) -> None:
        self._injection = injection
        self._hooks = hooks

    def lifespan(self, function: FunctionT) -> FunctionT:
        """`@app.lifespan`: a generator function, sync or async, that yields once in each worker's process.

        What stands before the yield runs before the worker's first task, what stands behind it when the
        worker drains: at the end of the node, and whenever a worker is replaced. A dict that it yields
        becomes the attributes of `ctx.state`. It may take the app. An async one lives on the worker's event
        loop.
        """
        if kind_of(function) not in _YIELDING:
            raise InvalidArgument(
                f"lifespan is {shown(function)}; accepted is a generator function, sync or async, that "
                "yields once"
            )
        self._injection.lifespans.append(function)
        return function

    def middleware(self, function: FunctionT) -> FunctionT:
        """`@app.middleware`: a generator function, sync or async, that yields once, around each run.

        It may take the `Context`, and what `Depends(...)` provides. The value of the yield is what the task
        returned; what the task raised is raised there. One that returns without a yield skips the task, whose
        result is then what it returned. The first one that was declared is the outermost.
        """
        if kind_of(function) not in _YIELDING:
            raise InvalidArgument(
                f"middleware is {shown(function)}; accepted is a generator function, sync or async, that "
                "yields once, around the run"
            )
        self._injection.middleware.append(Dependency(function))
        return function

    def enqueue_middleware(self, function: AroundEnqueueT) -> AroundEnqueueT:
        """`@app.enqueue_middleware`: a generator function that yields once, around the storing of each call.

        It takes the `OutgoingCall`: before the yield it may add headers, or raise; behind it `call.id` is
        known.
        """
        if kind_of(function) is not ProviderKind.YIELDS:
            raise InvalidArgument(
                f"enqueue_middleware is {shown(function)}; accepted is a generator function, not async, that "
                "yields once, around the storing of a call"
            )
        self._hooks.wrapping.append(function)
        return function

    def codec(self, kind: type[T], encode: Callable[[T], Any], decode: Callable[[Any], T]) -> None:
        """Let values of a class of yours be sent: `app.codec(Money, str, Money.parse)`.

        `encode` gives something that can be sent, `decode` makes the class of it again, for parameters and
        results that are annotated with it. Both the producer and the worker must have said so.
        """
        given: tuple[object, ...] = (kind, encode, decode)
        if not isinstance(given[0], type) or not all(map(callable, given)):
            raise InvalidArgument(f"codec is {shown(given)}; accepted are a class and two functions")
        register_codec(kind, encode, decode)

    @contextmanager
    def override(
        self, provider: Provider, replacement: Provider | None = None, *, value: object = _NOT_GIVEN
    ) -> Iterator[None]:
        """For tests: `with app.override(open_session, open_fake):`, or with `value=fake` for a value.

        Until the block ends, whoever depends on `provider` gets what the replacement provides. A lifespan can
        be replaced, too.
        """
        if (replacement is None) == (value is _NOT_GIVEN):
            raise InvalidArgument(
                "override: replacement and value are both given, or neither; accepted is one of them"
            )
        if replacement is not None and not callable(replacement):
            raise InvalidArgument(
                f"replacement is {shown(replacement)}; accepted is a provider, or value=... for a value as "
                "it is"
            )
        with self._injection.override(provider, replacement or (lambda: value)):
            yield
