"""What travels to a server and back: commands, the bytes they become, and raw replies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias, cast

import hiredis

Command: TypeAlias = tuple[str | bytes | int | float, ...]
"""A command and its arguments; floats travel with Python's shortest exact text."""


NO_SCRIPT = "NOSCRIPT"
"""The code of a server that does not know a script by its hash."""


@dataclass(frozen=True, slots=True)
class ReplyError:
    """An error reply that is an answer: NOSCRIPT, or a refusal of our own scripts (MQW_…)."""

    code: str
    text: str


Reply: TypeAlias = "bytes | int | ReplyError | list[Reply] | None"
"""What a server answered to one command, undecoded (RESP2)."""

# hiredis types its argument as a tuple of one.
_pack_one = cast("Callable[[Command], bytes]", hiredis.pack_command)


def pack(commands: Sequence[Command]) -> bytes:
    """The bytes of all commands, for one write."""
    if len(commands) == 1:
        return _pack_one(commands[0])
    return b"".join([_pack_one(command) for command in commands])
