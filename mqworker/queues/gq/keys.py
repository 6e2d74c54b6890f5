"""The keys of gq queues on Redis: one hash tag each, so that a cluster keeps a queue together."""

from __future__ import annotations

from dataclasses import dataclass

from mqworker.model.names import QueueName


@dataclass(frozen=True, slots=True)
class GqKeys:
    """The keys of one gq queue, in the order in which its scripts receive them (parts/queue.lua)."""

    shared: tuple[str, ...]
    prefix: str

    @classmethod
    def of(cls, namespace: str, queue: QueueName) -> GqKeys:
        """All keys of a queue."""
        prefix = f"{namespace}:gq:{{{queue}}}:"
        shared = (
            f"{prefix}calls",  # hash: newest call of each lane; expires when unused
            f"{prefix}meta",  # hash: last id, last birth, how many ended ones are kept by status
            f"{prefix}queued",  # zset: id -> id, of the queued: oldest first, also after a return
            f"{prefix}payloads",  # hash: id -> payload
            f"{prefix}records",  # hash: id -> status and times, see parts/queue.lua
            f"{prefix}deadlines",  # zset: id -> deadline, ms, of the queued that have one
            f"{prefix}leases",  # zset: id -> deadline or end of a later lease, ms, of the consumed
            f"{prefix}owned",  # zset without order: '<consumer>.<claim> <id>', of the consumed
            f"{prefix}done",  # zset: id -> ended at, ms, of the processed and failed that are kept
            f"{prefix}births",  # zset: consumer -> birth number
            f"{prefix}beats",  # zset: consumer -> last heartbeat, ms
        )
        return cls(shared, prefix)

    def named(self, name: str) -> str:
        """One of the keys by its last part, for views that only read."""
        return f"{self.prefix}{name}"
