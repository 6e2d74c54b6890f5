"""Binding: whether a call fits the signature of its task, found out before anything is sent.

A parameter annotated with `Context` is filled in by the worker and is no part of the call.
"""

from __future__ import annotations

import inspect
import re
import typing
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mqworker.errors import InvalidArgument, InvalidMessage
from mqworker.tasks.context import Context
from mqworker.tasks.secret import SecretArguments, is_secret

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_CONTEXT_TEXT = re.compile(r"([A-Za-z_][\w.]*\.)?Context(\s*\|\s*None)?", re.ASCII)


class Binding:
    """The signature of one task, prepared for quick checks."""

    def __init__(self, task: str, function: Callable[..., object]) -> None:
        signature = inspect.signature(function)
        parameters = list(signature.parameters.values())
        self._task = task
        self._context = next((each for each in parameters if _wants_context(each)), None)
        self._context_at = next(
            (at for at, each in enumerate(parameters) if each is self._context and each.kind in _POSITIONAL),
            None,
        )
        own = [each for each in parameters if each is not self._context]
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
    def takes_context(self) -> bool:
        """Whether the worker fills in a parameter."""
        return self._context is not None

    def check(self, args: Sequence[object], kwargs: Mapping[str, object]) -> None:
        """Raise `InvalidArgument` when the call does not fit."""
        if kwargs or len(args) not in self.positional_counts:
            self._bound(args, kwargs)

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
        if self._context is None:
            return
        if self._context_at is not None and self._context_at <= len(args):
            args.insert(self._context_at, context)
        else:
            kwargs[self._context.name] = context

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


def _wants_context(parameter: inspect.Parameter) -> bool:
    hint = parameter.annotation
    if isinstance(hint, str):  # written under `from __future__ import annotations`
        return _CONTEXT_TEXT.fullmatch(hint.strip("'\" ")) is not None
    return hint is Context or Context in typing.get_args(hint)
