"""RSMQ as a library: queues on exactly the documented keys, shared with its clients in other languages.

A message is sent, received (hidden for the visibility timeout `vt`, in seconds) and deleted; one that is not
deleted in time is received again. Every change is one script on the server's clock. A call whose reply was
lost is repeated by the store without harm; only what a lost receive took stays hidden for its vt.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from mqworker.queues.rsmq.arguments import DEFAULT_DELAY, DEFAULT_MAXSIZE, DEFAULT_VT
from mqworker.queues.rsmq.calls import RsmqAttributes, RsmqMessage, RsmqOptions
from mqworker.queues.rsmq.steps import RsmqSteps
from mqworker.store.async_store import AsyncStore, AsyncStoreClient
from mqworker.store.store import Store, StoreClient


class RsmqClient(StoreClient):
    """All queues of one namespace, synchronously. Safe between threads. Refusals are `RsmqError`s."""

    def __init__(self, store: Store, options: RsmqOptions | None = None) -> None:
        super().__init__(store)
        self._steps = RsmqSteps(options or RsmqOptions())

    @classmethod
    def from_url(cls, url: str, options: RsmqOptions | None = None) -> Self:
        """A client with a store of its own, which `close` or `with` closes."""
        client = cls(Store.from_url(url), options)
        client.owns_store = True
        return client

    def create_queue(
        self, qname: str, *, vt: int = DEFAULT_VT, delay: int = DEFAULT_DELAY, maxsize: int = DEFAULT_MAXSIZE
    ) -> None:
        """Make a queue. Seconds for vt and delay, bytes for maxsize, -1 for messages of any size."""
        self.store.follow(self._steps.create_queue(qname, vt, delay, maxsize))

    def list_queues(self) -> list[str]:
        """The names of all queues."""
        return self.store.follow(self._steps.list_queues())

    def delete_queue(self, qname: str) -> None:
        """Delete a queue with all its messages."""
        self.store.follow(self._steps.delete_queue(qname))

    def get_queue_attributes(self, qname: str) -> RsmqAttributes:
        """Settings and counters of a queue."""
        return self.store.follow(self._steps.get_queue_attributes(qname))

    def set_queue_attributes(
        self, qname: str, *, vt: int | None = None, delay: int | None = None, maxsize: int | None = None
    ) -> RsmqAttributes:
        """Change settings of a queue, at least one; all of them afterwards."""
        return self.store.follow(self._steps.set_queue_attributes(qname, vt, delay, maxsize))

    def send_message(self, qname: str, message: bytes | str, *, delay: int | None = None) -> str:
        """Store a message, hidden for `delay` seconds (the queue's, if not given); its id."""
        return self.send_messages(qname, [message], delay=delay)[0]

    def send_messages(
        self, qname: str, messages: Sequence[bytes | str], *, delay: int | None = None
    ) -> list[str]:
        """Store messages, a thousand or 4 MiB in one round trip, all or none of those; the ids in order."""
        return self.store.follow(self._steps.send_messages(qname, messages, delay))

    def receive_message(self, qname: str, *, vt: int | None = None) -> RsmqMessage | None:
        """Take the next visible message and hide it for `vt` seconds (the queue's, if not given)."""
        return self.store.follow(self._steps.receive_message(qname, vt))

    def receive_messages(self, qname: str, count: int, *, vt: int | None = None) -> list[RsmqMessage]:
        """Take up to `count` visible messages, at most a thousand, in one round trip."""
        return self.store.follow(self._steps.receive_messages(qname, count, vt))

    def pop_message(self, qname: str) -> RsmqMessage | None:
        """Take the next visible message and delete it: at most once, if the caller dies with it."""
        return self.store.follow(self._steps.pop_message(qname))

    def delete_message(self, qname: str, message_id: str) -> bool:
        """Delete a message; False when it is not there, or no such queue."""
        return self.store.follow(self._steps.delete_message(qname, message_id))

    def delete_messages(self, qname: str, ids: Sequence[str]) -> list[bool]:
        """Delete messages, up to a thousand in one round trip; for each whether it was there."""
        return self.store.follow(self._steps.delete_messages(qname, ids))

    def change_message_visibility(self, qname: str, message_id: str, *, vt: int) -> bool:
        """Hide a message for `vt` seconds from now, 0 shows it; False when it is not there."""
        return self.store.follow(self._steps.change_message_visibility(qname, message_id, vt))


class AsyncRsmqClient(AsyncStoreClient):
    """All queues of one namespace, for one event loop. Refusals are `RsmqError`s."""

    def __init__(self, store: AsyncStore, options: RsmqOptions | None = None) -> None:
        super().__init__(store)
        self._steps = RsmqSteps(options or RsmqOptions())

    @classmethod
    def from_url(cls, url: str, options: RsmqOptions | None = None) -> Self:
        """A client with a store of its own, which `close` or `async with` closes."""
        client = cls(AsyncStore.from_url(url), options)
        client.owns_store = True
        return client

    async def create_queue(
        self, qname: str, *, vt: int = DEFAULT_VT, delay: int = DEFAULT_DELAY, maxsize: int = DEFAULT_MAXSIZE
    ) -> None:
        """Make a queue. Seconds for vt and delay, bytes for maxsize, -1 for messages of any size."""
        await self.store.follow(self._steps.create_queue(qname, vt, delay, maxsize))

    async def list_queues(self) -> list[str]:
        """The names of all queues."""
        return await self.store.follow(self._steps.list_queues())

    async def delete_queue(self, qname: str) -> None:
        """Delete a queue with all its messages."""
        await self.store.follow(self._steps.delete_queue(qname))

    async def get_queue_attributes(self, qname: str) -> RsmqAttributes:
        """Settings and counters of a queue."""
        return await self.store.follow(self._steps.get_queue_attributes(qname))

    async def set_queue_attributes(
        self, qname: str, *, vt: int | None = None, delay: int | None = None, maxsize: int | None = None
    ) -> RsmqAttributes:
        """Change settings of a queue, at least one; all of them afterwards."""
        return await self.store.follow(self._steps.set_queue_attributes(qname, vt, delay, maxsize))

    async def send_message(self, qname: str, message: bytes | str, *, delay: int | None = None) -> str:
        """Store a message, hidden for `delay` seconds (the queue's, if not given); its id."""
        return (await self.send_messages(qname, [message], delay=delay))[0]

    async def send_messages(
        self, qname: str, messages: Sequence[bytes | str], *, delay: int | None = None
    ) -> list[str]:
        """Store messages, a thousand or 4 MiB in one round trip, all or none of those; the ids in order."""
        return await self.store.follow(self._steps.send_messages(qname, messages, delay))

    async def receive_message(self, qname: str, *, vt: int | None = None) -> RsmqMessage | None:
        """Take the next visible message and hide it for `vt` seconds (the queue's, if not given)."""
        return await self.store.follow(self._steps.receive_message(qname, vt))

    async def receive_messages(self, qname: str, count: int, *, vt: int | None = None) -> list[RsmqMessage]:
        """Take up to `count` visible messages, at most a thousand, in one round trip."""
        return await self.store.follow(self._steps.receive_messages(qname, count, vt))

    async def pop_message(self, qname: str) -> RsmqMessage | None:
        """Take the next visible message and delete it: at most once, if the caller dies with it."""
        return await self.store.follow(self._steps.pop_message(qname))

    async def delete_message(self, qname: str, message_id: str) -> bool:
        """Delete a message; False when it is not there, or no such queue."""
        return await self.store.follow(self._steps.delete_message(qname, message_id))

    async def delete_messages(self, qname: str, ids: Sequence[str]) -> list[bool]:
        """Delete messages, up to a thousand in one round trip; for each whether it was there."""
        return await self.store.follow(self._steps.delete_messages(qname, ids))

    async def change_message_visibility(self, qname: str, message_id: str, *, vt: int) -> bool:
        """Hide a message for `vt` seconds from now, 0 shows it; False when it is not there."""
        return await self.store.follow(self._steps.change_message_visibility(qname, message_id, vt))
