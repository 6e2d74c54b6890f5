"""What a node tells of its outbox becomes reasons for a verdict, findings and metrics."""

from __future__ import annotations

from typing import Any

import pytest

from mqworker.model.outbox_view import outbox_in
from mqworker.model.verdict import Health, judge
from mqworker.model.view import ChildView, NodeView, ServerView, SystemView
from mqworker.operate.checks import Facts, find
from mqworker.operate.metrics.node import _outbox_families

FINE: dict[str, Any] = {"is_standby": False, "rows": 3, "lag_ms": 40, "bad": 0, "why_bad": "", "trouble": ""}


def view_of(**facts: object) -> SystemView:
    child = ChildView("outbox_mover", "actor", "live", facts={"outbox": FINE | facts})
    return SystemView(
        server=ServerView("valkey", "9.1", 1, 0, is_append_only=True),
        nodes=(NodeView("n", children=(child,)),),
        queues=(),
        namespace="mqw",
        at_ms=0,
    )


@pytest.mark.parametrize(
    ("facts", "told"),
    [
        ({"trouble": "the database did not answer"}, "cannot move the outbox: the database did not answer"),
        ({"lag_ms": 90_000}, "is late: 3 rows wait in the outbox, the oldest since 90 s"),
        (
            {"bad": 2, "why_bad": "no call"},
            "left 2 rows of the outbox aside, see `mqworker outbox show`: no call",
        ),
    ],
)
def test_what_is_wrong_with_an_outbox_is_said(facts: dict[str, Any], told: str) -> None:
    view = view_of(**facts)

    assert judge(view).health is Health.DEGRADED
    assert judge(view).reasons == (f"outbox_mover of node n {told}",)
    findings = find(Facts(0, 10_000, {}), view.nodes)
    assert [(each.what, each.told) for each in findings] == [("outbox", f"outbox_mover of n {told}")]


def test_an_outbox_that_is_moved_is_no_reason() -> None:
    assert judge(view_of()).health is Health.HEALTHY


@pytest.mark.parametrize("told", [None, 7, "x", []])
def test_what_a_stranger_says_is_none(told: object) -> None:
    assert outbox_in({"outbox": told}) is None


def test_values_of_a_stranger_count_as_nothing() -> None:
    seen = outbox_in({"outbox": {"rows": "many", "lag_ms": -1, "bad": None}})

    assert seen is not None
    assert (seen.rows, seen.lag_ms, seen.bad, list(seen.problems)) == (0, 0, 0, [])


def test_metrics_tell_of_the_node_that_moves_rows_and_not_of_those_that_stand_by() -> None:
    moving = {"facts": {"outbox": FINE | {"lag_ms": 1_500, "bad": 1}}}
    standby = {"facts": {"outbox": FINE | {"is_standby": True}}}

    lines = list(_outbox_families([moving, standby]))

    assert [line.rstrip() for line in lines if not line.startswith("#")] == [
        "mqworker_outbox_rows 3",
        "mqworker_outbox_lag_seconds 1.5",
        "mqworker_outbox_quarantined_rows 1",
        "mqworker_outbox_up 1",
    ]
