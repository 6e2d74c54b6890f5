"""Scripts: the Lua files of scripts/, put together and named by their hash; and calls of them as values."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Generic, TypeAlias, TypeVar

from mqworker.store.command import Command

ReplyT = TypeVar("ReplyT")

RawReply: TypeAlias = Any
"""A reply as it came: its shape is the script's contract, read by the call's `decode` and nowhere else."""

_FOLDER = files("mqworker.store") / "scripts"
_INCLUDE = "-- @include "


@dataclass(frozen=True, slots=True)
class Script:
    """One state change, as text and as the hash under which the server keeps it."""

    name: str
    source: str
    sha: str


@dataclass(slots=True)  # not frozen, which would take longer to make than to send; treat it as read-only
class Call(Generic[ReplyT]):
    """A script with its keys and arguments, and how to read what it answers. Nothing is sent yet."""

    script: Script
    keys: tuple[str, ...]
    arguments: tuple[str | bytes | int, ...]
    decode: Callable[[RawReply], ReplyT]
    is_numbered: bool = False
    """Whether the script recognises a repeated call by the lane and number that the store puts first."""

    def command(self, numbering: tuple[str, int] | None) -> Command:
        """The command as it is sent as a rule: the server knows the script by its hash."""
        if numbering is None:
            return ("EVALSHA", self.script.sha, len(self.keys), *self.keys, *self.arguments)
        return ("EVALSHA", self.script.sha, len(self.keys), *self.keys, *numbering, *self.arguments)

    def command_with_source(self, numbering: tuple[str, int] | None) -> Command:
        """The command for a server that forgot the script: after a restart, a failover, SCRIPT FLUSH."""
        return ("EVAL", self.script.source, *self.command(numbering)[2:])


@cache
def script(name: str) -> Script:
    """The script `scripts/<name>.lua`, with the parts it includes in place."""
    lines = (_FOLDER / f"{name}.lua").read_text().splitlines()
    source = "\n".join(
        part(line.removeprefix(_INCLUDE)) if line.startswith(_INCLUDE) else line for line in lines
    )
    return Script(name, source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest())


@cache
def part(name: str) -> str:
    """A text that scripts share, `scripts/parts/<name>.lua`."""
    return (_FOLDER / "parts" / f"{name}.lua").read_text()
