"""Words: one public name for one thing, and no word that has to be learnt before the code can be read."""

import importlib
import re
from collections import defaultdict

import pytest

from tests.architecture.source_tree import ROOT

PUBLIC = (
    "mqworker",
    "mqworker.queues",
    "mqworker.gateway",
    "mqworker.events",
    "mqworker.errors",
    "mqworker.testing",
)
WRITTEN_IN = ("mqworker", "services", "docs", "examples", "tests")
NOT_LOOKED_AT = ("test_words.py",)
KINDS = {".py", ".lua", ".md", ".html"}
# Nobody but us has a meaning for these; each has an ordinary word instead.
METAPHORS = re.compile(
    r"(?<![A-Za-z])(?:bell|desk|shelf|shelves|crew|door|errand|clerk|courtes(?:y|ies)|graveyard|grave|gate)s?(?![A-Za-z])",
    re.IGNORECASE,
)
FOREIGN_TURNS = re.compile(
    r"foreign hand|by himself|what a deaf|in the hands of|such a one|\"\"\"so (?:long|often|many|much|old) ",
    re.IGNORECASE,
)


def named(module: str) -> dict[str, object]:
    """What a public module offers, by name."""
    loaded = importlib.import_module(module)
    names = getattr(loaded, "__all__", None) or [name for name in vars(loaded) if name[0].isupper()]
    return {name: getattr(loaded, name) for name in names}


def test_no_two_public_things_have_the_same_name() -> None:
    things: dict[str, set[int]] = defaultdict(set)
    for module in PUBLIC:
        for name, thing in named(module).items():
            things[name].add(id(thing))

    assert [name for name, ids in things.items() if len(ids) > 1] == []
    assert {"App", "RsmqClient", "NodeClient"} <= things.keys()


@pytest.mark.parametrize("folder", WRITTEN_IN)
def test_no_metaphor_has_to_be_learnt(folder: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in sorted((ROOT / folder).rglob("*"))
        if path.suffix in KINDS and path.name not in NOT_LOOKED_AT and "vendor" not in path.parts
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if METAPHORS.search(line) or FOREIGN_TURNS.search(line)
    ]

    assert found == []


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("the desk's turn", True),
        ("a_gate = 1", True),
        ("two Gates", True),
        ("a gateway", False),
        ("indoors", False),
    ],
)
def test_metaphors_are_found_as_whole_words(text: str, *, is_one: bool) -> None:
    assert bool(METAPHORS.search(text)) is is_one
