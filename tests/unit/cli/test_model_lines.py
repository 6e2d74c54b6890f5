"""Queues of other models on the status screen."""

from __future__ import annotations

from mqworker.cli.status.model_lines import model_lines
from mqworker.model.view import ChildView, NodeView, ServerView, SystemView


def test_each_queue_of_another_model_has_a_line() -> None:
    counts = {"visible": 1_200, "hidden": 3}
    facts = {"models": {"legacy": {"model": "RSMQ", "held": 3, "counts": counts, "trouble": ""}, "odd": "?"}}
    child = ChildView("dispatcher", "dispatcher", "live", facts=facts)
    view = SystemView(
        0,
        "mqw",
        ServerView("Valkey", "9.1", 0, 0, is_append_only=True),
        (NodeView("web-1", children=(child,)), NodeView("web-2"), NodeView("web-3", children=(child,))),
        (),
    )

    assert model_lines(view) == [
        "legacy  RSMQ: 1,200 visible, 3 hidden; consumed by web-1, which holds 3; web-3, which holds 3"
    ]


def test_trouble_is_told() -> None:
    facts = {"models": {"orders": {"model": "gq on SQL", "held": "many", "trouble": "no answer"}}}
    child = ChildView("dispatcher", "dispatcher", "live", facts=facts)
    view = SystemView(
        0,
        "mqw",
        ServerView("Valkey", "9.1", 0, 0, is_append_only=True),
        (NodeView("web-1", children=(child,)),),
        (),
    )

    assert model_lines(view) == ["orders  gq on SQL; consumed by web-1, which holds 0, in trouble: no answer"]
