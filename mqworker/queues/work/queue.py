"""The work queue: RedisMQ's reliable queue with leases, delay, priority, deadlines, guards and dead letters.

Beside our verbs stand exactly those of the RedisMQ document: push, pop, ack, recover, inspect. They share the
waiting line. What `pop` delivered has no lease and is ended by `ack` or `recover`; what `claim` delivered has
one and is ended by `settle`. Neither touches what the other delivered.
"""

from __future__ import annotations

from typing import Self

from mqworker.model.dead_letter import DeadLetter
from mqworker.model.delivery import Delivery
from mqworker.model.message import Enqueued, Message
from mqworker.model.names import ConsumerName, MessageId, consumer_name, message_id, queue_name, whole_number
from mqworker.model.settlement import Settlement
from mqworker.queues.queue_model import Capability
from mqworker.queues.work.calls import PendingElement, WorkQueueCalls, WorkQueueOptions
from mqworker.queues.work.steps import LARGEST_BATCH, QueueCounts, Whereabouts, WorkQueueSteps
from mqworker.store.store import Store, StoreClient

DEFAULT_LEASE_MS = 30_000


class WorkQueue(StoreClient):
    """One queue, synchronously. Safe between threads."""

    capabilities = ~Capability.NONE  # everything

    def __init__(self, name: str, store: Store, options: WorkQueueOptions | None = None) -> None:
        super().__init__(store)
        options = options or WorkQueueOptions()
        self.name = queue_name(name)
        self.calls = WorkQueueCalls(self.name, options)
        self._steps = WorkQueueSteps(self.calls, options.namespace, store.quarantine)

    @classmethod
    def from_url(cls, name: str, url: str, options: WorkQueueOptions | None = None) -> Self:
        """A queue with a store of its own, which `close` or `with` closes."""
        queue = cls(name, Store.from_url(url), options)
        queue.owns_store = True
        return queue

    def enqueue(self, *messages: Message) -> list[Enqueued]:
        """Store messages, up to a thousand as one atomic batch; once, even if a reply is lost on the way."""
        return self.store.follow(self._steps.enqueue(messages))

    def claim(
        self, count: int = 1, *, lease_ms: int = DEFAULT_LEASE_MS, consumer: str | None = None
    ) -> list[Delivery]:
        """Take up to `count` messages under a lease.

        Without a consumer the lease expires after `lease_ms`, unless extended. With one it lasts as
        long as that consumer's heartbeat (`beat`), however long the work takes.
        """
        name = None if consumer is None else consumer_name(consumer)
        return self.store.follow(self._steps.claim(count, name, lease_ms))

    def settle(self, *settlements: Settlement, consumer: str | None = None) -> list[Settlement]:
        """End deliveries of that consumer. Those whose lease was lost come back, untouched."""
        name = None if consumer is None else consumer_name(consumer)
        return self.store.follow(self._steps.settle(settlements, name))

    def extend(self, *deliveries: Delivery, lease_ms: int = DEFAULT_LEASE_MS) -> list[Delivery]:
        """Prolong leases that expire. Those that were lost come back."""
        return self.store.follow(self._steps.extend(deliveries, lease_ms))

    def reclaim(self) -> tuple[int, int]:
        """Return deliveries whose lease ended to the front of the line: (reclaimed, buried as crashed)."""
        return self.store.follow(self._steps.reclaim())

    def beat(self, consumer: str) -> None:
        """A consumer's sign of life: it prolongs everything that it holds, at the cost of one."""
        self.store.run(self.calls.beat(consumer_name(consumer)))

    def reap(self, consumer: str, *, silent_ms: int) -> int:
        """Release what a consumer holds that was silent for so long, counted as a loss of each message.

        0: at once, on its own word; nothing is counted then.
        """
        whole_number("silent_ms", silent_ms, least=0, most=2**53)
        return self.store.follow(self._steps.reap(consumer_name(consumer), silent_ms, min(silent_ms, 1)))

    def reap_dead(self, consumer: str) -> int:
        """Release at once what a consumer holds that is known to have died; it counts as a loss."""
        return self.store.follow(self._steps.reap(consumer_name(consumer), 0, 1))

    def promote(self) -> int:
        """Move delayed messages that are due into their line; milliseconds until the next one, or -1."""
        return self.store.follow(self._steps.promote())

    def admit(self, room: int) -> tuple[int, int]:
        """Let up to `room` limited messages in, as buckets allow; (how many, ms until the next or -1)."""
        return self.store.run(self.calls.admit(whole_number("room", room, least=1, most=LARGEST_BATCH)))

    def expire(self) -> int:
        """Report waiting messages whose deadline passed; how many."""
        return self.store.follow(self._steps.expire())

    def consumers(self) -> list[ConsumerName]:
        """All consumers that may hold something, heard of lately or not."""
        return self.store.follow(self._steps.consumers())

    def silent_consumers(self, silent_ms: int) -> list[ConsumerName]:
        """Consumers that were not heard for so long, by the server's clock."""
        return self.store.follow(self._steps.silent_consumers(silent_ms))

    def repair(self) -> int:
        """Mend what another program broke: entries without their other half; how many."""
        return self.store.follow(self._steps.repair())

    def rotate_results(self) -> int:
        """Drop results that were kept long enough; 1 when it was time."""
        return self.store.run(self.calls.rotate_results())[0]

    def forget(self) -> None:
        """Drop what is remembered longer than needed: replies of lanes long unused, guards that ended."""
        self.store.follow(self._steps.forget())

    def cancel(self, message: str) -> bool:
        """Take a waiting message out; False when it waits no longer."""
        return self.store.follow(self._steps.cancel(message_id(message)))

    def find(self, message: str) -> Whereabouts:
        """In which state a message is."""
        return self.store.follow(self._steps.find(message_id(message)))

    def counts(self) -> QueueCounts:
        """How many messages are in each state, and how many ever passed."""
        return self.store.follow(self._steps.counts())

    def pause(self) -> None:
        """Hand out nothing more until `resume`; enqueueing goes on."""
        self.store.run(self.calls.configure(paused="1"))

    def resume(self) -> None:
        """Hand out messages again."""
        self.store.run(self.calls.configure(paused=""))

    def limit(self, length: int | None) -> None:
        """Refuse to hold more than `length` waiting messages (`QueueFull`); None lifts the limit."""
        if length is not None:
            whole_number("length", length, least=1, most=2**53)
        self.store.run(self.calls.configure(limit="" if length is None else str(length)))

    def dead_letters(self, start: int = 0, count: int = 100) -> list[DeadLetter]:
        """Messages that were given up, the oldest first, with the reason."""
        return self.store.follow(self._steps.dead_letters(start, count))

    def revive(self, *messages: str) -> list[MessageId]:
        """Put dead letters back in line, their counts beginning anew; those that were dead."""
        return self.store.follow(self._steps.revive([message_id(message) for message in messages]))

    def purge_waiting(self) -> int:
        """Throw away everything that waits; how many."""
        return self.store.follow(self._steps.purge("waiting"))

    def purge_dead(self) -> int:
        """Throw away all dead letters; how many."""
        return self.store.follow(self._steps.purge("dead"))

    # The verbs of the RedisMQ document.

    def push(self, *elements: bytes | str) -> list[MessageId]:
        """MQ.PUSH: append elements; their new ids, strictly increasing."""
        return self.store.follow(self._steps.push(elements))

    def pop(self, count: int = 1) -> list[tuple[MessageId, bytes]] | None:
        """MQ.POP: deliver the oldest elements; None when there is no such queue."""
        return self.store.follow(self._steps.pop(count))

    def ack(self, *messages: str) -> list[MessageId] | None:
        """MQ.ACK: end delivered elements; the ids really removed, None when there is no such queue."""
        return self.store.follow(self._steps.ack(messages))

    def recover(self, count: int, elapsed_ms: int) -> list[tuple[MessageId, bytes]] | None:
        """MQ.RECOVER: deliver again what was delivered that long ago; None when there is no such queue."""
        return self.store.follow(self._steps.recover(count, elapsed_ms))

    def inspect(self, start: int, count: int) -> list[tuple[MessageId, bytes]]:
        """MQ.INSPECT: undelivered elements by position; a negative start counts from the end."""
        return self.store.follow(self._steps.inspect(start, count))

    def inspect_pending(self, start: int, count: int) -> list[PendingElement]:
        """MQ.INSPECT … PENDING: delivered elements by position, in the order of their last delivery."""
        return self.store.follow(self._steps.inspect_pending(start, count))
