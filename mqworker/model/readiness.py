"""Readiness: whether a node does its work, out of what its supervisor shows. Pure.

Quick to import, for probes start a process each time: no dataclass, no `typing`.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

MONITOR_ROLE = "monitor"
"""The one child that a node is complete without: it only tells how the others are."""


NOT_HEARD = "Redis does not answer the beats of"


# Any: plain values, as JSON has them.
def why_not_ready(snapshot: Mapping[str, Any]) -> str | None:
    """What keeps a node from its work; None: nothing."""
    if snapshot["draining"]:
        return f"{snapshot['node']} is draining"
    for child in snapshot["children"]:
        if child["role"] == MONITOR_ROLE:
            continue
        if child["state"] != "live":
            return f"{child['name']} of {snapshot['node']} is {child['state']}"
        if child["facts"].get("is_listening") is False:
            return f"{child['name']} of {snapshot['node']} does not listen"
        if child["facts"].get("is_store_heard") is False:
            return f"{NOT_HEARD} {snapshot['node']}"
    return None


def why_not_live(answers: Mapping[str, Mapping[str, Any] | None], data_dir: str) -> str | None:
    """What is wrong with the supervisors of a directory; by the name of the socket, None: it hangs."""
    if not answers:
        return f"no supervisor is running for {data_dir}"
    silent = [name for name, snapshot in answers.items() if snapshot is None]
    return f"the supervisor behind {silent[0]} does not answer" if silent else None


def answer_of(
    question: str, answers: Mapping[str, Mapping[str, Any] | None], data_dir: str
) -> tuple[str, int]:
    """The line and the exit code of `mqworker health`; the question is live or ready."""
    problem = why_not_live(answers, data_dir)
    if problem is None and question == "ready":
        problems = [why_not_ready(snapshot) for snapshot in answers.values() if snapshot is not None]
        problem = next(filter(None, problems), None)
    return (question, 0) if problem is None else (f"not {question}: {problem}", 1)
