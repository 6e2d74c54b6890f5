"""Values as kombu has them in JSON: {"__type__": ..., "__value__": ...} is what JSON has no words for."""

from __future__ import annotations

import base64
import dataclasses
import enum
from collections.abc import Callable, Mapping
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any
from uuid import UUID

from mqworker.errors import InvalidMessage
from mqworker.model.names import shown

_TYPE, _VALUE = "__type__", "__value__"
_KEYS = {_TYPE, _VALUE}


def _date(text: str) -> date:
    return datetime.fromisoformat(text).date()


# Any: what JSON can hold.
def _uuid(value: Any) -> UUID:  # noqa: ANN401 - see above
    return UUID(hex=value["hex"])


_DECODE_BY_TYPE: Mapping[str, Callable[[Any], object]] = {
    "datetime": datetime.fromisoformat,
    "date": _date,
    "decimal": Decimal,
    "uuid": _uuid,
    "bytes": str.encode,
    "base64": lambda text: base64.b64decode(text, validate=True),
}


def from_kombu(value: object) -> object:
    """The value in what a bounded reader made of the JSON; raises `InvalidMessage`."""
    if isinstance(value, list):
        return [from_kombu(item) for item in value]
    if not isinstance(value, dict):
        return value
    if value.keys() != _KEYS:
        return {name: from_kombu(item) for name, item in value.items()}
    kind = value[_TYPE]
    decode = _DECODE_BY_TYPE.get(kind) if isinstance(kind, str) else None
    if decode is None:
        accepted = ", ".join(sorted(_DECODE_BY_TYPE))
        raise InvalidMessage(f"a value of the type {shown(kind)}; accepted are {accepted}")
    try:
        return decode(value[_VALUE])
    except (ValueError, TypeError, KeyError, AttributeError, InvalidOperation) as error:
        raise InvalidMessage(f"a value of the type {kind} cannot be read: {shown(value[_VALUE])}") from error


def to_kombu(value: object) -> object:
    """The value in words of JSON, as kombu's decoder reads it; raises `TypeError` where there are none."""
    if value is None or (isinstance(value, bool | int | float | str) and not isinstance(value, enum.Enum)):
        return value
    if isinstance(value, dict):
        return {_name(name): to_kombu(item) for name, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [to_kombu(item) for item in value]
    return _marked(value)


def _marked(value: object) -> object:
    match value:
        case datetime():
            return _as("datetime", value.isoformat())
        case date():
            return _as("date", value.isoformat())
        case Decimal():
            return _as("decimal", str(value))
        case UUID():
            return _as("uuid", {"hex": value.hex})
        case bytes():
            return _as("base64", base64.b64encode(value).decode())
        case enum.Enum():
            return to_kombu(value.value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {each.name: to_kombu(getattr(value, each.name)) for each in dataclasses.fields(value)}
    raise TypeError(f"a {type(value).__qualname__} has no words in JSON")


def _name(name: object) -> str:
    # As Python's own writer does it; others would be lost in silence.
    if isinstance(name, str):
        return name
    if name is None or isinstance(name, bool):
        return {None: "null", True: "true", False: "false"}[name]
    if isinstance(name, int | float):
        return repr(name)
    raise TypeError(f"a {type(name).__qualname__} cannot be a key in JSON")


def _as(kind: str, value: object) -> dict[str, object]:
    return {_TYPE: kind, _VALUE: value}
