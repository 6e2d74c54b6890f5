"""Secret arguments: which of a task's arguments are never shown, and texts without their values.

An argument is secret when its parameter has a telling name (password, token) or is annotated with `Secret`;
so is what stands under a telling key inside any argument. Workers publish which they are
(published_tasks.py), for commands and console; they themselves take the values out of errors before they
are stored.
"""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, TypeVar
from urllib.parse import quote

from mqworker.redaction import MASK, is_secret_name

T = TypeVar("T")


class _SecretMark:
    """What `Secret` adds to a type."""

    def __repr__(self) -> str:
        return "secret"


_MARK = _SecretMark()
Secret = Annotated[T, _MARK]
"""`key: Secret[str]`: a plain `str` for the task and for type checkers, shown by nothing of ours."""

_SECRET_TEXT = re.compile(r"(?:\A|[^\w])Secret\s*\[", re.ASCII)
_SHORTEST_VALUE = 4
"""What is shorter stands in every text by chance, and whoever sees the mask could guess it anyway."""
_MOST_VALUES = 1_000
_DEEPEST = 20
_POSITIONAL = {"POSITIONAL_ONLY", "POSITIONAL_OR_KEYWORD"}


def is_secret(parameter: inspect.Parameter) -> bool:
    """Whether its arguments are never shown."""
    if is_secret_name(parameter.name):
        return True
    hint = parameter.annotation
    if isinstance(hint, str):  # written under `from __future__ import annotations`
        return _SECRET_TEXT.search(hint) is not None
    return _has_mark(hint)


def _has_mark(hint: object) -> bool:
    if _MARK in getattr(hint, "__metadata__", ()):
        return True
    return any(_has_mark(each) for each in typing.get_args(hint) if typing.get_args(each))


@dataclass(frozen=True, slots=True)
class SecretArguments:
    """The secret arguments of one task."""

    positions: frozenset[int] = frozenset()
    positions_from: int | None = None
    """From here on, where all that follow are gathered by one parameter."""
    names: frozenset[str] = frozenset()

    @classmethod
    def of(cls, parameters: Iterable[tuple[str, str, bool]]) -> SecretArguments:
        """By the name and kind of each parameter, and whether it is secret."""
        positions, rest, names = set[int](), None, set[str]()
        for position, (name, kind, has_secret) in enumerate(parameters):
            if not has_secret:
                continue
            names.add(name)
            if kind in _POSITIONAL:
                positions.add(position)
            elif kind == "VAR_POSITIONAL":
                rest = position
        return cls(frozenset(positions), rest, frozenset(names))

    def is_at(self, position: int) -> bool:
        """Whether the argument at this position is secret."""
        return position in self.positions or (
            self.positions_from is not None and position >= self.positions_from
        )

    def is_named(self, name: str) -> bool:
        """Whether the argument with this keyword is secret."""
        return name in self.names or is_secret_name(name)

    def values(self, args: Sequence[object], kwargs: Mapping[str, object]) -> list[str]:
        """The secret values of a call as texts, the longest first."""
        found: set[str] = set()
        for position, value in enumerate(args):
            _gather(value, found, is_inside=self.is_at(position), depth=0)
        for name, value in kwargs.items():
            _gather(value, found, is_inside=self.is_named(name), depth=0)
        return sorted(found, key=len, reverse=True)


NO_SECRETS = SecretArguments()


def _gather(value: object, found: set[str], *, is_inside: bool, depth: int) -> None:
    if depth > _DEEPEST or len(found) >= _MOST_VALUES:
        return
    if isinstance(value, Mapping):
        for key, item in value.items():
            is_item_inside = is_inside or is_secret_name(str(key))
            _gather(item, found, is_inside=is_item_inside, depth=depth + 1)
    elif isinstance(value, list | tuple | set | frozenset):
        for item in value:
            _gather(item, found, is_inside=is_inside, depth=depth + 1)
    elif is_inside and value is not None and not isinstance(value, bool):
        found.update(text for text in _forms(value) if len(text) >= _SHORTEST_VALUE)


def _forms(value: object) -> Iterator[str]:
    """As it may stand in an error: plain, as Python shows it, as part of a URL."""
    text = value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)
    yield text
    yield repr(text)[1:-1]
    yield quote(text, safe="")
    if isinstance(value, bytes):
        yield repr(value)[2:-1]


def without_values(text: str, values: Sequence[str]) -> str:
    """The text with the mask in place of each value; `values` has the longest first."""
    if not any(value in text for value in values):
        return text
    # In one pass: a value that is part of the mask, or of what stands around it, changes nothing twice.
    return re.sub("|".join(map(re.escape, values)), MASK, text)
