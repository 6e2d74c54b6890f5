"""A gq queue as a queue of tasks, by the protocol of all queue models; on Redis or on SQL.

The object is one consumer of the queue: it takes from its partition, `id mod N`. gq has no leases for a time:
what was claimed is kept until it is settled, or until its consumer is dead and another one reclaims it. What
returns takes its old place at once; what is buried ends as `failed`. At most once, nothing is reclaimed.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace

from mqworker.errors import InvalidArgument, InvalidMessage
from mqworker.model.delivery import Delivery
from mqworker.model.message import NO_TASK, Enqueued, Message
from mqworker.model.names import MessageId, message_id, task_name, whole_number
from mqworker.model.settlement import Ack, Bury, Settlement
from mqworker.queues.gq.consumer import GqConsumer
from mqworker.queues.gq.database import GqOutgoing, GqStore
from mqworker.queues.gq.rules import (
    LARGEST_BATCH,
    LARGEST_ID,
    GqClaim,
    GqHeld,
    GqLiveness,
    GqMessage,
    GqRecord,
    GqResult,
    GqTerms,
    fence_of,
)
from mqworker.queues.queue_model import Capability

DEFAULT_LEASE_MS = 30_000
DEFAULT_LIVENESS = GqLiveness()
DEFAULT_TERMS = GqTerms(reclaim_dead=True)
_NO_ID = "-"
"""Stands in the header of messages that go by the number which gq gives them."""


class GqQueue:
    """One queue and one consumer of it, synchronously. Safe between threads."""

    capabilities = Capability.NONE

    def __init__(
        self,
        store: GqStore,
        liveness: GqLiveness = DEFAULT_LIVENESS,
        terms: GqTerms = DEFAULT_TERMS,
        *,
        node: str | None = None,
    ) -> None:
        """`node` names those consumers of which one may take over what another held, once that has ended."""
        self._store = store
        self._liveness = liveness
        self._terms = terms
        self._no_more_tries = replace(terms, max_retries=0)
        self._consumer = GqConsumer(store, None, LARGEST_BATCH, liveness, terms, node=node)
        self._popped: list[GqMessage] = []  # more than was asked for: a pop whose answer came late
        self._predecessors: list[str] | None = None
        self._held: dict[int, GqMessage] = {}
        self._lock = threading.Lock()

    def enqueue(self, *messages: Message) -> list[Enqueued]:
        """Store messages, up to a thousand as one atomic batch."""
        self._push([_outgoing(message, message.id) for message in messages])
        return [Enqueued(message.id, is_new=True) for message in messages]

    def send(self, *messages: Message) -> list[MessageId]:
        """The same for messages that go by the numbers which gq gives them; these numbers."""
        return _ids(self._push([_outgoing(message, _NO_ID) for message in messages]))

    def send_within(self, connection: object, *messages: Message) -> list[MessageId]:
        """The same in the caller's transaction (SQL only): there when it commits, not if it rolls back."""
        return _ids(self._store.push_within(connection, [_outgoing(message, _NO_ID) for message in messages]))

    def find(self, message: MessageId) -> GqRecord | None:
        """A message by its number, as it is stored; None when there is none, or none any more."""
        return self._store.find(int(message)) if message.isdecimal() else None

    def counts(self) -> dict[str, int]:
        """How many messages are stored, by status."""
        return {str(status): count for status, count in self._store.counts().items()}

    def claim(self, count: int = 1, *, lease_ms: int = DEFAULT_LEASE_MS) -> list[Delivery]:
        """Take up to `count` messages of the own partition; `lease_ms` means nothing here."""
        whole_number("count", count, least=1, most=LARGEST_BATCH)
        whole_number("lease_ms", lease_ms, least=1, most=2**53)
        with self._lock:
            if not self._popped:
                self._popped = self._consumer.pop(count)
            popped, self._popped = self._popped[:count], self._popped[count:]
            # A database that forgot everything gives out numbers again that are still held: another delivery.
            taken = [message for message in popped if fence_of(message) in self._held]
            deliveries, unreadable = self._noted([message for message in popped if message not in taken])
        self._write([GqResult(message, is_ok=False) for message in taken], self._terms)
        # Pushed by somebody who sends no tasks: it would only come back.
        self._write([GqResult(message, is_ok=False) for message in unreadable], self._no_more_tries)
        return deliveries

    def settle(self, *settlements: Settlement) -> list[Settlement]:
        """End deliveries: done, failed for good, or queued again. Those that were lost come back."""
        fences = [settlement.delivery.fence for settlement in settlements]
        if len(set(fences)) != len(fences):
            raise InvalidArgument("a delivery is settled twice in one batch; accepted is each delivery once")
        with self._lock:
            held = {fence: self._held[fence] for fence in fences if fence in self._held}
        results = [
            (GqResult(held[each.delivery.fence], is_ok=isinstance(each, Ack)), isinstance(each, Bury))
            for each in settlements
            if each.delivery.fence in held
        ]
        lost = self._write([result for result, is_buried in results if not is_buried], self._terms)
        lost |= self._write([result for result, is_buried in results if is_buried], self._no_more_tries)
        with self._lock:
            for fence in held:
                self._held.pop(fence, None)
        return [
            each
            for each in settlements
            if each.delivery.fence not in held or held[each.delivery.fence].id in lost
        ]

    def extend(self, *deliveries: Delivery, lease_ms: int = DEFAULT_LEASE_MS) -> list[Delivery]:
        """A heartbeat, which prolongs everything; those that this consumer no longer holds come back."""
        whole_number("lease_ms", lease_ms, least=1, most=2**53)
        if self._predecessors is None:
            self.beat()
        else:
            self._consumer.beat_for(self._predecessors)
        return [delivery for delivery in deliveries if not self._is_held(delivery.fence)]

    def begin_adoption(self) -> None:
        """From now on keep ended consumers of the same node alive, and give nobody up."""
        self._predecessors = self._consumer.predecessors()

    def adopt(self, *deliveries: Delivery) -> list[Delivery]:
        """Take over what consumers of the same node hold; those that somebody else has by now come back."""
        lost: list[Delivery] = []
        for start in range(0, len(deliveries), LARGEST_BATCH):
            batch = deliveries[start : start + LARGEST_BATCH]
            claim, ids = self._consumer.adopt([GqHeld.of(each.fence) for each in batch])
            adopted = frozenset(ids)
            with self._lock:
                for each in batch:
                    id_ = GqHeld.of(each.fence).id
                    if id_ in adopted:
                        self._held[each.fence] = _message(id_, each, claim)
            lost += [each for each in batch if GqHeld.of(each.fence).id not in adopted]
        return lost

    def end_adoption(self) -> None:
        """Nobody hands over anything more: any consumer may take what the ended ones still held."""
        for name in self._consumer.predecessors():
            self._store.retire(name, self._terms)
        self._predecessors = None

    def reclaim(self) -> tuple[int, int]:
        """Delete dead consumers and queue again what they held. How many is not told: always (0, 0)."""
        self._store.prune(self._liveness, self._terms)
        return 0, 0

    def beat(self) -> None:
        """Send a heartbeat, and delete consumers that sent none; registers (again) if needed."""
        self._consumer.heartbeat()

    def leave(self) -> None:
        """Delete the own record; what is held may still be settled."""
        self._consumer.stop()

    def close(self) -> None:
        """Close what was opened for the store."""
        self._store.close()

    def _push(self, outgoing: Sequence[GqOutgoing]) -> list[int]:
        ids: list[int] = []
        for start in range(0, len(outgoing), LARGEST_BATCH):
            ids += self._store.prepare_push(outgoing[start : start + LARGEST_BATCH])()
        return ids

    def _noted(self, messages: Sequence[GqMessage]) -> tuple[list[Delivery], list[GqMessage]]:
        """Deliveries with fences that grow with each one of a message, and what is not a task."""
        deliveries: list[Delivery] = []
        unreadable: list[GqMessage] = []
        for message in messages:
            fence = fence_of(message)
            try:
                deliveries.append(_delivery(fence, message))
            except (InvalidMessage, InvalidArgument):
                unreadable.append(message)
            else:
                self._held[fence] = message
        return deliveries, unreadable

    def _is_held(self, fence: int) -> bool:
        """Whether it is held as far as we know: when a consumer is given up, so is all that it held."""
        message = self._held.get(fence)
        if message is None:
            return False
        return not self._terms.reclaim_dead or message.claim.consumer == self._consumer.uuid

    def _write(self, results: Sequence[GqResult], terms: GqTerms) -> set[int]:
        return set(self._store.settle(results, terms)) if results else set()


