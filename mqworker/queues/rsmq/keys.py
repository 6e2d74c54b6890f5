"""The keys of RSMQ queues: three that the RSMQ document lays down, and side keys that are ours alone.

The documented keys are shared with foreign clients, so nothing of ours is ever put into them. On a cluster
the namespace stands in braces (`{rsmq}`), as the hash tag of all keys; foreign clients cannot follow there.
"""

from __future__ import annotations

from dataclasses import dataclass

SIDE_PREFIX = "mqw:x:"


def registry_key(namespace: str) -> str:
    """set, documented: the names of all queues; absent when there is none."""
    return f"{namespace}:QUEUES"


@dataclass(frozen=True, slots=True)
class RsmqKeys:
    """The keys of one RSMQ queue, in the order in which its scripts receive them (parts/queue.lua)."""

    shared: tuple[str, str, str]
    registry: str
    channel: str
    """pub/sub channel, documented: how many messages the queue holds, after each send."""

    @classmethod
    def of(cls, namespace: str, queue: str) -> RsmqKeys:
        """All keys of a queue."""
        name = f"{namespace}:{queue}"
        side = f"{SIDE_PREFIX}{name}" if namespace.startswith("{") else f"{SIDE_PREFIX}{{{name}}}"
        shared = (
            side,  # hash, ours: newest call of each lane; expires when unused
            f"{name}:Q",  # hash, documented: attributes and counters; id -> message, id:rc, id:fr
            name,  # zset, documented: id -> visible at, ms
        )
        return cls(shared, registry_key(namespace), f"{namespace}:rt:{queue}")

    @property
    def line(self) -> str:
        """The zset of message ids."""
        return self.shared[2]

    @property
    def messages(self) -> str:
        """The hash of attributes and messages."""
        return self.shared[1]

    @property
    def with_registry(self) -> tuple[str, ...]:
        """For what creates or deletes the queue."""
        return (*self.shared, self.registry)

    @property
    def with_leases(self) -> tuple[str, ...]:
        """For claims: ours are the hash fence -> 'id rc' and the zset fence -> lease ends at, ms."""
        return (*self.shared, f"{self.shared[0]}:held", f"{self.shared[0]}:leases")

    @property
    def dead(self) -> tuple[str, str, str]:
        """Dead letters, ours: the hashes id -> message and id -> why, and the zset id -> buried at, ms."""
        side = self.shared[0]
        return f"{side}:dead", f"{side}:letters", f"{side}:buried"
