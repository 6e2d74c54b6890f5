"""Every key family that Python or a script makes stands in docs/redis-keys.md."""

from __future__ import annotations

import re

import pytest

from tests.architecture.source_tree import ROOT

# How keys are made: `keys.named("dead")`, f"{prefix}meta", f"{namespace}:queues"; in Lua `side .. ':call:'`.
IN_PYTHON = re.compile(
    r"""named\(f?"(?P<named>[a-z:]+)|"""
    r"""f"\{(?:self\.)?(?:prefix|start|side|namespace|shared\[0\]|self\.shared\[0\])\}:?"""
    r"""(?:\{\{[a-z:]*(?:\{\w+\})?\}\}:)?(?P<made>[A-Za-z_:]+)"""
)
IN_LUA = re.compile(
    r"""(?:string\.sub\(meta, 1, -5\)|\bside|\bresults|\bnamespace|\bprefix) \.\. ':?(?P<made>[A-Za-z_:]+)"""
)

KEYS_PAGE = ROOT / "docs" / "redis-keys.md"


def families() -> set[str]:
    """The last parts of all keys, such as `dead` or `results:old`."""
    found: set[str] = set()
    for path in (ROOT / "mqworker").rglob("*.py"):
        text = path.read_text()
        is_about_keys = path.name == "keys.py"
        for match in IN_PYTHON.finditer(text):
            if match["named"] or is_about_keys:
                found.add((match["named"] or match["made"]).strip(":"))
    for path in (ROOT / "mqworker").rglob("*.lua"):
        found |= {match["made"].strip(":") for match in IN_LUA.finditer(path.read_text())}
    return found - {""}


def documented(page: str) -> set[str]:
    """The words in everything between backticks that is a key, or the end of one."""
    spans = [span for span in re.findall(r"`([^`]+)`", page) if re.match(r"mqw:|rsmq:|:|[A-Z_]{4,}", span)]
    return {word for span in spans for word in re.findall(r"[A-Za-z_]+", span)}


def test_the_patterns_find_keys_of_every_kind() -> None:
    assert families() >= {
        "meta",
        "results:old",
        "progress",
        "held",
        "limited",
        "parked",
        "call",
        "backlog",
        "homes",
    }


@pytest.mark.parametrize("family", sorted(families()))
def test_every_key_family_is_documented(family: str) -> None:
    known = documented(KEYS_PAGE.read_text())

    assert set(family.split(":")) <= known, f"{family} is not in docs/redis-keys.md"


def test_a_family_that_is_not_there_is_missed() -> None:
    assert "samples" not in documented("| `mqw:{q}:dead`, `:letters` | zset, hash |")
    assert {"dead", "letters"} <= documented("| `mqw:{q}:dead`, `:letters` | zset, hash |")
