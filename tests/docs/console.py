"""Console blocks: the commands behind `$`, and whether what they print has the shape that the page shows.

Numbers stand for any number, `…` for anything in a line, a line of nothing but `…` for any lines. A command
without lines below it may print what it likes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_NUMBER = re.compile(r"\d[\d.,:]*")
_SPACE = re.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class Command:
    """One command and the lines below it."""

    text: str
    output: tuple[str, ...]


def commands_of(code: str) -> list[Command]:
    """The commands of a block; a line that ends in a backslash goes on in the next."""
    commands: list[tuple[str, list[str]]] = []
    for line in code.splitlines():
        if line.startswith("$ "):
            commands.append((line.removeprefix("$ "), []))
        elif commands and not commands[-1][1] and commands[-1][0].endswith("\\"):
            commands[-1] = (f"{commands[-1][0]}\n{line}", [])
        elif commands:
            commands[-1][1].append(line)
    return [Command(text, tuple(output)) for text, output in commands]


def has_shape(expected: tuple[str, ...], output: str) -> bool:
    """Whether the output looks as the page shows it."""
    if not expected:
        return True
    pattern = "".join(_line_pattern(line) for line in expected if line.strip())
    printed = "".join(f"{line.strip()}\n" for line in output.splitlines() if line.strip())
    return re.fullmatch(pattern, printed) is not None


def _line_pattern(line: str) -> str:
    if line.strip() == "…":
        return r"(?:.*\n)*?"
    return "[^\n]*".join(_words_pattern(part) for part in line.strip().split("…")) + r"\n"


def _words_pattern(text: str) -> str:
    pattern = re.escape(text)
    pattern = re.sub(r"(?:\\?\s)+", r"\\s+", pattern)
    return re.sub(r"\d(?:[\d,:]|\\\.)*", r"[\\d.,:]+", pattern)
