"""What the doctor finds, from facts alone."""

from __future__ import annotations

import pytest

from mqworker.model.view import NodeView
from mqworker.operate.checks import CLOCK_OFF_MS, Facts, find

FINE = {"connected_clients": "10", "maxclients": "10000", "maxmemory": "0", "aof_enabled": "1"}


def test_where_all_is_well_nothing_is_found() -> None:
    facts = Facts(CLOCK_OFF_MS, 1_024, {"a": FINE, "b": FINE})

    assert find(facts, [NodeView("web-1", age_ms=3_000)]) == []


@pytest.mark.parametrize(
    ("facts", "what", "told"),
    [
        (Facts(5_000, 4_096, {}), "clock", "5 s ahead of"),
        (Facts(-5_000, 4_096, {}), "clock", "5 s behind"),
        (Facts(0, 256, {}), "open files", "256"),
        (
            Facts(0, 4_096, {"a": FINE | {"connected_clients": "9000"}}),
            "connections",
            "9,000 of at most 10,000",
        ),
        (Facts(0, 4_096, {"a": FINE | {"used_memory": "90", "maxmemory": "100"}}), "memory", "90 B of 100 B"),
        (Facts(0, 4_096, {"a": FINE | {"aof_enabled": "0"}}), "persistence", "no append-only file"),
        (Facts(0, 4_096, {"a": FINE | {"aof_last_write_status": "err"}}), "persistence", "its disk"),
    ],
)
def test_each_trouble_is_told_with_what_to_do(facts: Facts, what: str, told: str) -> None:
    (found,) = find(facts, [])

    assert (found.what, told in found.told) == (what, True), found
    assert found.advice


def test_a_node_that_is_silent_is_told_of() -> None:
    (found,) = find(Facts(0, 4_096, {}), [NodeView("web-1", age_ms=12_000, pid=7)])

    assert found.what == "node"
    assert "12 s ago" in found.told
    assert "pid 7" in found.advice


def test_what_a_server_says_strangely_or_not_at_all_is_no_trouble() -> None:
    assert find(Facts(0, -1, {"a": {}, "b": {"connected_clients": "many", "maxclients": "-1"}}), []) == []
