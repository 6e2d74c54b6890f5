"""The pages of the documentation as a reader finds them: blocks of code, and what a marker says about each.

A comment on the line before a block says how it is run; none is needed in the usual cases:

    <!-- run: no, it needs a package index -->     exempt, with the reason
    <!-- run: background -->                       console: left running until the page ends
    <!-- run: exit 1 -->                           console: its last command ends with that code
    <!-- run: raises TaskFailed -->                python: ends with that error
    <!-- node: shop:app --threads 4 -->            anywhere: how the node of the page is started
    // npm install rsmq@0.12.4                     javascript: the first line, what the block needs
    <!-- python title="shop.py"                    a block that readers do not see, up to a line of -->;
                                                   what a page about "your app" needs of one
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"

PROGRAMS = {"python", "console", "javascript"}
DATA = {"json", "toml", "yaml", "ini", "procfile", "dockerfile"}
PROSE = {"text"}

_FENCE = re.compile(r"(?P<indent> *)```(?P<language>[a-z]*)(?P<attributes>[^`\n]*)")
_HIDDEN = re.compile(r"(?P<indent>)<!-- (?P<language>python|console)(?P<attributes>(?: title=\"[^\"]+\")?)")
_MARKER = re.compile(r" *<!-- run: (?P<words>.+?) -->")
_NODE = re.compile(r"<!-- node: (?P<words>.+?) -->")
_TITLE = re.compile(r'title="(?P<title>[^"]+)"')


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block."""

    page: Path
    line: int
    """Of its first line of code, from 1."""
    language: str
    title: str | None
    marker: str | None
    code: str

    @property
    def place(self) -> str:
        """Where a person finds it."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def exemption(self) -> str | None:
        """Why it is not run; None when it is."""
        if self.marker is None or not self.marker.startswith("no, "):
            return None
        return self.marker.removeprefix("no, ")

    @property
    def is_run(self) -> bool:
        """Whether it is a program, and executed."""
        return self.language in PROGRAMS and self.exemption is None


def all_pages() -> list[Path]:
    """Every page that is written by hand."""
    return sorted(DOCS.rglob("*.md"))


def blocks_of(page: Path) -> list[Block]:
    """All blocks of a page, in order."""
    blocks: list[Block] = []
    lines = page.read_text(encoding="utf-8").splitlines()
    number = 0
    while number < len(lines):
        opening = _FENCE.fullmatch(lines[number]) or _HIDDEN.fullmatch(lines[number])
        if opening is None:
            number += 1
            continue
        first = number + 1
        indent = opening["indent"]
        closing = "-->" if lines[number].startswith("<!--") else f"{indent}```"
        end = next(at for at in range(first, len(lines)) if lines[at].rstrip() == closing)
        marker = _MARKER.fullmatch(lines[number - 1]) if number else None
        title = _TITLE.search(opening["attributes"])
        code = "\n".join(line.removeprefix(indent) for line in lines[first:end]) + "\n"
        blocks.append(
            Block(
                page,
                first + 1,
                opening["language"],
                title and title["title"],
                marker and marker["words"],
                code,
            )
        )
        number = end + 1
    return blocks


def node_words(page: Path) -> list[str] | None:
    """What the page says of its node; None when it says nothing."""
    found = _NODE.search(page.read_text(encoding="utf-8"))
    return None if found is None else found["words"].split()


def prose_of(page: Path) -> list[tuple[int, str]]:
    """The lines of a page outside its blocks, with their numbers."""
    lines: list[tuple[int, str]] = []
    is_inside = False
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if line.lstrip().startswith("```") or _HIDDEN.fullmatch(line) or (is_inside and line == "-->"):
            is_inside = not is_inside
        elif not is_inside:
            lines.append((number, line))
    return lines
