"""A script that knows its calls by number is sent with one, and no other script is."""

import ast
from pathlib import Path

from tests.architecture.source_tree import ROOT

PACKAGE = ROOT / "mqworker"

NUMBERED_BY_THE_CALLER = {"mqworker/queues/gq/scripts/push.lua"}
"""Its caller keeps the number, to send the same call again much later."""


def test_calls_of_numbered_scripts_and_only_they_carry_a_number() -> None:
    problems = [
        f"{path.relative_to(ROOT)}:{call.lineno}: {name}: is_numbered should be {not is_numbered}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "Call"
        for is_numbered in [any(keyword.arg == "is_numbered" for keyword in call.keywords)]
        for name in script_names(call)
        if is_numbered != (path.parent / "scripts" / f"{name}.lua" in numbered_scripts())
    ]

    assert problems == []


def numbered_scripts() -> set[Path]:
    numbered = {path for path in PACKAGE.rglob("*.lua") if "earlier_reply(lane, number)" in path.read_text()}
    by_the_caller = {ROOT / path for path in NUMBERED_BY_THE_CALLER}
    # enqueue.lua reads its lane with other fields
    return (numbered | {PACKAGE / "queues" / "work" / "scripts" / "enqueue.lua"}) - by_the_caller


def script_names(call: ast.Call) -> list[str]:
    """The scripts that the first argument of a `Call` may name: `script("a" if … else "b")`."""
    wrapped = call.args[0] if call.args else None
    if not (
        isinstance(wrapped, ast.Call) and isinstance(wrapped.func, ast.Name) and wrapped.func.id == "script"
    ):
        return []
    names = [each.value for each in ast.walk(wrapped) if isinstance(each, ast.Constant)]
    return [name for name in names if isinstance(name, str)]
