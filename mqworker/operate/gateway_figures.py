"""What the gateways of a node have in common, out of the facts of its children. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from mqworker.model.view import ChildView, NodeView

GATEWAY_ROLE = "gateway"
_COMMON = {
    "listens", "connections", "in", "out", "in_per_s", "out_per_s", "waiting", "refused",
    "broker_waiting", "dispatcher_waiting",
}  # fmt: skip
_SHORT = {"taken_in": "in", "given_out": "out"}


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


@dataclass(frozen=True, slots=True)
class GatewayView:
    """One gateway of a node, with what only it tells."""

    node: str
    state: str
    restarts: int
    last_exit: str | None
    figures: GatewayFigures
    facts: Mapping[str, int | float | str]


def gateway_views(nodes: Iterable[NodeView]) -> list[GatewayView]:
    """All gateways of all nodes."""
    return [
        GatewayView(
            node.name, child.state, child.restarts, child.last_exit, _figures(child), _own_facts(child.facts)
        )
        for node in nodes
        for child in node.children
        if child.role == GATEWAY_ROLE
    ]


def _own_facts(facts: Mapping[str, object]) -> dict[str, int | float | str]:
    return {
        name: value
        for name, value in facts.items()
        if name not in _COMMON and isinstance(value, int | float | str) and not isinstance(value, bool)
    }


def gateway_documents(children: Sequence[ChildView]) -> list[dict[str, Any]]:
    """The same as plain values."""
    return [
        {_SHORT.get(name, name): value for name, value in asdict(figures).items()}
        for figures in gateway_figures(children)
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
    """A snapshot may come from an older node, or from another program."""
    value = facts.get(name)
    return value if isinstance(value, int) else 0


def _rate(facts: Mapping[str, object], name: str) -> float:
    value = facts.get(name)
    return float(value) if isinstance(value, int | float) else 0.0
