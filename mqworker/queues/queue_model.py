"""The protocol that every queue model speaks, and the capabilities that tell the models apart.

tests/conformance/ runs one suite over all models; a model declares what it can do and is asked no more.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Flag, auto
from typing import Protocol

from mqworker.model.delivery import Delivery
from mqworker.model.message import Enqueued, Message
from mqworker.model.settlement import Settlement


class Capability(Flag):
    """What a queue model offers beyond enqueue, claim and ack."""

    NONE = 0
    LEASE = auto()
    """A delivery that is not settled in time returns by itself (`reclaim`), and its late ack is refused."""
    EXTEND = auto()
    DELAY = auto()
    PRIORITY = auto()
    DEADLINE = auto()
    GUARD = auto()
    RETRY = auto()
    DEAD_LETTER = auto()
    CANCEL = auto()
    PAUSE = auto()
    LENGTH_LIMIT = auto()


class QueueModel(Protocol):
    """What a dispatcher and a user of a raw queue can rely on, whatever the model."""

    capabilities: Capability

    def enqueue(self, *messages: Message) -> Sequence[Enqueued]:
        """Store messages, in order."""

    def claim(self, count: int = 1, *, lease_ms: int = ...) -> list[Delivery]:
        """Take up to `count` messages, the oldest first."""

    def settle(self, *settlements: Settlement) -> list[Settlement]:
        """End deliveries; those whose lease was lost come back."""

    def extend(self, *deliveries: Delivery, lease_ms: int = ...) -> list[Delivery]:
        """Prolong leases; those that were lost come back."""

    def reclaim(self) -> tuple[int, int]:
        """Return deliveries whose lease ended: (reclaimed, buried)."""
