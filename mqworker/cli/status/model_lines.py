"""Queues of other models than the work queue: what the nodes that consume them say of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mqworker.cli.text import duration, safe
from mqworker.errors import NotSupported
from mqworker.model.view import NodeView, SystemView
from mqworker.queues.celery.keys import DEFAULT_STEPS
from mqworker.queues.celery.options import CeleryOptions

RSMQ, CELERY = "RSMQ", "Celery"


@dataclass(frozen=True, slots=True)
class ModelQueue:
    """One such queue, by what each of its nodes says."""

    name: str
    facts_by_node: Mapping[str, Mapping[str, object]]

    @property
    def title(self) -> str:
        """What its model is called."""
        return str(self._any.get("model", "?"))

    @property
    def namespace(self) -> str:
        """Of RSMQ: what its keys begin with."""
        return str(self._any.get("namespace", "rsmq"))

    @property
    def celery_options(self) -> CeleryOptions:
        """Of Celery: what its keys begin with, and which lists it has."""
        steps = [int(each) for each in str(self._any.get("steps", "")).split() if each.isdigit()]
        return CeleryOptions(prefix=str(self._any.get("prefix", "")), steps=steps or DEFAULT_STEPS)

    @property
    def counts(self) -> str:
        """How many messages it holds, in the words of its model; empty while no node has counted."""
        for facts in self.facts_by_node.values():
            counts = facts.get("counts")
            if isinstance(counts, Mapping) and counts:
                numbers = ", ".join(f"{_number(each):,} {safe(str(word))}" for word, each in counts.items())
                return f"{numbers}{_age(facts.get('counts_age_ms'))}"
        return ""

    @property
    def nodes(self) -> list[str]:
        """Each node, with what it holds and what is wrong there."""
        return [
            f"{safe(node)}, which holds {_number(facts.get('held')):,}"
            + (f", in trouble: {safe(str(facts['trouble']))}" if facts.get("trouble") else "")
            for node, facts in self.facts_by_node.items()
        ]

    def refusal(self) -> NotSupported:
        """For what can be done with work queues only."""
        ways = [f"`mqworker queue show {self.name}` tells what it holds"]
        if self.title == RSMQ:
            ways.append("`mqworker rsmq` has the commands of RSMQ")
        if self.title == CELERY:
            ways.append("`mqworker dead` and `mqworker migrate` know it")
        return NotSupported(f"queue {self.name} is {self.title}, which has no such thing; {', '.join(ways)}")

    @property
    def _any(self) -> Mapping[str, object]:
        return next(iter(self.facts_by_node.values()))


def model_queues(nodes: Iterable[NodeView]) -> dict[str, ModelQueue]:
    """All such queues that the nodes consume, by name."""
    facts: dict[str, dict[str, Mapping[str, object]]] = {}
    for node in nodes:
        for name, told in node.models.items():
            facts.setdefault(name, {})[node.name] = told
    return {name: ModelQueue(name, facts[name]) for name in sorted(facts)}


def model_lines(view: SystemView) -> list[str]:
    """A line for each such queue; none where there is no such queue."""
    lines = []
    for queue in model_queues(view.nodes).values():
        counts = f": {queue.counts}" if queue.counts else ""
        nodes = "; ".join(queue.nodes)
        lines.append(f"{safe(queue.name)}  {safe(queue.title)}{counts}; consumed by {nodes}")
    return lines


def _age(ms: object) -> str:
    return f" ({duration(ms)} ago)" if isinstance(ms, int) else ""


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0
