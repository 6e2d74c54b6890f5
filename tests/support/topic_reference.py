"""What topics should do, in plain Python: the same verbs on dictionaries, for comparison after every step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

Condition = Callable[[str, str, str], bool]
"""Of a topic, a consumer and a peer."""


class TopicReference:
    """All topics of one prefix, without a backlog that waits, and with orphans dropped."""

    def __init__(self) -> None:
        self.main: defaultdict[str, list[str]] = defaultdict(list)
        self.consumers: defaultdict[str, set[str]] = defaultdict(set)
        self.peers: defaultdict[str, set[str]] = defaultdict(set)
        self.unread: defaultdict[tuple[str, str, str], list[str]] = defaultdict(list)
        self.heard: set[tuple[str, str]] = set()

    def publish(self, key: str, record: str) -> None:
        """It waits in the main queue."""
        self.main[key].append(record)

    def subscribe(self, key: str, consumer: str, peer: str) -> None:
        """The consumer listens to the topic, and the peer to everything of the consumer."""
        self.consumers[key].add(consumer)
        self.peers[consumer].add(peer)
        self.heard.add((consumer, peer))

    def unsubscribe(self, key: str, consumer: str) -> None:
        """All peers lose what they had not observed of the topic."""
        self.consumers[key].discard(consumer)
        self._forget_unread(lambda k, c, _: (k, c) == (key, consumer))

    def observe(self, consumer: str, peer: str, at_once: int) -> dict[str, list[str]]:
        """The oldest of each topic, taken out."""
        self.heard.add((consumer, peer))
        taken = {}
        for key in self.topics_of(consumer):
            unread = self.unread[key, consumer, peer]
            taken[key], self.unread[key, consumer, peer] = unread[:at_once], unread[at_once:]
        return {key: records for key, records in taken.items() if records}

    def dispatch(self) -> int:
        """A copy for every peer that is heard."""
        moved = 0
        for key in sorted(self.consumers):
            for consumer in sorted(self.consumers[key]):
                self.sweep_consumer(consumer)
            listening = [
                (consumer, peer) for consumer in self.consumers[key] for peer in self.peers[consumer]
            ]
            if listening:
                for consumer, peer in listening:
                    self.unread[key, consumer, peer] += self.main[key]
                moved += len(self.main[key])
                self.main[key] = []
        return moved

    def sweep(self) -> int:
        """Everybody who is not heard any more goes."""
        return sum(self.sweep_consumer(consumer) for consumer in list(self.peers))

    def sweep_consumer(self, consumer: str) -> int:
        """The silent peers of one consumer; with the last one go its subscriptions."""
        silent = {peer for peer in self.peers[consumer] if (consumer, peer) not in self.heard}
        self.peers[consumer] -= silent
        self._forget_unread(lambda _, c, p: c == consumer and p in silent)
        if not self.peers[consumer]:
            for key in self.topics_of(consumer):
                self.consumers[key].discard(consumer)
        return len(silent)

    def topics_of(self, consumer: str) -> list[str]:
        """What a consumer listens to."""
        return [key for key, consumers in self.consumers.items() if consumer in consumers]

    def _forget_unread(self, is_gone: Condition) -> None:
        for place in [place for place in self.unread if is_gone(*place)]:
            del self.unread[place]
