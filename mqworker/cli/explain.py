"""`mqworker explain`: what an error means and what to do about it, from the page that the site shows."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from importlib.resources import files

import click

from mqworker.cli.terminal import terminal_width
from mqworker.errors import InvalidArgument

_HEADING = re.compile(r"(?m)^### (?P<code>.+)$")
_KIND = re.compile(r"`(?P<name>\w+)` · exit code (?P<exit_code>\d+)")
_MARKER = re.compile(r"(?s)<!--.*?-->\n?")
_LINK = re.compile(r"\[([^\]]+)\]\([^)]+\)")
_GROUP = re.compile(r"(?m)^## .*\Z", re.DOTALL)
_FOREIGN_WORD = re.compile(r"`([A-Z_]{2,})`")
_WIDEST = 100


@dataclass(frozen=True, slots=True)
class Explanation:
    """One section of the page."""

    code: str
    class_name: str
    """Empty for the reason of a dead letter, which is not an error."""
    exit_code: int | None
    text: str

    @property
    def foreign_words(self) -> set[str]:
        """What clients of gateways are told instead of the code, such as TRYAGAIN."""
        return set(_FOREIGN_WORD.findall(self.text))


@click.command("explain")
@click.argument("code", metavar="[CODE]", required=False)
def explain_command(code: str | None) -> None:
    """Tell what an error means and what to do.

    CODE stands in brackets at the end of an error: unknown-queue. The class of an error, the reason of a dead
    letter and what a gateway answers will do as well. Without CODE: all there are.
    """
    explanations = read_explanations()
    if code is None:
        click.echo("\n".join(f"{each.code:<24}{each.class_name}".rstrip() for each in explanations))
        return
    click.echo("\n\n".join(_shown(each) for each in _found(code, explanations)))


def read_explanations() -> list[Explanation]:
    """All of the page, in its order."""
    page = files("mqworker.cli").joinpath("errors.md").read_text(encoding="utf-8")
    parts = _HEADING.split(page)[1:]
    return [
        _explanation(code, _GROUP.sub("", text)) for code, text in zip(parts[::2], parts[1::2], strict=True)
    ]


def _explanation(code: str, text: str) -> Explanation:
    kind = _KIND.search(text)
    return Explanation(
        code,
        "" if kind is None else kind["name"],
        None if kind is None else int(kind["exit_code"]),
        text.strip(),
    )


def _found(asked: str, explanations: list[Explanation]) -> list[Explanation]:
    wanted = asked.strip("[]").casefold()
    found = [each for each in explanations if wanted in (each.code.casefold(), each.class_name.casefold())]
    found = found or [each for each in explanations if asked in each.foreign_words]
    if found:
        return found
    known = [each.code for each in explanations]
    close = difflib.get_close_matches(wanted, known, n=3, cutoff=0.5)
    advice = f"did you mean {' or '.join(close)}?" if close else "`mqworker explain` lists all of them"
    raise InvalidArgument(f"code is {asked!r}, which no error has; {advice}")


def _shown(explanation: Explanation) -> str:
    """For a terminal: marks of Markdown taken out, paragraphs as wide as it is."""
    text = _LINK.sub(r"\1", _MARKER.sub("", explanation.text))
    width = min(terminal_width(), _WIDEST)
    lines = [click.style(explanation.code, bold=True)]
    for number, part in enumerate(text.split("```")):
        if number % 2:
            lines += ["", *(f"    {line}".rstrip() for line in part.strip().splitlines()[1:])]
        else:
            plain = part.replace("**", "").replace("`", "").strip()
            lines += ["", click.wrap_text(plain, width, preserve_paragraphs=True)] if plain else []
    return "\n".join(lines)
