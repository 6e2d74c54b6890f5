"""Gateways on the status screen and in its document: who is connected, and what goes in and out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from mqworker.cli.table import Cell, Column, Row, table
from mqworker.cli.text import rate, safe, short_count
from mqworker.model.view import ChildView

GATEWAY_ROLE = "gateway"

_COLUMNS = (
    Column("gateway", "<"),
    Column("listens at", "<"),
    Column("clients"),
    Column("in/s"),
    Column("out/s"),
    Column("in"),
    Column("out"),
    Column("waiting"),
    Column("refused"),
)


@dataclass(frozen=True, slots=True)
class GatewayFigures:
    """What all gateways have in common; each tells more in the facts of its child."""

    name: str
    listens: str | None
    connections: int
    taken_in: int
    given_out: int
    in_per_s: float
    out_per_s: float
    waiting: int
    """Clients that wait for an element, pushes that wait for an ack, and calls that wait for Redis."""
    refused: int


def gateway_figures(children: Sequence[ChildView]) -> list[GatewayFigures]:
    """The gateways among the children of a node."""
    return [_figures(child) for child in children if child.role == GATEWAY_ROLE]


def gateway_documents(children: Sequence[ChildView]) -> list[dict[str, Any]]:
    """The same as plain values."""
    return [
        {_SHORT.get(name, name): value for name, value in asdict(figures).items()}
        for figures in gateway_figures(children)
    ]


def gateway_lines(children: Sequence[ChildView], *, width: int, indent: str) -> list[str]:
    """One line for each gateway of a node, below a heading; none where there is no gateway."""
    rows = [_row(figures) for figures in gateway_figures(children)]
    return table(_COLUMNS, rows, width=width, indent=indent) if rows else []


_SHORT = {"taken_in": "in", "given_out": "out"}


def _row(figures: GatewayFigures) -> Row:
    return [
        safe(figures.name),
        safe(figures.listens or "?"),
        short_count(figures.connections),
        rate(figures.in_per_s),
        rate(figures.out_per_s),
        short_count(figures.taken_in),
        short_count(figures.given_out),
        short_count(figures.waiting),
        Cell(short_count(figures.refused), "yellow" if figures.refused else None),
    ]


def _figures(child: ChildView) -> GatewayFigures:
    facts = child.facts
    listens = facts.get("listens")
    return GatewayFigures(
        name=child.name.partition(":")[2] or child.name,
        listens=listens if isinstance(listens, str) else None,
        connections=_count(facts, "connections"),
        taken_in=_count(facts, "in"),
        given_out=_count(facts, "out"),
        in_per_s=_rate(facts, "in_per_s"),
        out_per_s=_rate(facts, "out_per_s"),
        waiting=sum(_count(facts, name) for name in ("waiting", "broker_waiting", "dispatcher_waiting")),
        refused=_count(facts, "refused"),
    )


def _count(facts: Mapping[str, object], name: str) -> int:
    """A snapshot may come from an older node, or from a foreign hand."""
    value = facts.get(name)
    return value if isinstance(value, int) else 0


def _rate(facts: Mapping[str, object], name: str) -> float:
    value = facts.get(name)
    return float(value) if isinstance(value, int | float) else 0.0