def _outgoing(message: Message, id_: str) -> GqOutgoing:
    for wish in ("priority", "due", "guard", "limits"):
        if getattr(message, wish):
            raise InvalidArgument(f"{wish}: a gq queue offers none; use a work queue for that")
    return GqOutgoing(f"{id_} {message.task}\n".encode() + message.body, message.deadline)


def _delivery(fence: int, message: GqMessage) -> Delivery:
    if message.id >= LARGEST_ID:
        raise InvalidMessage(f"message {message.id} has a number that no fence has room for")
    header, separator, body = message.payload.partition(b"\n")
    id_, _, task = header.decode(errors="replace").partition(" ")
    if not separator:
        raise InvalidMessage(f"message {message.id} has no header")
    return Delivery(
        fence,
        MessageId(str(message.id)) if id_ == _NO_ID else message_id(id_),
        NO_TASK if task == NO_TASK else task_name(task),
        body,
        message.created_at_ms,
        # Attempts are counted and nothing else: whoever had it before is taken to have failed.
        deliveries=message.attempt - 1,
        failures=message.attempt - 1,
        crashes=message.attempt - 1,
        deadline_at_ms=message.deadline_at_ms,
    )


def _message(id_: int, delivery: Delivery, claim: GqClaim) -> GqMessage:
    return GqMessage(id_, b"", delivery.attempt, delivery.enqueued_at_ms, delivery.deadline_at_ms, claim)


def _ids(numbers: Sequence[int]) -> list[MessageId]:
    return [MessageId(str(number)) for number in numbers]
