"""Annotations as instructions: how a received value becomes what a parameter asks for.

Only types that the receiving code itself names are ever built; the bytes say nothing about types.
"""

import dataclasses
import enum
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any

from mqworker.errors import InvalidMessage
from mqworker.model.foreign_types import Rebuild as Rebuild  # noqa: PLC0414 - for those who use this module
from mqworker.model.foreign_types import rebuild_of
from mqworker.model.names import shown

_SEQUENCES: dict[object, Callable[[Any], Any]] = {list: list, set: set, frozenset: frozenset}


def hints_of(annotated: Callable[..., object] | type) -> dict[str, Any]:
    """The resolved annotations; one that names something unknown at run time is left out."""
    try:
        return typing.get_type_hints(annotated, include_extras=True)
    except (NameError, AttributeError, TypeError):
        plain = getattr(annotated, "__annotations__", {})
        return {name: hint for name, hint in plain.items() if not isinstance(hint, str)}


def rebuild_by_parameter(hints: Mapping[str, Any]) -> dict[str, Rebuild]:
    """For each parameter whose values must be rebuilt, how; all others are missing."""
    found = {name: rebuild_for(hint) for name, hint in hints.items()}
    return {name: rebuild for name, rebuild in found.items() if rebuild is not None}


def rebuild_for(hint: object, _inside: tuple[object, ...] = ()) -> Rebuild | None:
    """How values for this annotation are rebuilt; None where they arrive as they are."""
    if isinstance(hint, type) and not typing.get_origin(hint):
        return _class_rebuild(hint, _inside)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return rebuild_for(arguments[0], _inside)
    if origin in (typing.Required, typing.NotRequired):
        return rebuild_for(arguments[0], _inside)
    if isinstance(origin, type) and rebuild_of(origin) is not None:
        return rebuild_of(hint) or rebuild_of(origin)  # a generic model, a generic struct
    if origin in (typing.Union, types.UnionType):
        return _union_rebuild(arguments, _inside)
    return _container_rebuild(origin, arguments, _inside) if arguments else None


def _class_rebuild(kind: type, inside: tuple[object, ...]) -> Rebuild | None:
    if issubclass(kind, enum.Enum):
        return _enum_rebuild(kind)
    foreign = rebuild_of(kind)
    if foreign is not None:
        return foreign
    if typing.is_typeddict(kind):
        return _typed_dict_rebuild(kind, inside)
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return _named_tuple_rebuild(kind, inside)
    return _dataclass_rebuild(kind, inside) if dataclasses.is_dataclass(kind) else None


def _container_rebuild(
    origin: object, arguments: tuple[object, ...], inside: tuple[object, ...]
) -> Rebuild | None:
    if origin in _SEQUENCES:
        return _items_rebuild(_SEQUENCES[origin], rebuild_for(arguments[0], inside))
    if origin is tuple:
        return _tuple_rebuild(arguments, inside)
    if origin is dict:
        return _dict_rebuild(rebuild_for(arguments[0], inside), rebuild_for(arguments[1], inside))
    return None


# Any: a TypedDict and a NamedTuple have no type of their own.
def _typed_dict_rebuild(kind: Any, inside: tuple[object, ...]) -> Rebuild:  # noqa: ANN401 - see above
    if kind in inside:
        return lambda value: _rebuild_late(kind, value)
    rebuilds = rebuild_by_parameter_of(kind, (*inside, kind))
    # Of annotations that are texts, Python itself does not know which are NotRequired.
    origins = {name: typing.get_origin(hint) for name, hint in hints_of(kind).items()}
    known = origins.keys()
    required = {
        name
        for name in known
        if origins[name] is typing.Required
        or (name in kind.__required_keys__ and origins[name] is not typing.NotRequired)
    }

    def rebuild(value: object) -> object:
        if not isinstance(value, dict) or not required <= value.keys() <= known:
            raise InvalidMessage(
                f"{shown(value)} is no {kind.__qualname__}, which has {', '.join(sorted(required))}"
            )
        return {name: rebuilds[name](item) if name in rebuilds else item for name, item in value.items()}

    return rebuild


