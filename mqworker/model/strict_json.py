"""JSON from strangers: read only what is unambiguous and small enough, and say why the rest is refused.

Python's own reader takes NaN, the last of two equal keys, numbers without end, halves of surrogate pairs and
any depth up to a crash. Depth and size are looked at before anything is built.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import Any, NoReturn

from mqworker.errors import InvalidMessage

_SMALLEST_INT, _LARGEST_INT = -(2**63), 2**64 - 1
_MOST_INT_CHARACTERS = 20

# An escaped character, a container with nothing in it, or a sign that has a meaning outside of texts.
_SIGN = re.compile(r'\\.|[\[{][ \t\r\n]*[\]}]|["\[\]{},]', re.DOTALL)


@dataclass(frozen=True, slots=True)
class JsonLimits:
    """How much is read."""

    most_bytes: int = 262_144
    deepest: int = 32
    most_nodes: int = 10_000
    """Values of any kind, the containers included."""
    longest_key_bytes: int = 256


def read_json(data: bytes, limits: JsonLimits) -> Any:  # noqa: ANN401 - whatever the text says
    """The value that a JSON text in UTF-8 says. Raises `InvalidMessage`."""
    if len(data) > limits.most_bytes:
        raise InvalidMessage(f"a JSON text of {len(data):,} bytes; accepted are up to {limits.most_bytes:,}")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise InvalidMessage(f"a JSON text that is not UTF-8: byte {error.start} does not fit") from error
    _check_shape(text, limits)
    try:
        value = _decoder(limits).decode(text)
    except (ValueError, RecursionError) as error:
        raise InvalidMessage(f"not a JSON text: {error}") from error
    if "\\u" in text:
        _refuse_lone_surrogates(value)
    return value


def write_json(value: object) -> bytes | None:
    """The value as a compact JSON text in UTF-8; None where JSON has no words for it."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError):
        return None


def _check_shape(text: str, limits: JsonLimits) -> None:
    """Depth and number of values, by signs alone; whether they stand where they may, the reader sees."""
    depth, nodes, is_in_text = 0, 1, False
    for match in _SIGN.finditer(text):
        sign = match[0]
        if sign == '"':
            is_in_text = not is_in_text
        elif is_in_text:
            # An empty container in a text may hide nothing; a quotation mark is never inside such a sign.
            continue
        elif sign in "]}":
            depth -= 1
        elif sign == ",":
            nodes += 1
        elif sign[0] in "[{":
            if depth + 1 > limits.deepest:
                raise InvalidMessage(f"a JSON text deeper than {limits.deepest} levels")
            if len(sign) == 1:
                depth, nodes = depth + 1, nodes + 1
        if nodes > limits.most_nodes:
            raise InvalidMessage(f"a JSON text of more than {limits.most_nodes:,} values")


def _decoder(limits: JsonLimits) -> json.JSONDecoder:
    def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
        value = dict(found)
        if len(value) != len(found):
            raise ValueError("a key stands twice in one object")
        for key in value:
            if len(key) > limits.longest_key_bytes or len(_encoded(key)) > limits.longest_key_bytes:
                raise ValueError(f"a key longer than {limits.longest_key_bytes} bytes")
        return value

    return json.JSONDecoder(
        object_pairs_hook=pairs, parse_int=_whole, parse_float=_finite, parse_constant=_refuse_constant
    )


def _encoded(key: str) -> bytes:
    return key.encode(errors="replace")


def _whole(text: str) -> int:
    if len(text) <= _MOST_INT_CHARACTERS:
        number = int(text)
        if _SMALLEST_INT <= number <= _LARGEST_INT:
            return number
    raise ValueError(f"a whole number of more than 64 bits: {text[:_MOST_INT_CHARACTERS]}...")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"a number too large: {text[:_MOST_INT_CHARACTERS]}")
    return number


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a number")


def _refuse_lone_surrogates(value: object) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise InvalidMessage("a JSON text with half of a surrogate pair") from error
