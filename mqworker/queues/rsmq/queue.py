"""An RSMQ queue as a queue of tasks: claimed under leases with fences, shared with foreign clients.

A message is a JSON text (queues/rsmq/text.py), so a program in any language can send a task, and sees ours. A
lease is RSMQ's visibility timeout; its fence stands in a side key and is lost as soon as anybody else
received the message. What is given up, or is not a task at all, moves to side keys of ours, with the reason.

What the layout has no place for: priorities, deadlines, guards, results. Failures and crashes are not told
apart: both are earlier deliveries.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from mqworker.errors import InvalidArgument, UnknownQueue
from mqworker.model.delivery import Delivery, UnreadableDelivery
from mqworker.model.message import Enqueued, Message
from mqworker.model.names import LONGEST_HORIZON_MS, MessageId, whole_number
from mqworker.model.settlement import Bury, Settlement
from mqworker.queues.queue_model import Capability
from mqworker.queues.rsmq import arguments as accept
from mqworker.queues.rsmq.arguments import DEFAULT_DELAY, DEFAULT_MAXSIZE, DEFAULT_VT
from mqworker.queues.rsmq.calls import RsmqOptions
from mqworker.queues.rsmq.lease_calls import RsmqLeaseCalls, outgoing_of
from mqworker.queues.rsmq.steps import LARGEST_BATCH, RsmqSteps, chunks
from mqworker.store.procedure import Commands, Procedure
from mqworker.store.store import Store

DEFAULT_LEASE_MS = 30_000

ResultT = TypeVar("ResultT")


class RsmqState(StrEnum):
    """Where a message is, as far as its keys tell."""

    VISIBLE = "visible"
    DELAYED = "delayed"
    HIDDEN = "hidden"
    """Received before, and hidden since: somebody works on it, or it waits for its next try."""
    DEAD = "dead"
    GONE = "gone"
    """Deleted, which is how a message ends; or it never was."""


@dataclass(frozen=True, slots=True)
class RsmqBurial:
    """A dead letter: the message as it was sent, and why it was given up."""

    id: str
    message: bytes
    buried_at_ms: int
    reason: str
    details: dict[str, object]


class RsmqQueue:
    """One RSMQ queue, synchronously. Made with these settings where it does not exist. Thread-safe."""

    capabilities = Capability.LEASE | Capability.EXTEND | Capability.DELAY

    def __init__(
        self,
        name: str,
        store: Store,
        options: RsmqOptions | None = None,
        *,
        vt: int = DEFAULT_VT,
        maxsize: int = DEFAULT_MAXSIZE,
    ) -> None:
        self.name = accept.queue_name(name)
        self.store = store
        self._vt = accept.seconds("vt", vt)
        self._steps = RsmqQueueSteps(self.name, options or RsmqOptions(), self._vt, accept.maxsize(maxsize))

    def enqueue(self, *messages: Message) -> list[Enqueued]:
        """Store messages, up to a thousand as one atomic batch; once, even if a reply is lost on the way."""
        return self._follow(lambda: self._steps.enqueue(messages))

    def send(self, *messages: Message) -> list[MessageId]:
        """The same for messages that go by the ids which RSMQ gives them; these ids."""
        return self._follow(lambda: self._steps.send(messages))

    def claim(self, count: int = 1, *, lease_ms: int = DEFAULT_LEASE_MS) -> list[Delivery]:
        """Take up to `count` messages under a lease that expires, unless extended.

        A claim does not create a queue again that somebody has deleted.
        """
        try:
            return self.store.follow(self._steps.claim(count, lease_ms))
        except UnknownQueue:  # deleted since we made it, or half made by a foreign client
            if not self.store.follow(self._steps.mend()):
                return []
            return self.store.follow(self._steps.claim(count, lease_ms))

    def settle(self, *settlements: Settlement) -> list[Settlement]:
        """End deliveries. Those whose lease was lost come back, untouched."""
        return self.store.follow(self._steps.settle(settlements))

    def extend(self, *deliveries: Delivery, lease_ms: int = DEFAULT_LEASE_MS) -> list[Delivery]:
        """Prolong leases. Those that were lost come back."""
        return self.store.follow(self._steps.extend(deliveries, lease_ms))

    def begin_adoption(self) -> None:
        """Nothing to do: a lease goes by its fence, whichever process renews it."""

    def adopt(self, *deliveries: Delivery) -> list[Delivery]:
        """Take over what another process claimed; those that somebody else has by now come back."""
        return self.extend(*deliveries, lease_ms=self._vt * 1000) if deliveries else []

    def end_adoption(self) -> None:
        """Nothing to do: what nobody renews returns by itself."""

    def reclaim(self) -> tuple[int, int]:
        """Return deliveries whose lease ended to their old place in the line: (returned, 0)."""
        return self.store.follow(self._steps.reclaim())

    def promote(self) -> int:
        """Milliseconds until the next delayed message is due, or -1; it becomes visible by itself."""
        return self.store.run(self._steps.lease_calls.promote())

    def find(self, message: MessageId) -> RsmqState:
        """Where the message with this id of RSMQ is."""
        return self.store.follow(self._steps.find(message))

    def counts(self) -> dict[str, int]:
        """How many messages can be received, are hidden (delayed ones too), and are dead letters."""
        return self.store.follow(self._steps.counts())

    def burial(self, message: str) -> RsmqBurial | None:
        """One dead letter by its id; None when it is not dead."""
        return self.store.follow(self._steps.burial(message))

    def burials(self, start: int = 0, count: int = 100) -> list[RsmqBurial]:
        """What was given up, the oldest first."""
        return self.store.follow(self._steps.burials(start, count))

    def revive(self, *ids: str) -> list[bool]:
        """Put dead letters back in line; for each whether it was one."""
        return self._follow(lambda: self._steps.revive(ids))

    def _follow(self, begin: Callable[[], Procedure[ResultT]]) -> ResultT:
        try:
            return self.store.follow(begin())
        except UnknownQueue:  # somebody deleted it since we made it
            self._steps.make_again()
            return self.store.follow(begin())


class RsmqQueueSteps:
    """The procedures of one queue; pure, as long as nobody follows them."""

    def __init__(self, queue: str, options: RsmqOptions, vt: int, maxsize: int) -> None:
        self._queue = queue
        self._rsmq = RsmqSteps(options)
        self._settings = (vt, DEFAULT_DELAY, maxsize)
        self._keys = self._rsmq.calls.keys(queue)
        self.lease_calls = RsmqLeaseCalls(queue, self._keys)
        self._is_made = False

    def mend(self) -> Procedure[bool]:
        """Complete the queue if it is half made; whether it is there."""
        is_there: bool = yield self._rsmq.calls.mend_queue(self._queue, *self._settings)
        return is_there

    def make_again(self) -> None:
        """Note that the queue must be made before its next use, because it was deleted."""
        self._is_made = False

    def enqueue(self, messages: Sequence[Message]) -> Procedure[list[Enqueued]]:
        """Send messages, a batch at a time."""
        outgoing = [outgoing_of(message, message.id) for message in messages]
        yield from self._make()
        yield from self._rsmq.send_outgoing(self._queue, outgoing)
        return [Enqueued(message.id, is_new=True) for message in messages]

    def send(self, messages: Sequence[Message]) -> Procedure[list[MessageId]]:
        """Send messages without ids of ours."""
        outgoing = [outgoing_of(message, None) for message in messages]
        yield from self._make()
        ids: list[str] = yield from self._rsmq.send_outgoing(self._queue, outgoing)
        return [MessageId(each) for each in ids]

    def claim(self, count: int, lease_ms: int) -> Procedure[list[Delivery]]:
        """Take messages; what is not a task is buried on the way, for it would only come back."""
        whole_number("count", count, least=1, most=LARGEST_BATCH)
        whole_number("lease_ms", lease_ms, least=1, most=LONGEST_HORIZON_MS)
        yield from self._make()
        claimed: list[Delivery | UnreadableDelivery] = yield self.lease_calls.claim(count, lease_ms)
        unreadable = [item for item in claimed if isinstance(item, UnreadableDelivery)]
        if unreadable:
            burials = [Bury(item, "undecodable", evidence={"problem": item.problem}) for item in unreadable]
            yield self.lease_calls.settle(burials)
        return [item for item in claimed if isinstance(item, Delivery)]

    def settle(self, settlements: Sequence[Settlement]) -> Procedure[list[Settlement]]:
        """End deliveries, a batch at a time."""
        fences = [settlement.delivery.fence for settlement in settlements]
        if len(set(fences)) != len(fences):
            raise InvalidArgument("a delivery is settled twice in one batch; accepted is each delivery once")
        lost: list[Settlement] = []
        for batch in chunks(settlements):
            lost += yield self.lease_calls.settle(batch)
        return lost

    def extend(self, deliveries: Sequence[Delivery], lease_ms: int) -> Procedure[list[Delivery]]:
        """Prolong leases, a batch at a time."""
        whole_number("lease_ms", lease_ms, least=1, most=LONGEST_HORIZON_MS)
        lost: set[int] = set()
        for batch in chunks(deliveries):
            lost.update((yield self.lease_calls.extend([each.fence for each in batch], lease_ms)))
        return [delivery for delivery in deliveries if delivery.fence in lost]

    def reclaim(self) -> Procedure[tuple[int, int]]:
        """Forget every lease that ended, until there is no more."""
        returned = 0
        while True:
            some, looked_at = yield self.lease_calls.reclaim(LARGEST_BATCH)
            returned += some
            if looked_at < LARGEST_BATCH:
                return returned, 0

    def find(self, message: MessageId) -> Procedure[RsmqState]:
        """Look at one message, in one round trip."""
        keys, (dead, _, _) = self._keys, self._keys.dead
        time, visible_at_ms, received, is_dead = yield Commands(
            (
                ("TIME",),
                ("ZSCORE", keys.line, message),
                ("HGET", keys.messages, f"{message}:rc"),
                ("HEXISTS", dead, message),
            ),
            keys.line,
        )
        if visible_at_ms is None:
            return RsmqState.DEAD if is_dead else RsmqState.GONE
        if float(visible_at_ms) <= int(time[0]) * 1000 + int(time[1]) // 1000:
            return RsmqState.VISIBLE
        return RsmqState.HIDDEN if received else RsmqState.DELAYED

    def counts(self) -> Procedure[dict[str, int]]:
        """Look at the keys, in two round trips; a queue that does not exist holds nothing."""
        line, (_, _, buried_key) = self._keys.line, self._keys.dead
        time, messages, dead = yield Commands((("TIME",), ("ZCARD", line), ("ZCARD", buried_key)), line)
        now_ms = int(time[0]) * 1000 + int(time[1]) // 1000
        (hidden,) = yield Commands((("ZCOUNT", line, f"({now_ms}", "+inf"),), line)
        return {"visible": max(0, messages - hidden), "hidden": hidden, "dead": dead}

    def burial(self, message: str) -> Procedure[RsmqBurial | None]:
        """One dead letter."""
        messages_key, letters_key, buried_key = self._keys.dead
        parts = yield Commands(
            (
                ("HGET", messages_key, message),
                ("ZSCORE", buried_key, message),
                ("HGET", letters_key, message),
            ),
            self._keys.line,
        )
        return None if parts[0] is None or parts[1] is None else _burial(message.encode(), *parts)

    def burials(self, start: int, count: int) -> Procedure[list[RsmqBurial]]:
        """Dead letters with their reasons, read in two round trips."""
        messages_key, letters_key, buried_key = self._keys.dead
        found: list[bytes] = (
            yield Commands((("ZRANGE", buried_key, start, start + count - 1, "WITHSCORES"),), self._keys.line)
        )[0]
        if not found:
            return []
        ids = found[::2]
        messages, letters = yield Commands(
            (("HMGET", messages_key, *ids), ("HMGET", letters_key, *ids)), self._keys.line
        )
        return [
            _burial(*parts) for parts in zip(ids, messages, found[1::2], letters, strict=True) if parts[1]
        ]

    def revive(self, ids: Sequence[str]) -> Procedure[list[bool]]:
        """Put dead letters back, a batch at a time."""
        yield from self._make()
        revived: list[bool] = []
        for batch in chunks(ids):
            revived += yield self.lease_calls.revive(batch)
        return revived

    def _make(self) -> Procedure[None]:
        if not self._is_made:
            yield self._rsmq.calls.ensure_queue(self._queue, *self._settings)
            self._is_made = True


def _burial(id_: bytes, message: bytes, at_ms: bytes, letter: bytes | None) -> RsmqBurial:
    details: dict[str, object] = json.loads(letter) if letter else {}
    reason = str(details.pop("reason", ""))
    return RsmqBurial(id_.decode(), message, int(float(at_ms)), reason, details)
