"""The keys of topics: those that the GOMQ document lays down, and side keys that are ours alone.

`FOO` is the key of a topic, `BAR` a consumer id, `127.0.0.1:5467` a peer; a prefix may stand before all:

    SUBSCRIBED_KEYS                      set: the main queues that somebody listens to, by their full names
    QUEUE_FOO                            list: the main queue, JSON records, the oldest on the left
    CONSUMERS_FOO                        set: the consumer ids that listen
    SUBSCRIPTIONS_BAR                    set: the topics that a consumer id listens to
    PEERS_BAR                            set: the peers that share a consumer id
    MESSAGES_FOO_BAR_127.0.0.1:5467      list: the dedicated queue of a peer, records as in the main queue
    LASTACTION_BAR_127.0.0.1:5467        string with a time to live: when the peer subscribed or observed last

Only the server knows all consumers and peers, so scripts build these names themselves (parts/keys.lua).
They lie in any slot: topics need a server of their own or a primary with replicas, never a cluster.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TopicKeys:
    """The keys that every script of topics receives."""

    prefix: str

    @property
    def shared(self) -> tuple[str, str]:
        """Declared to each script: what is subscribed, and the side key, from which it makes all others."""
        return self.subscribed, self.side

    @property
    def subscribed(self) -> str:
        """set, documented: the names of main queues that have listeners."""
        return f"{self.prefix}SUBSCRIBED_KEYS"

    @property
    def side(self) -> str:
        """set, ours: consumer ids that have peers. The channel of this name calls whoever dispatches.

        Scripts make two kinds of strings from it, which expire: `:call:<lane>` is the newest call and its
        reply; `:grace:<topic>` is there while a backlog waits. It begins with the prefix, too:
        a user of the server who may touch nothing else can have topics.
        """
        return f"{self.prefix}mqw:topics:{{{self.prefix}}}"

    def queue_of(self, topic: bytes) -> bytes:
        """list, documented: the main queue of a topic."""
        return f"{self.prefix}QUEUE_".encode() + topic

    def topic_of(self, queue: bytes) -> bytes | None:
        """The topic whose main queue has this name; None for a name of another kind."""
        start = f"{self.prefix}QUEUE_".encode()
        return queue.removeprefix(start) if queue.startswith(start) else None
