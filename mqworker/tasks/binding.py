"""Binding: whether a call fits the signature of its task, found out before anything is sent.

Parameters annotated with `Context` or `Depends(...)` are filled in by the worker: callers never see them.
"""

from __future__ import annotations

import inspect
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mqworker.errors import ConfigurationError, InvalidArgument, InvalidMessage
from mqworker.tasks.context import Context
from mqworker.tasks.injection import Dependency, Wanted, wants_batch
from mqworker.tasks.rows import row_parameter
from mqworker.tasks.secret import SecretArguments, is_secret

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class Binding:
    """The signature of one task, prepared for quick checks."""

    def __init__(self, task: str, function: Callable[..., object], *, takes_rows: bool = False) -> None:
        """With `takes_rows`, callers give one item of the list that the function takes."""
        signature = inspect.signature(function)
        parameters = list(signature.parameters.values())
        self._task = task
        self._wanted = Wanted.of(function)
        self._context = next((each for each in parameters if each.name in self._wanted.contexts), None)
        self.injected = tuple(each for each in parameters if each.name in self._wanted.injected)
        """Parameters that are filled in by providers."""
        self._refuse_unnamed()
        self._filled_in = tuple(
            each.name for each in parameters if each is self._context or each in self.injected
        )
        self._places = {each.name: at for at, each in enumerate(parameters) if each.kind in _POSITIONAL}
        own = [each for each in parameters if each is not self._context and each not in self.injected]
        if takes_rows:
            own = [row_parameter(each) for each in own]
        self._signature = signature.replace(parameters=own)
        self.own = tuple(own)
        self.parameters = tuple(each.name for each in own)
        self.secrets = SecretArguments.of((each.name, each.kind.name, is_secret(each)) for each in own)
        self.version = _version(own)
        """The same for all functions that accept the same calls; short, for it travels with refused ones."""
        is_simple = all(each.kind in _POSITIONAL for each in own)
        least = sum(each.default is inspect.Parameter.empty for each in own)
        self.positional_counts = range(least, len(own) + 1) if is_simple else range(0)
        """How many arguments fit when none has a keyword; empty where a count does not decide."""

    @property
    def takes_batch_context(self) -> bool:
        """Whether that parameter is the context of a batch."""
        return self._context is not None and wants_batch(self._context.annotation)

    @property
    def takes_context(self) -> bool:
        """Whether the worker fills in a parameter."""
        return self._context is not None

    def dependencies(self) -> dict[str, Dependency]:
        """What is injected, by parameter; raises `ConfigurationError` for what nobody defines."""
        return {each.name: self._wanted.dependency(each.name) for each in self.injected}

    def check(self, args: Sequence[object], kwargs: Mapping[str, object]) -> None:
        """Raise `InvalidArgument` when the call does not fit."""
        if kwargs or len(args) not in self.positional_counts:
            self._bound(args, kwargs)

    def check_with_inputs(self, args: Sequence[object], kwargs: Mapping[str, object]) -> None:
        """Raise `InvalidArgument` when the call does not fit, whatever number of inputs stands before."""
        problems: list[InvalidArgument] = []
        for count in range(len(self.parameters) + 1):
            try:
                return self.check((*[None] * count, *args), kwargs)
            except InvalidArgument as error:
                problems.append(error)
        raise problems[0]

    def by_name(self, args: Sequence[object], kwargs: Mapping[str, object]) -> dict[str, object]:
        """The arguments by the names of their parameters, defaults included."""
        bound = self._bound(args, kwargs)
        bound.apply_defaults()
        return bound.arguments

    def as_given(self, args: Sequence[object], kwargs: Mapping[str, object]) -> dict[str, object]:
        """The same without the defaults, which are not sent."""
        return self._bound(args, kwargs).arguments

    def accept(self, args: list[Any], kwargs: dict[str, Any]) -> None:
        """In the worker: refuse a call that was made for another signature."""
        try:
            self.check(args, kwargs)
        except InvalidArgument as error:
            raise InvalidMessage(f"the arguments do not match the parameters of the task: {error}") from error

    def inject(self, args: list[Any], kwargs: dict[str, Any], context: Context) -> None:
        """Put the context where the function expects it."""
        if self._context is not None:
            self._put(args, kwargs, self._context.name, context)

    def fill_in(
        self, args: list[Any], kwargs: dict[str, Any], context: Context, values: Mapping[str, Any]
    ) -> None:
        """Put the context and what was provided where the function expects it."""
        # From left to right: each that is put by position moves those behind it by one.
        for name in self._filled_in:
            self._put(args, kwargs, name, values.get(name, context))

    def _put(self, args: list[Any], kwargs: dict[str, Any], name: str, value: object) -> None:
        at = self._places.get(name)
        if at is not None and at <= len(args):
            args.insert(at, value)
        else:
            kwargs[name] = value

    def _refuse_unnamed(self) -> None:
        for each in self.injected:
            if each.kind not in _NAMED:
                raise ConfigurationError(
                    f"{self._task}: {each.name} is injected and {each.kind.description}; accepted is a "
                    "parameter that can be given by name"
                )

    def _bound(self, args: Sequence[object], kwargs: Mapping[str, object]) -> inspect.BoundArguments:
        try:
            return self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise InvalidArgument(f"{self._task}{self._signature}: {error}") from error


def _version(parameters: Sequence[inspect.Parameter]) -> str:
    parts = [
        (each.name, each.kind.name, each.default is each.empty, inspect.formatannotation(each.annotation))
        for each in parameters
    ]
    return f"{zlib.crc32(repr(parts).encode()):08x}"
