"""The keys of topics that tasks subscribe to; those of one topic share a hash tag, for clusters."""

from __future__ import annotations

from dataclasses import dataclass


def event_topics_key(namespace: str) -> str:
    """set: the names of all topics that were ever published to or subscribed; never in a script."""
    return f"{namespace}:topics"


def subscriptions_key(namespace: str) -> str:
    """hash: app -> its topics with a space between, so that those it left can be told; never in a script."""
    return f"{namespace}:subscriptions"


@dataclass(frozen=True, slots=True)
class EventKeys:
    """The keys of one topic, in the order in which its scripts receive them (parts/keys.lua)."""

    shared: tuple[str, str, str]

    @classmethod
    def of(cls, namespace: str, topic: str) -> EventKeys:
        """All keys of a topic."""
        start = f"{namespace}:{{topic:{topic}}}:"
        return cls(
            (
                f"{start}subscribers",  # hash: app/task -> its call, a template as JSON
                f"{start}outbox",  # hash: event -> 'at_ms app/task,...\n' and the payload; until all have it
                f"{start}backlog",  # list: 'event\n' and the payload, while nobody subscribes
            )
        )

    @property
    def subscribers(self) -> str:
        """Who gets a copy of what is published."""
        return self.shared[0]

    @property
    def outbox(self) -> str:
        """What was accepted and has not reached all queues."""
        return self.shared[1]
