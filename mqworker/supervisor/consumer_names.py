"""Consumer names: under which this node holds leases, and what the heartbeat reaper must know of them. Pure.

All dispatchers of a node are one consumer, for each takes over what the one before it held. When the last one
has ended and its last worker with it, the reaper releases what is left; a reaper that was started anew is
told again, for the one before may have died with it. Each gateway is a consumer of its own: what it
took ends with its own process.
"""

from __future__ import annotations

from collections import deque

from mqworker.actors.mail import ConsumerGone, ConsumerStarted, Mail
from mqworker.supervisor.node import Node

_MOST_REMEMBERED = 16


class ConsumerNames:
    """The consumer of a node, those of its gateways, and those that ended of late."""

    def __init__(self, node: Node) -> None:
        self.present = node.consumer
        self._node = node
        self._is_present = False
        self._has_ended = False
        self._gone: deque[str] = deque(maxlen=_MOST_REMEMBERED)
        self._consumer_by_gateway: dict[str, str] = {}

    def begin(self) -> ConsumerStarted:
        """A dispatcher is about to start."""
        self._is_present, self._has_ended = True, False
        return ConsumerStarted(self.present)

    def end(self) -> None:
        """The last dispatcher ended; its workers may not have yet."""
        self._has_ended = self._is_present

    def release(self) -> list[Mail]:
        """No worker is left: if the last dispatcher ended before them, its leases can be reclaimed."""
        if not self._has_ended:
            return []
        self._is_present = self._has_ended = False
        self._gone.append(self.present)
        return [ConsumerGone(self.present)]

    def begin_gateway(self, gateway: str, generation: int) -> ConsumerStarted:
        """A gateway of this generation is about to start."""
        consumer = self._consumer_by_gateway[gateway] = self._node.gateway_consumer(gateway, generation)
        return ConsumerStarted(consumer)

    def end_gateway(self, gateway: str) -> list[Mail]:
        """A gateway ended; its leases can be reclaimed."""
        consumer = self._consumer_by_gateway.pop(gateway, None)
        if consumer is None:
            return []
        self._gone.append(consumer)
        return [ConsumerGone(consumer)]

    def briefing(self) -> list[Mail]:
        """What a new reaper must be told; telling it twice does no harm."""
        present = [self.present] if self._is_present else []
        started = [ConsumerStarted(consumer) for consumer in (*present, *self._consumer_by_gateway.values())]
        return [*(ConsumerGone(consumer) for consumer in self._gone), *started]
