"""Whether a plain value fits an annotation known only as text: `int`, `str | None`, `list[int]`. Pure.

Only names whose meaning is beyond doubt are judged; anything else fits, and the worker decides.
"""

from __future__ import annotations

import re

from mqworker.errors import InvalidArgument
from mqworker.model.names import shown

_TYPES: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "float": (int, float),
    "str": (str,),
    "bool": (bool,),
    "bytes": (bytes,),
    "None": (type(None),),
    "NoneType": (type(None),),
    "list": (list, tuple),
    "dict": (dict,),
}
_OPTIONAL = re.compile(r"(?:typing\.)?Optional\[(.*)\]")
_PART = re.compile(r"([A-Za-z_][A-Za-z0-9_.]*)(?:\[.*\])?")


def check_plain(what: str, annotation: str, value: object) -> None:
    """Raise `InvalidArgument` when the value surely does not fit."""
    names = _names(annotation)
    if names is None:
        return
    if not any(_fits(name, value) for name in names):
        raise InvalidArgument(f"{what} is {shown(value)}; accepted is {annotation}")


def _names(annotation: str) -> list[str] | None:
    """The alternatives; None where one of them is not known here."""
    text = annotation.strip()
    optional = _OPTIONAL.fullmatch(text)
    parts = _split(optional[1] if optional else text) + (["None"] if optional else [])
    found = [_PART.fullmatch(part.strip()) for part in parts]
    names = [match[1] for match in found if match is not None]
    return names if len(names) == len(parts) and all(name in _TYPES for name in names) else None


def _split(text: str) -> list[str]:
    """At the bars that stand outside of brackets."""
    parts, depth = [""], 0
    for character in text:
        depth += (character == "[") - (character == "]")
        if character == "|" and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def _fits(name: str, value: object) -> bool:
    is_bool = isinstance(value, bool)
    return isinstance(value, _TYPES[name]) and (not is_bool or name == "bool")
