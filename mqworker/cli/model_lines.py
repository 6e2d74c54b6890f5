"""Queues of other models on the status screen: what the nodes that consume them say."""

from __future__ import annotations

from collections.abc import Mapping

from mqworker.cli.wording import safe
from mqworker.model.view import SystemView


def model_lines(view: SystemView) -> list[str]:
    """A line for each such queue and node; none where there is no such queue."""
    lines = []
    for node in view.nodes:
        for name, facts in sorted(node.models.items()):
            trouble = f", in trouble: {safe(str(facts['trouble']))}" if facts.get("trouble") else ""
            lines.append(
                f"{safe(name)}  {safe(str(facts.get('model', '?')))}, consumed by {safe(node.name)}, "
                f"which holds {_number(facts):,}{trouble}"
            )
    return lines


def _number(facts: Mapping[str, object]) -> int:
    held = facts.get("held")
    return held if isinstance(held, int) else 0
