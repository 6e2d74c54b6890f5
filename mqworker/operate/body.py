"""The body of a message for people: arguments decoded, secrets masked by name, everything escaped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mqworker.errors import InvalidMessage
from mqworker.model.delivery import Delivery
from mqworker.model.envelope import decode_call
from mqworker.model.message import NO_TASK
from mqworker.operate.wording import escaped, safe
from mqworker.redaction import MASK, is_secret_name

LONGEST_VALUE = 2_000
_DEEPEST = 20


def body_lines(delivery: Delivery) -> list[tuple[str, str]]:
    """Labels and texts: the arguments of a call, or the bytes of a plain element."""
    if delivery.task != NO_TASK:
        try:
            call = decode_call(delivery.body)
        except InvalidMessage as error:
            return [("body", f"not a call: {safe(str(error))}"), ("", _as_text(delivery.body))]
        positional = [(f"args[{i}]", shown_value(value)) for i, value in enumerate(call.args)]
        named = [(safe(name), _named(name, value)) for name, value in call.kwargs.items()]
        headers = [(f"header {safe(name)}", _named(name, text)) for name, text in call.headers.items()]
        return [*positional, *named, *headers] or [("args", "none")]
    return [("body", _as_text(delivery.body))]


# Any: what JSON can hold.
def masked_arguments(delivery: Delivery) -> dict[str, Any] | None:
    """The arguments of a call as plain values, secrets masked by name; None where the body is no call."""
    try:
        call = decode_call(delivery.body) if delivery.task != NO_TASK else None
    except InvalidMessage:
        return None
    if call is None:
        return None
    return {
        "args": [plain_masked(value) for value in call.args],
        "kwargs": plain_masked(call.kwargs),
    }


def plain_masked(value: object) -> Any:  # noqa: ANN401 - what JSON can hold
    """A value as it is shown: plain, and secrets masked by name."""
    return _plain(_masked(value, 0))


def _plain(value: object) -> Any:  # noqa: ANN401 - what JSON can hold
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    return value if isinstance(value, str | int | float | bool | None) else safe(repr(value), LONGEST_VALUE)


def _named(name: str, value: object) -> str:
    return MASK if is_secret_name(name) else shown_value(value)


def shown_value(value: object) -> str:
    """A value on one line, without what stands under a telling name."""
    return safe(repr(_masked(value, 0)), LONGEST_VALUE)


def _masked(value: object, depth: int) -> object:
    """The value without what stands under a telling name, at any depth."""
    if depth > _DEEPEST:
        return "…"
    if isinstance(value, Mapping):
        return {
            key: MASK if is_secret_name(str(key)) else _masked(item, depth + 1) for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        items = [_masked(item, depth + 1) for item in value]
        return items if isinstance(value, list) else tuple(items)
    return value


def _as_text(body: bytes) -> str:
    return escaped(safe(body.decode(errors="backslashreplace"), LONGEST_VALUE))
