"""Why a value cannot be sent, in words and with its place: looked for only after packing it failed."""

import dataclasses
import enum
import math
from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from uuid import UUID

from mqworker.model.foreign_types import NOT_LOWERED, lowered
from mqworker.model.names import shown
from mqworker.model.packed_limits import DEEPEST, MOST_NODES
from mqworker.model.value_codec import ACCEPTED

_SMALLEST_INT, _LARGEST_INT = -(2**63), 2**64 - 1
_LEAVES = (type(None), bool, bytes, bytearray, memoryview, datetime, date, Decimal, UUID)


def problem_with(name: str, value: object) -> str | None:
    """What is wrong with the value, by the place below `name`; None when nothing was found."""
    # The call itself is two lists deep before the first argument.
    return _Search().look(name, value, 2)


class _Search:
    """A walk through a value, with what lies on the way from the top to here."""

    def __init__(self) -> None:
        self._above: set[int] = set()
        self._nodes = 0

    def look(self, place: str, value: object, depth: int) -> str | None:
        self._nodes += 1
        if self._nodes > MOST_NODES:
            return f"{place}: holds more than {MOST_NODES:,} values, which cannot be sent as one message"
        if id(value) in self._above:
            return f"{place}: contains itself, a cyclic value cannot be sent"
        if isinstance(value, enum.Enum):
            return self.look(place, value.value, depth)
        if isinstance(value, _LEAVES):
            return None
        if isinstance(value, int | float | str):
            return _problem_with_leaf(place, value)
        try:
            plain = lowered(value)
        except Exception as error:  # noqa: BLE001 - code of the application, or of a library
            return f"{place}: this {type(value).__qualname__} cannot be sent: {type(error).__name__}: {error}"
        if plain is not NOT_LOWERED:
            return self.look(place, plain, depth)
        return self._look_inside(place, value, depth)

    def _look_inside(self, place: str, value: object, depth: int) -> str | None:
        if depth == DEEPEST:
            return f"{place}: is nested more than {DEEPEST} deep"
        parts = _parts(place, value)
        if parts is None:
            hint = "; send .item() or .tolist() of it" if type(value).__module__ == "numpy" else ""
            return f"{place}: type {type(value).__qualname__} cannot be sent{hint}; accepted are {ACCEPTED}"
        self._above.add(id(value))
        for part_place, part in parts:
            problem = self.look(part_place, part, depth + 1)
            if problem is not None:
                return problem
        self._above.discard(id(value))
        return None


def _parts(place: str, value: object) -> Iterator[tuple[str, object]] | None:
    if isinstance(value, dict):
        return _entries(place, value)
    if isinstance(value, list | tuple):
        return ((f"{place}[{position}]", item) for position, item in enumerate(value))
    if isinstance(value, set | frozenset):
        return ((f"{place}, an item", item) for item in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return (
            (f"{place}.{field.name}", getattr(value, field.name))
            for field in dataclasses.fields(value)
            if field.init
        )
    return None


def _entries(place: str, value: dict[object, object]) -> Iterator[tuple[str, object]]:
    for key, item in value.items():
        yield f"{place}, key {shown(key)}", key
        yield f"{place}[{shown(key)}]", item


def _problem_with_leaf(place: str, value: float | str) -> str | None:
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            return f"{place}: the text {shown(value)} holds half a character pair, which is not UTF-8"
    elif isinstance(value, int) and not _SMALLEST_INT <= value <= _LARGEST_INT:
        return f"{place}: an int beyond 64 bits cannot be sent; send it as str or Decimal"
    elif not math.isfinite(value):
        return f"{place}: {value} cannot be sent; accepted are finite floats"
    return None
