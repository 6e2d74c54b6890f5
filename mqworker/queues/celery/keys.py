"""The keys of a Celery queue: its lists and results, which Celery lays down, and side keys of ours.

Celery pushes to the left of a list and takes from its right. Each priority step has a list of its own; 0 is
the most urgent and has the bare name. None of its keys has a hash tag: on a cluster the prefix must hold one.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Sequence
from dataclasses import dataclass

SIDE_PREFIX = "mqw:celery:"
DEFAULT_STEPS = (0, 3, 6, 9)
SEPARATOR = "\x06\x16"
META = "celery-task-meta-"


@dataclass(frozen=True, slots=True)
class CeleryKeys:
    """The keys of one queue, in the order in which its scripts receive them (parts/queue.lua)."""

    prefix: str
    queue: str
    steps: Sequence[int] = DEFAULT_STEPS

    @property
    def shared(self) -> tuple[str, ...]:
        """What all scripts receive: ours, then the lists of the queue."""
        name = f"{self.prefix}{self.queue}"
        side = f"{SIDE_PREFIX}{name}" if has_hash_tag(self.prefix) else f"{SIDE_PREFIX}{{{name}}}"
        return (
            side,  # hash: newest call of each lane; expires when unused
            f"{side}:messages",  # hash: entry -> 'list deliveries failures crashes taken-at ' and the message
            f"{side}:held",  # hash: fence -> entry; 'fence' -> the newest
            f"{side}:leases",  # zset: fence -> lease ends at, ms
            f"{side}:waiting",  # zset: entry -> due at, ms
            f"{side}:dead",  # hash: id -> as in messages
            f"{side}:letters",  # hash: id -> why, as JSON
            f"{side}:buried",  # zset: id -> buried at, ms
            *self.lists,
        )

    @property
    def lists(self) -> tuple[str, ...]:
        """Celery's lists, the most urgent first: list of JSON texts."""
        return tuple(self.list_of(self.queue, step) for step in self.steps)

    @property
    def messages(self) -> str:
        """What was taken from the lists and is not done."""
        return self.shared[1]

    @property
    def held(self) -> str:
        """Who has what."""
        return self.shared[2]

    @property
    def dead(self) -> tuple[str, str, str]:
        """Messages that were given up, why, and when."""
        _, _, _, _, _, dead, letters, buried, *_ = self.shared
        return dead, letters, buried

    def list_of(self, queue: str, priority: int) -> str:
        """The list into which Celery puts a message of this priority."""
        step = self.steps[max(0, bisect(self.steps, priority) - 1)]
        return f"{self.prefix}{queue}{SEPARATOR}{step}" if step else f"{self.prefix}{queue}"


def has_hash_tag(prefix: str) -> bool:
    """Whether it keeps all keys on one server of a cluster."""
    _, opened, rest = prefix.partition("{")
    return bool(opened) and rest.find("}") > 0


def result_key(prefix: str, task_id: str) -> str:
    """string, Celery's: the state and result of a task as JSON; a channel has the same name."""
    return f"{prefix}{META}{task_id}"
