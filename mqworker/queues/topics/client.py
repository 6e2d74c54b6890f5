"""Topics: the model of the GOMQ document, on exactly its keys. Whoever listens gets a copy of everything.

What is published to a key waits in its main queue. `dispatch` moves it to a dedicated queue of every peer of
every consumer id that is subscribed, and `observe` takes it from there: at most once for each peer. While
nobody listens the main queue is kept. A peer that is silent for 30 seconds is dropped, by `dispatch` when it
comes across one and by `sweep`. Nothing runs in the background: the program calls these two again and again.

Every change is one script on the server's clock, and no record is lost or doubled by a reply that is. The
documented keys lie in any slot, so a cluster is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from mqworker.queues.topics.arguments import TopicOptions
from mqworker.queues.topics.calls import Dispatched, TopicRecord
from mqworker.queues.topics.steps import TopicSteps
from mqworker.store.async_store import AsyncStore, AsyncStoreClient
from mqworker.store.store import Store, StoreClient


class Topics(StoreClient):
    """All topics of one prefix in one database, synchronously. Safe between threads."""

    def __init__(self, store: Store, options: TopicOptions | None = None) -> None:
        super().__init__(store)
        self._steps = TopicSteps(options or TopicOptions())

    @classmethod
    def from_url(cls, url: str, options: TopicOptions | None = None) -> Self:
        """A client with a store of its own, which `close` or `with` closes."""
        client = cls(Store.from_url(url), options)
        client.owns_store = True
        return client

    @property
    def channel(self) -> str:
        """Where publishing into an empty topic calls those who dispatch (SSUBSCRIBE)."""
        return self._steps.calls.keys.side

    def publish(self, key: str, payload: bytes | str) -> str:
        """Append a record to the main queue of a topic; its id."""
        return self.publish_many(key, [payload])[0]

    def publish_many(self, key: str, payloads: Sequence[bytes | str]) -> list[str]:
        """Append records, a thousand or 4 MiB in one round trip, all or none of those; their ids in order."""
        return self.store.follow(self._steps.publish(key, payloads))

    def subscribe(self, key: str, consumer: str, peer: str) -> None:
        """Let a peer listen to a topic under a consumer id; all peers of that id are served all its topics.

        Raises `TopicNameTaken` where '_' in the names would make two queues of this peer one.
        """
        self.store.follow(self._steps.subscribe(key, consumer, peer))

    def unsubscribe(self, key: str, consumer: str) -> bool:
        """End listening for all peers of a consumer id, and drop what waits for them; whether it listened."""
        return self.store.follow(self._steps.unsubscribe(key, consumer))

    def observe(self, consumer: str, peer: str) -> list[TopicRecord]:
        """Take the oldest records for a peer, up to 50 of each topic; it counts as heard by that."""
        return self.store.follow(self._steps.observe(consumer, peer))

    def dispatch(self) -> int:
        """Move up to a thousand records of each topic to all that listen; how many records."""
        return self.store.follow(self._steps.dispatch())

    def dispatch_waiting(self) -> Dispatched:
        """The same, but only where something waits, and saying when to come again."""
        return self.store.follow(self._steps.dispatch_waiting())

    def sweep(self) -> int:
        """Drop peers that fell silent, and consumer ids without peers; how many peers."""
        return self.store.follow(self._steps.sweep())


class AsyncTopics(AsyncStoreClient):
    """All topics of one prefix in one database, for one event loop."""

    def __init__(self, store: AsyncStore, options: TopicOptions | None = None) -> None:
        super().__init__(store)
        self._steps = TopicSteps(options or TopicOptions())

    @classmethod
    def from_url(cls, url: str, options: TopicOptions | None = None) -> Self:
        """A client with a store of its own, which `close` or `async with` closes."""
        client = cls(AsyncStore.from_url(url), options)
        client.owns_store = True
        return client

    async def publish(self, key: str, payload: bytes | str) -> str:
        """Append a record to the main queue of a topic; its id."""
        return (await self.publish_many(key, [payload]))[0]

    async def publish_many(self, key: str, payloads: Sequence[bytes | str]) -> list[str]:
        """Append records, a thousand or 4 MiB in one round trip, all or none of those; their ids in order."""
        return await self.store.follow(self._steps.publish(key, payloads))

    async def subscribe(self, key: str, consumer: str, peer: str) -> None:
        """Let a peer listen to a topic under a consumer id; all peers of that id are served all its topics.

        Raises `TopicNameTaken` where '_' in the names would make two queues of this peer one.
        """
        await self.store.follow(self._steps.subscribe(key, consumer, peer))

    async def unsubscribe(self, key: str, consumer: str) -> bool:
        """End listening for all peers of a consumer id, and drop what waits for them; whether it listened."""
        return await self.store.follow(self._steps.unsubscribe(key, consumer))

    async def observe(self, consumer: str, peer: str) -> list[TopicRecord]:
        """Take the oldest records for a peer, up to 50 of each topic; it counts as heard by that."""
        return await self.store.follow(self._steps.observe(consumer, peer))

    async def dispatch(self) -> int:
        """Move up to a thousand records of each topic to all that listen; how many records."""
        return await self.store.follow(self._steps.dispatch())

    async def dispatch_waiting(self) -> Dispatched:
        """The same, but only where something waits, and saying when to come again."""
        return await self.store.follow(self._steps.dispatch_waiting())

    async def sweep(self) -> int:
        """Drop peers that fell silent, and consumer ids without peers; how many peers."""
        return await self.store.follow(self._steps.sweep())
