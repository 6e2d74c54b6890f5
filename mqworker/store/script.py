"""Scripts: the Lua files beside each model, put together and named by their hash; calls of them as values."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files
from typing import Any, Generic, TypeAlias, TypeVar

from mqworker.store.command import Command

ReplyT = TypeVar("ReplyT")

RawReply: TypeAlias = Any
"""A reply as it came: its shape is the script's contract, read by the call's `decode` and nowhere else."""

_SHARED_PARTS = files("mqworker.store") / "scripts" / "parts"
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

    def command(self, numbering: tuple[str, int | str] | None) -> Command:
        """The command as it is sent as a rule: the server knows the script by its hash."""
        if numbering is None:
            return ("EVALSHA", self.script.sha, len(self.keys), *self.keys, *self.arguments)
        return ("EVALSHA", self.script.sha, len(self.keys), *self.keys, *numbering, *self.arguments)

    def command_with_source(self, numbering: tuple[str, int | str] | None) -> Command:
        """The command for a server that forgot the script: after a restart, a failover, SCRIPT FLUSH."""
        return ("EVAL", self.script.source, *self.command(numbering)[2:])


def scripts_of(package: str | None) -> Callable[[str], Script]:
    """The scripts that lie in `scripts/` of a package, by name: `scripts_of(__package__)("claim")`."""
    if not package:  # __package__ is None for a module that is run as a program
        raise ValueError("scripts belong to a package")
    return partial(_script, package)


@cache
def _script(package: str, name: str) -> Script:
    folder = files(package) / "scripts"
    lines = (folder / f"{name}.lua").read_text().splitlines()
    source = "\n".join(
        part_of(package, line.removeprefix(_INCLUDE)) if line.startswith(_INCLUDE) else line for line in lines
    )
    return Script(name, source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest())


@cache
def part_of(package: str, name: str) -> str:
    """A text that scripts share: those of one package (`scripts/parts/`), or of all (beside this module)."""
    own = files(package) / "scripts" / "parts" / f"{name}.lua"
    return (own if own.is_file() else _SHARED_PARTS / f"{name}.lua").read_text()
