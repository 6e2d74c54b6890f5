"""The work queue for asyncio: the verbs of `WorkQueue`, awaited, without those that only actors need.

The steps are the same (steps.py); only who follows them differs.
"""

from __future__ import annotations

from typing import Self

from mqworker.model.dead_letter import DeadLetter
from mqworker.model.delivery import Delivery
from mqworker.model.message import Enqueued, Message
from mqworker.model.names import ConsumerName, MessageId, consumer_name, message_id, queue_name, whole_number
from mqworker.model.settlement import Settlement
from mqworker.queues.work.calls import PendingElement, WorkQueueCalls, WorkQueueOptions
from mqworker.queues.work.queue import DEFAULT_LEASE_MS
from mqworker.queues.work.steps import QueueCounts, Whereabouts, WorkQueueSteps
from mqworker.store.async_store import AsyncStore, AsyncStoreClient


class AsyncWorkQueue(AsyncStoreClient):
    """One queue, for one event loop."""

    def __init__(self, name: str, store: AsyncStore, options: WorkQueueOptions | None = None) -> None:
        super().__init__(store)
        options = options or WorkQueueOptions()
        self.name = queue_name(name)
        self.calls = WorkQueueCalls(self.name, options)
        self._steps = WorkQueueSteps(self.calls, options.namespace)

    @classmethod
    def from_url(cls, name: str, url: str, options: WorkQueueOptions | None = None) -> Self:
        """A queue with a store of its own, which `close` or `async with` closes."""
        queue = cls(name, AsyncStore.from_url(url), options)
        queue.owns_store = True
        return queue

    async def enqueue(self, *messages: Message) -> list[Enqueued]:
        """Store messages, up to a thousand as one atomic batch; once, even if a reply is lost on the way."""
        return await self.store.follow(self._steps.enqueue(messages))

    async def claim(
        self, count: int = 1, *, lease_ms: int = DEFAULT_LEASE_MS, consumer: str | None = None
    ) -> list[Delivery]:
        """Take up to `count` messages under a lease.

        Without a consumer the lease expires after `lease_ms`, unless extended. With one it lasts as
        long as that consumer's heartbeat (`beat`), however long the work takes.
        """
        name = None if consumer is None else consumer_name(consumer)
        return await self.store.follow(self._steps.claim(count, name, lease_ms))

    async def settle(self, *settlements: Settlement, consumer: str | None = None) -> list[Settlement]:
        """End deliveries of that consumer. Those whose lease was lost come back, untouched."""
        name = None if consumer is None else consumer_name(consumer)
        return await self.store.follow(self._steps.settle(settlements, name))

    async def extend(self, *deliveries: Delivery, lease_ms: int = DEFAULT_LEASE_MS) -> list[Delivery]:
        """Prolong leases that expire. Those that were lost come back."""
        return await self.store.follow(self._steps.extend(deliveries, lease_ms))

    async def reclaim(self) -> tuple[int, int]:
        """Return deliveries whose lease ended to the front of the line: (reclaimed, buried as crashed)."""
        return await self.store.follow(self._steps.reclaim())

    async def beat(self, consumer: str) -> None:
        """A consumer's sign of life: it prolongs everything that it holds, at the cost of one."""
        await self.store.run(self.calls.beat(consumer_name(consumer)))

    async def reap(self, consumer: str, *, silent_ms: int) -> int:
        """Release what a consumer holds that was silent for so long, counted as a loss of each message.

        0: at once, on its own word; nothing is counted then.
        """
        whole_number("silent_ms", silent_ms, least=0, most=2**53)
        return await self.store.follow(
            self._steps.reap(consumer_name(consumer), silent_ms, min(silent_ms, 1))
        )

    async def reap_dead(self, consumer: str) -> int:
        """Release at once what a consumer holds that is known to have died; it counts as a loss."""
        return await self.store.follow(self._steps.reap(consumer_name(consumer), 0, 1))

    async def consumers(self) -> list[ConsumerName]:
        """All consumers that may hold something."""
        return await self.store.follow(self._steps.consumers())

    async def promote(self) -> int:
        """Move delayed messages that are due into their line; milliseconds until the next one, or -1."""
        return await self.store.follow(self._steps.promote())

    async def expire(self) -> int:
        """Report waiting messages whose deadline passed; how many."""
        return await self.store.follow(self._steps.expire())

    async def forget(self) -> None:
        """Drop what is remembered longer than needed: replies of lanes long unused, guards that ended."""
        await self.store.follow(self._steps.forget())

    async def cancel(self, message: str) -> bool:
        """Take a waiting message out; False when it waits no longer."""
        return await self.store.follow(self._steps.cancel(message_id(message)))

    async def find(self, message: str) -> Whereabouts:
        """In which state a message is."""
        return await self.store.follow(self._steps.find(message_id(message)))

    async def counts(self) -> QueueCounts:
        """How many messages are in each state, and how many ever passed."""
        return await self.store.follow(self._steps.counts())

    async def pause(self) -> None:
        """Hand out nothing more until `resume`; enqueueing goes on."""
        await self.store.run(self.calls.configure(paused="1"))

    async def resume(self) -> None:
        """Hand out messages again."""
        await self.store.run(self.calls.configure(paused=""))

    async def limit(self, length: int | None) -> None:
        """Refuse to hold more than `length` waiting messages (`QueueFull`); None lifts the limit."""
        if length is not None:
            whole_number("length", length, least=1, most=2**53)
        await self.store.run(self.calls.configure(limit="" if length is None else str(length)))

    async def dead_letters(self, start: int = 0, count: int = 100) -> list[DeadLetter]:
        """Messages that were given up, the oldest first, with the reason."""
        return await self.store.follow(self._steps.dead_letters(start, count))

    async def revive(self, *messages: str) -> list[MessageId]:
        """Put dead letters back in line, their counts beginning anew; those that were dead."""
        return await self.store.follow(self._steps.revive([message_id(message) for message in messages]))

    async def purge_waiting(self) -> int:
        """Throw away everything that waits; how many."""
        return await self.store.follow(self._steps.purge("waiting"))

    async def purge_dead(self) -> int:
        """Throw away all dead letters; how many."""
        return await self.store.follow(self._steps.purge("dead"))

    # The verbs of the RedisMQ document.

    async def push(self, *elements: bytes | str) -> list[MessageId]:
        """MQ.PUSH: append elements; their new ids, strictly increasing."""
        return await self.store.follow(self._steps.push(elements))

    async def pop(self, count: int = 1) -> list[tuple[MessageId, bytes]] | None:
        """MQ.POP: deliver the oldest elements; None when there is no such queue."""
        return await self.store.follow(self._steps.pop(count))

    async def ack(self, *messages: str) -> list[MessageId] | None:
        """MQ.ACK: end delivered elements; the ids really removed, None when there is no such queue."""
        return await self.store.follow(self._steps.ack(messages))

    async def recover(self, count: int, elapsed_ms: int) -> list[tuple[MessageId, bytes]] | None:
        """MQ.RECOVER: deliver again what was delivered that long ago; None when there is no such queue."""
        return await self.store.follow(self._steps.recover(count, elapsed_ms))

    async def inspect(self, start: int, count: int) -> list[tuple[MessageId, bytes]]:
        """MQ.INSPECT: undelivered elements by position; a negative start counts from the end."""
        return await self.store.follow(self._steps.inspect(start, count))

    async def inspect_pending(self, start: int, count: int) -> list[PendingElement]:
        """MQ.INSPECT … PENDING: delivered elements by position, in the order of their last delivery."""
        return await self.store.follow(self._steps.inspect_pending(start, count))
