"""Gateways on the status screen: one line each, with what all of them have in common."""

from __future__ import annotations

import click

from mqworker.actors.gateway.loop import GatewayPace
from mqworker.cli.status.screen import gateway_lines
from mqworker.model.view import ChildView
from mqworker.operate.gateway_figures import gateway_documents

FACTS = {
    "listens": "127.0.0.1:6390",
    "connections": 12,
    "in": 40_000,
    "out": 39_998,
    "in_per_s": 1500.0,
    "out_per_s": 1499.5,
    "waiting": 2,
    "broker_waiting": 3,
    "dispatcher_waiting": 1,
    "refused": 7,
    "something_of_its_own": 9,
}
BROKER = ChildView("broker", "actor", "live", facts={"in": 1})
GATEWAY = ChildView("gateway:redismq", "gateway", "live", facts=FACTS)


def test_each_gateway_has_a_line() -> None:
    heading, line = map(click.unstyle, gateway_lines([BROKER, GATEWAY], width=100, indent="  "))

    assert heading.split() == [
        *("gateway", "listens", "at", "clients", "in/s", "out/s", "in", "out", "waiting", "refused")
    ]
    assert line.split()[:3] == ["redismq", "127.0.0.1:6390", "12"]
    assert line.split()[-2:] == ["6", "7"]


def test_without_gateways_there_is_no_line() -> None:
    assert gateway_lines([BROKER], width=100, indent="") == []
    assert gateway_documents([BROKER]) == []


def test_the_document_has_the_same_as_plain_values() -> None:
    assert gateway_documents([GATEWAY]) == [
        {
            "name": "redismq",
            "listens": "127.0.0.1:6390",
            "connections": 12,
            "in": 40_000,
            "out": 39_998,
            "in_per_s": 1500.0,
            "out_per_s": 1499.5,
            "waiting": 6,
            "refused": 7,
        }
    ]


def test_facts_that_are_missing_or_foreign_count_as_nothing() -> None:
    strange = ChildView(
        "gateway:gomq", "gateway", "live", facts={"listens": 7, "in": "many", "refused": None}
    )

    [document] = gateway_documents([strange])

    assert (document["listens"], document["in"], document["refused"]) == (None, 0, 0)
    assert "gomq" in gateway_lines([strange], width=100, indent="")[1]


def test_the_pace_is_how_fast_totals_grew() -> None:
    pace = GatewayPace()

    assert pace.rates(100, 50, now_ms=1_000) == {"in_per_s": 0.0, "out_per_s": 0.0}
    assert pace.rates(300, 51, now_ms=3_000) == {"in_per_s": 100.0, "out_per_s": 0.5}
    assert pace.rates(300, 51, now_ms=3_000) == {"in_per_s": 0.0, "out_per_s": 0.0}
