"""Rows: what a task that takes batches is called with, one at a time, and its function gets as a list.

Looked at where the task is defined: what does not fit is said there, and not by a worker.
"""

from __future__ import annotations

import collections.abc
import inspect
import re
import types
import typing
from typing import Any

from mqworker.errors import ConfigurationError
from mqworker.model.batch import field_names
from mqworker.model.rate import argument_names
from mqworker.tasks.injection import resolved_hints

NO_LIST = object()
_LISTS = (list, collections.abc.Sequence)
_LIST_TEXT = re.compile(r"(?:[A-Za-z_][\w.]*\.)?(?:list|List|Sequence)\s*(?:\[(.*)\])?", re.ASCII | re.DOTALL)
_RULE = "a function with one parameter that is a list, such as `def load(rows: list[Row])`"


# Any: an annotation can be anything.
def item_hint(hint: Any) -> Any:  # noqa: ANN401 - see above
    """The annotation of one item of a list; `NO_LIST` for no list. What says nothing may be one."""
    if hint is inspect.Parameter.empty or hint is Any or hint in _LISTS:
        return inspect.Parameter.empty
    if isinstance(hint, str):
        found = _LIST_TEXT.fullmatch(hint.strip("'\" "))
        return NO_LIST if found is None else found[1] or inspect.Parameter.empty
    if typing.get_origin(hint) is typing.Annotated:
        return item_hint(typing.get_args(hint)[0])
    return (typing.get_args(hint) or (Any,))[0] if typing.get_origin(hint) in _LISTS else NO_LIST


def row_parameter(parameter: inspect.Parameter) -> inspect.Parameter:
    """The parameter of a function that takes a list as its callers see it, who give one item."""
    item = item_hint(parameter.annotation)
    return parameter if item is NO_LIST else parameter.replace(annotation=item)


def check_rows(task: str, function: Any, own: tuple[inspect.Parameter, ...]) -> None:  # noqa: ANN401
    """Raise `ConfigurationError` for a function that cannot take batches. `own` are what callers give."""
    if len(own) != 1 or own[0].kind in (own[0].VAR_POSITIONAL, own[0].VAR_KEYWORD):
        names = ", ".join(each.name for each in own) or "none"
        raise ConfigurationError(f"{task} has batch=... and the parameters {names}; accepted is {_RULE}")
    hints = resolved_hints(function)
    hint = hints.get(own[0].name, function.__annotations__.get(own[0].name, inspect.Parameter.empty))
    if item_hint(hint) is NO_LIST:
        told = hint if isinstance(hint, str) else inspect.formatannotation(hint)
        raise ConfigurationError(
            f"{task} has batch=... and {own[0].name} is annotated as {told}; accepted is {_RULE}"
        )
    returned = hints.get("return", function.__annotations__.get("return"))
    if returned not in (None, types.NoneType, "None") and item_hint(returned) is NO_LIST:
        raise ConfigurationError(
            f"{task} has batch=... and is annotated to return {returned}; accepted is a list, one item for "
            "each call, or None"
        )


def names_for_keys(function: Any, own: tuple[inspect.Parameter, ...]) -> frozenset[str] | None:  # noqa: ANN401
    """Of what keys can be made: the parameter and the fields of a row; None where these cannot be told."""
    hints = resolved_hints(function)
    item = item_hint(hints.get(own[0].name, own[0].annotation))
    if typing.get_origin(item) is typing.Annotated:
        item = typing.get_args(item)[0]
    fields = field_names(item)
    if fields:
        return fields | {own[0].name}
    is_plain = item in (str, bytes, int, float, bool)
    return frozenset({own[0].name}) if is_plain else None


def unknown_names(template: str, known: frozenset[str] | None) -> set[str]:
    """What a key template names that nobody has."""
    return set() if known is None else set(argument_names(template)) - known
