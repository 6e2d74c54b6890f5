"""Every name that a script calls is there: the server would notice only half-way, at that line."""

from __future__ import annotations

import re

import pytest

from mqworker.store.script import scripts_of
from tests.architecture.source_tree import ROOT

SCRIPTS = sorted(
    (".".join(path.relative_to(ROOT).parts[:-2]), path.stem)
    for path in (ROOT / "mqworker").rglob("*.lua")
    if path.parent.name == "scripts"
)
BUILT_IN = {
    "assert",
    "error",
    "ipairs",
    "next",
    "pairs",
    "pcall",
    "select",
    "tonumber",
    "tostring",
    "type",
    "unpack",
}
WORDS = {
    "and",
    "elseif",
    "for",
    "function",
    "if",
    "in",
    "local",
    "not",
    "or",
    "repeat",
    "return",
    "then",
    "until",
    "while",
}


def undefined_calls(source: str) -> set[str]:
    """Names that are called and defined nowhere in the text; strings and comments are passed over."""
    code = re.sub(r"--[^\n]*|'[^'\n]*'|\"[^\"\n]*\"", "''", source)
    called = set(re.findall(r"(?<![.:\w])([A-Za-z_]\w*)\s*\(", code))
    defined = set(re.findall(r"local\s+function\s+([A-Za-z_]\w*)", code))
    for names in re.findall(r"local\s+([A-Za-z_][\w\s,]*?)\s*(?:=|\n|;)", code):
        defined |= {name.strip() for name in names.split(",")}
    for parameters in re.findall(r"function\s*\w*\s*\(([^)]*)\)", code):
        defined |= {name.strip() for name in parameters.split(",")}
    return called - defined - BUILT_IN - WORDS


@pytest.mark.parametrize(("package", "name"), SCRIPTS)
def test_a_script_calls_nothing_that_is_not_there(package: str, name: str) -> None:
    assert undefined_calls(scripts_of(package)(name).source) == set()


def test_the_rule_bites() -> None:
    assert undefined_calls("local function f(a) return a(1) end\nf(tonumber('g()'))\nh(2) -- i()") == {"h"}
