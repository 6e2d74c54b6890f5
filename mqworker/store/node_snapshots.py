"""A node's snapshot as it stands in Redis, read leniently: it may come from another version of mqworker."""

from __future__ import annotations

import json
from typing import Any

from mqworker.model.view import ChildView, NodeView

SNAPSHOT_TTL_MS = 15_000
"""As the heartbeat reaper sets it: from what is left of it, the age of the snapshot is known."""


def decode_node(name: str, text: bytes, ttl_ms: int) -> NodeView:
    """The node of this name; of a snapshot that cannot be read only the name and the age remain."""
    facts = _table(_parsed(text))
    children = facts.get("children")
    return NodeView(
        name=name,
        app=_text(facts.get("app")),
        pid=_whole(facts.get("pid")),
        started_at_ms=_whole(facts.get("started_at_ms")),
        is_draining=facts.get("draining") is True,
        age_ms=max(0, SNAPSHOT_TTL_MS - ttl_ms) if ttl_ms >= 0 else 0,
        children=tuple(_child(_table(each)) for each in children) if isinstance(children, list) else (),
    )


def _child(facts: dict[str, Any]) -> ChildView:
    name = _text(facts.get("name")) or "?"
    return ChildView(
        name=name,
        role=_role(name, _text(facts.get("role")) or ""),
        state=_text(facts.get("state")) or "?",
        pid=_whole(facts.get("pid")),
        generation=_whole(facts.get("generation")) or 0,
        restarts=_whole(facts.get("restarts")) or 0,
        last_exit=_text(facts.get("last_exit")),
        silent_ms=_whole(facts.get("silent_ms")),
        progress=_whole(facts.get("progress")) or 0,
        facts=_table(facts.get("facts")),
    )


def _role(name: str, role: str) -> str:
    """The dispatcher's queues and workers are looked at, so it must be known by whatever it says it is."""
    return "dispatcher" if name == "dispatcher" else role or name


# Any: whatever JSON holds, from whoever wrote it.


def _parsed(text: bytes) -> Any:  # noqa: ANN401 - foreign data enters here
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _table(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _whole(value: object) -> int | None:
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
