"""The gateways of a node on the status screen: one line each."""

from __future__ import annotations

from collections.abc import Sequence

from mqworker.cli.table import Cell, Column, Row, table
from mqworker.cli.text import rate, safe, short_count
from mqworker.model.view import ChildView
from mqworker.operate.gateway_figures import GatewayFigures, gateway_figures

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


def gateway_lines(children: Sequence[ChildView], *, width: int, indent: str) -> list[str]:
    """One line for each gateway of a node, below a heading; none where there is no gateway."""
    rows = [_row(figures) for figures in gateway_figures(children)]
    return table(_COLUMNS, rows, width=width, indent=indent) if rows else []


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
