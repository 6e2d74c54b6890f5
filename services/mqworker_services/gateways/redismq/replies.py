"""RESP replies: values in, bytes out, in both versions of the protocol. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TypeAlias

RESP2, RESP3 = 2, 3


@dataclass(frozen=True, slots=True)
class Simple:
    """A word such as OK."""

    text: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error: a code in capitals, and a sentence."""

    text: str


@dataclass(frozen=True, slots=True)
class Table:
    """Names and values: a map in RESP3, a flat array before."""

    rows: dict[str, Value]


Value: TypeAlias = "str | bytes | int | Simple | Refusal | Table | Sequence[Value] | None"

OK = Simple("OK")


def encode(value: Value, version: int) -> bytes:
    """A reply as bytes."""
    parts: list[bytes] = []
    _append(parts, value, version)
    return b"".join(parts)


def encode_runs(ids: Sequence[str], counts: Sequence[int]) -> bytes:
    """The replies to pushes in a row, an array of ids for each: what most replies are, in fewer steps."""
    if len(counts) == len(ids):
        return "".join([f"*1\r\n${len(item)}\r\n{item}\r\n" for item in ids]).encode()
    each = iter(ids)
    return b"".join(encode(list(islice(each, count)), RESP2) for count in counts)


def encode_elements(elements: Sequence[tuple[str, bytes]]) -> bytes:
    """An array of (id, element), in the same way."""
    parts = [b"*%d\r\n" % len(elements)]
    for item, element in elements:
        head = f"*2\r\n${len(item)}\r\n{item}\r\n${len(element)}\r\n".encode()
        parts += (head, element, b"\r\n")
    return b"".join(parts)


def _append(parts: list[bytes], value: Value, version: int) -> None:
    match value:
        case bytes():
            parts += (b"$%d\r\n" % len(value), value, b"\r\n")
        case str():
            _append(parts, value.encode(), version)
        case int():
            parts.append(b":%d\r\n" % value)
        case None:
            parts.append(b"_\r\n" if version == RESP3 else b"$-1\r\n")
        case Simple(text):
            parts.append(b"+%b\r\n" % _line(text))
        case Refusal(text):
            parts.append(b"-%b\r\n" % _line(text))
        case Table(rows):
            parts.append(b"%%%d\r\n" % len(rows) if version == RESP3 else b"*%d\r\n" % (2 * len(rows)))
            for name, item in rows.items():
                _append(parts, name, version)
                _append(parts, item, version)
        case _:
            parts.append(b"*%d\r\n" % len(value))
            for item in value:
                _append(parts, item, version)


def _line(text: str) -> bytes:
    """On one line, whatever a client wrote that is echoed in it."""
    return " ".join(text.split()).encode("utf-8", "replace")
