"""Every Redis key of schedules is built here, with its type and what it holds.

All lie in one slot, so that one script changes a schedule and its place in the index. What a firing writes
lies in the slot of its queue: `ticks` there makes a tick fire once; the index only says where to look.
"""

from __future__ import annotations

from dataclasses import dataclass

from mqworker.queues.work.keys import schedules_key


@dataclass(frozen=True, slots=True)
class ScheduleKeys:
    """The keys in the order in which every script receives them (parts/keys.lua)."""

    shared: tuple[str, ...]

    @classmethod
    def of(cls, namespace: str) -> ScheduleKeys:
        """All keys of the schedules of a namespace."""
        specs = schedules_key(namespace)
        prefix = f"{namespace}:{{{specs}}}:"  # the tag is the whole of the first key: it has the same slot
        return cls(
            (
                specs,  # hash: name -> '<revision> <owner> <since ms> <times> <queue> <JSON>'
                f"{prefix}names",  # zset: every name, all with the score 0, to be listed by name
                f"{prefix}due",  # zset: name -> when a broker is to look at it, ms; a hint
                f"{prefix}marks",  # hash: name -> its pause, or since when it goes on (mark.py)
                f"{prefix}history",  # hash: name -> its last firings (history.py)
                f"{prefix}owned",  # hash: app -> names that its code published, one per line
                f"{prefix}forget",  # zset: '<queue> <name>' -> when its tick there may be forgotten, ms
                f"{prefix}meta",  # hash: revision, looked_ms, cursor
            )
        )

    @property
    def specs(self) -> str:
        """The hash of all schedules."""
        return self.shared[0]

    @property
    def names(self) -> str:
        """All names, in their order."""
        return self.shared[1]

    @property
    def due(self) -> str:
        """All names, the one to be looked at next first."""
        return self.shared[2]

    @property
    def marks(self) -> str:
        """Pauses."""
        return self.shared[3]

    @property
    def history(self) -> str:
        """The last firings."""
        return self.shared[4]

    @property
    def owned(self) -> str:
        """What the code of each app published."""
        return self.shared[5]
