"""Waits: which running task waits for the result of which other message. Values, and what follows from them.

A worker that waits runs nothing else. Where what it waits for cannot begin before it is through, or waits for
it in turn, neither ever ends; and no process hangs, so that nobody but the view of both can tell.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from mqworker.model.names import parse_message_id, parse_queue_name

READY, DELAYED, FURTHER = "ready", "delayed", "further"
"""What find.lua says of a message that nobody runs."""


@dataclass(frozen=True, slots=True)
class WaitView:
    """One task that waits for another message."""

    node: str
    worker: str
    task: str
    message: str
    queue: str
    """Where the message that it waits for was put."""
    awaited: str
    waited_ms: int
    state: str = ""
    """Where the awaited message is; empty while nobody has looked."""

    @property
    def text(self) -> str:
        """Who waits for what."""
        return (
            f"{self.task} {self.message} on {self.worker} of node {self.node} waits "
            f"{self.waited_ms // 1000:,} s for the result of {self.awaited} in queue {self.queue}"
        )


# Any: a snapshot may come from another version, or from somebody else.
def waits_in(facts: Mapping[str, Any], node: str, worker: str) -> list[WaitView]:
    """The waits that a worker tells of in its snapshot; what cannot be read is left out."""
    told = facts.get("waits")
    found = [_wait_of(each, node, worker) for each in told] if isinstance(told, list | tuple) else []
    return [wait for wait in found if wait is not None]


def _wait_of(told: object, node: str, worker: str) -> WaitView | None:
    match told:
        case [str(task), str(message), str(queue), str(awaited), int(waited_ms)]:
            is_readable = parse_queue_name(queue.encode()) and parse_message_id(awaited.encode())
            return WaitView(node, worker, task, message, queue, awaited, waited_ms) if is_readable else None
        case _:
            return None


def circular(waits: Iterable[WaitView]) -> list[WaitView]:
    """Those that wait for themselves in the end: none of them can ever be over."""
    waits = list(waits)
    awaited_by_message: dict[str, list[str]] = {}
    for wait in waits:
        awaited_by_message.setdefault(wait.message, []).append(wait.awaited)
    return [wait for wait in waits if _leads_to(wait.awaited, wait.message, awaited_by_message)]


def _leads_to(start: str, end: str, awaited_by_message: Mapping[str, list[str]]) -> bool:
    seen, left = set[str](), [start]
    while left:
        message = left.pop()
        if message == end:
            return True
        if message not in seen:
            seen.add(message)
            left += awaited_by_message.get(message, ())
    return False
