"""No script puts any number of values on Lua's stack: too many are an error in the middle of the script."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.architecture.source_tree import ROOT

SCRIPTS = sorted((ROOT / "mqworker").rglob("*.lua"))
SLICED = re.compile(r"(?<!cmsgpack\.)\bunpack\((?!\w+, first, (?:last|math\.min\())")
EXEMPT = {
    "store/scripts/parts/slices.lua": "looks at the number before",
    "operate/scripts/note.lua": "XADD takes all fields of an entry at once; the caller names six at the most",
}


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: str(path.relative_to(ROOT / "mqworker")))
def test_values_are_unpacked_in_slices(path: Path) -> None:
    name = str(path.relative_to(ROOT / "mqworker"))
    code = re.sub(r"--[^\n]*", "", path.read_text())

    unpacked = SLICED.findall(code)

    assert not unpacked or name in EXEMPT, f"{name} unpacks a list of any length; use parts/slices.lua"