def _named_tuple_rebuild(kind: Any, inside: tuple[object, ...]) -> Rebuild:  # noqa: ANN401 - see above
    if kind in inside:
        return lambda value: _rebuild_late(kind, value)
    rebuilds = rebuild_by_parameter_of(kind, (*inside, kind))

    def rebuild(value: object) -> object:
        if not isinstance(value, tuple | list) or len(value) > len(kind._fields):
            raise InvalidMessage(f"{shown(value)} is no {kind.__qualname__}")
        named = dict(zip(kind._fields, value, strict=False))
        try:
            return kind(
                **{name: rebuilds[name](item) if name in rebuilds else item for name, item in named.items()}
            )
        except TypeError as error:
            raise InvalidMessage(f"no {kind.__qualname__} can be made of {shown(value)}: {error}") from error

    return rebuild


def _enum_rebuild(kind: type[enum.Enum]) -> Rebuild:
    def rebuild(value: object) -> object:
        try:
            return kind(value)
        except ValueError as error:
            raise InvalidMessage(f"{shown(value)} is no {kind.__qualname__}") from error

    return rebuild


def _dataclass_rebuild(kind: type, inside: tuple[object, ...]) -> Rebuild:
    if kind in inside:  # refers to itself: resolved when a value is there, or this would not end
        return lambda value: _rebuild_late(kind, value)
    rebuilds = rebuild_by_parameter_of(kind, (*inside, kind))
    names = {field.name for field in dataclasses.fields(kind) if field.init}

    def rebuild(value: object) -> object:
        if not isinstance(value, dict) or not value.keys() <= names:
            raise InvalidMessage(f"{shown(value)} is no {kind.__qualname__}")
        try:
            return kind(
                **{name: rebuilds[name](item) if name in rebuilds else item for name, item in value.items()}
            )
        except (TypeError, ValueError) as error:
            raise InvalidMessage(f"no {kind.__qualname__} can be made of {shown(value)}: {error}") from error

    return rebuild


def _rebuild_late(kind: type, value: object) -> object:
    rebuild = _class_rebuild(kind, ())
    return value if rebuild is None else rebuild(value)


def rebuild_by_parameter_of(kind: type, inside: tuple[object, ...]) -> dict[str, Rebuild]:
    """The same for the fields of a dataclass."""
    found = {name: rebuild_for(hint, inside) for name, hint in hints_of(kind).items()}
    return {name: rebuild for name, rebuild in found.items() if rebuild is not None}


def _union_rebuild(members: tuple[object, ...], inside: tuple[object, ...]) -> Rebuild | None:
    """The first member that fits; where none does, the value stays as it is if there is a plain member."""
    rebuilds = [rebuild for rebuild in (rebuild_for(each, inside) for each in members) if rebuild is not None]
    if not rebuilds:
        return None
    has_plain = len(rebuilds) < len([each for each in members if each is not type(None)])

    def rebuild(value: object) -> object:
        if value is None and type(None) in members:
            return None
        problem: InvalidMessage | None = None
        for each in rebuilds:
            try:
                return each(value)
            except InvalidMessage as error:
                problem = error
        if problem is not None and not has_plain:
            raise problem
        return value

    return rebuild


def _items_rebuild(kind: Callable[[Any], Any], item: Rebuild | None) -> Rebuild | None:
    if item is None:
        return None
    return lambda value: (
        kind(item(each) for each in value) if isinstance(value, list | set | frozenset) else value
    )


def _tuple_rebuild(arguments: tuple[object, ...], inside: tuple[object, ...]) -> Rebuild | None:
    rebuilds = [rebuild_for(each, inside) for each in arguments if each is not ...]
    if not any(rebuilds):
        return None

    def rebuild(value: object) -> object:
        if not isinstance(value, tuple | list):
            return value
        each = rebuilds * len(value) if ... in arguments else rebuilds
        pairs = zip(value, each, strict=False)
        return tuple(item if how is None else how(item) for item, how in pairs)

    return rebuild


def _dict_rebuild(key: Rebuild | None, item: Rebuild | None) -> Rebuild | None:
    if key is None and item is None:
        return None

    def rebuild(value: object) -> object:
        if not isinstance(value, dict):
            return value
        return {
            name if key is None else key(name): each if item is None else item(each)
            for name, each in value.items()
        }

    return rebuild
