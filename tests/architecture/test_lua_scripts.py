"""Every script states its contract and speaks in names; and the rules bite."""

from collections.abc import Callable

import pytest

from tests.architecture.lua_rules import bare_inputs, missing_reply, missing_title
from tests.architecture.source_tree import ROOT

Check = Callable[[str, str], list[str]]

SCRIPTS = sorted((ROOT / "mqworker").rglob("*.lua"))
HEADER = "#!lua flags=allow-oom\n-- settle: end deliveries.\n--\n-- KEYS[1] leases\n-- Returns 1 settled\n\n"


@pytest.mark.parametrize(
    ("check", "is_for_parts"), [(missing_title, True), (bare_inputs, True), (missing_reply, False)]
)
def test_every_script_keeps_the_rule(check: Check, is_for_parts: bool) -> None:  # noqa: FBT001 - a parameter of the test
    scripts = [script for script in SCRIPTS if is_for_parts or script.parent.name == "scripts"]
    texts = [(script.stem, script.read_text(encoding="utf-8")) for script in scripts]

    assert texts
    assert [problem for stem, text in texts for problem in check(stem, text)] == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "return 1",
        "-- settle: end deliveries.\nreturn 1",
        "-- claim: take.\n-- Returns 1\nreturn 1",
        "-- settle: end.\n\n-- Returns 1\nreturn 1",
        "#!lua\n\n-- settle: end.\n-- Returns 1",
    ],
)
def test_the_rule_of_contracts_bites(text: str) -> None:
    assert missing_title("settle", text) + missing_reply("settle", text)


@pytest.mark.parametrize(
    "code",
    [
        "redis.call('DEL', KEYS[1])",
        "local body = redis.call('GET', KEYS[1])",
        "local a = KEYS[1]\nreturn ARGV[2]",
        "if ARGV[1] == 'x' then return 1 end",
        "local a, b = KEYS[1],\n  redis.call('GET', KEYS[2])",
        "local n = 1\nx = ARGV[ 1 ]",
    ],
)
def test_the_rule_of_names_bites(code: str) -> None:
    assert bare_inputs("settle", HEADER + code)


@pytest.mark.parametrize(
    "code",
    [
        "local leases, bodies = KEYS[1], KEYS[2]\nlocal now = tonumber(ARGV[1])\nreturn leases",
        "local leases, bodies =\n  KEYS[1],\n  KEYS[2]\nreturn 1",
        "for i = 3, #ARGV do local id = ARGV[i] end",
        "return 1 -- not KEYS[1]",
    ],
)
def test_a_script_that_names_its_inputs_passes(code: str) -> None:
    problems = [check("settle", HEADER + code) for check in (missing_title, missing_reply, bare_inputs)]

    assert problems == [[], [], []]
