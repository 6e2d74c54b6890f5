"""What a work queue does, step by step: checks, batches and loops around the calls, once for both stores."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from mqworker.errors import InvalidArgument
from mqworker.model.dead_letter import DeadLetter, decode_dead_letter
from mqworker.model.delivery import Delivery, UnreadableDelivery
from mqworker.model.message import LARGEST_BODY_BYTES, Enqueued, Message
from mqworker.model.names import LONGEST_HORIZON_MS, ConsumerName, MessageId, shown, whole_number
from mqworker.model.quarantine import Quarantine
from mqworker.model.settlement import Bury, Settlement
from mqworker.queues.work.calls import LOOK_AGAIN, LookAgain, PendingElement, WorkQueueCalls
from mqworker.queues.work.keys import counter, queues_key, readable_consumers
from mqworker.store.procedure import Commands, Procedure

LARGEST_BATCH = 1_000
"""Messages in one call: the arguments must fit Lua's stack, and nobody else should wait long for it."""

LARGEST_BATCH_BYTES = 4 * LARGEST_BODY_BYTES
_SEARCH_WINDOW = 2_000
UNUSED_LANE_MS = 3_600_000

ItemT = TypeVar("ItemT")


WAITING = frozenset({"ready", "delayed", "limited"})
"""States in which nobody has it: it can be cancelled at once."""
LIMITED_AT_MS = 9_000_000_000_000_000
"""When a message is due that waits for a permit (parts/limited.lua)."""


def is_limited(due_at_ms: int) -> bool:
    """Whether what is due then waits for its limits, and for no instant."""
    return due_at_ms >= LIMITED_AT_MS


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """Where a message is: its state, and what that state has to say."""

    state: str
    """delayed, limited, ready, leased, delivered, succeeded, cancelled, expired, dead or absent."""
    position: int | None = None
    due_at_ms: int | None = None
    consumer: ConsumerName | None = None
    result: bytes | None = None


@dataclass(frozen=True, slots=True)
class QueueCounts:
    """How many messages are in each state now, and how many ever came to each end."""

    ready: int
    delayed: int
    leased: int
    delivered: int
    dead: int
    is_paused: bool
    limit: int | None
    totals: dict[str, int]

    @property
    def waiting(self) -> int:
        """Messages that nobody holds yet: ready or delayed."""
        return self.ready + self.delayed


class WorkQueueSteps:
    """The procedures of one queue; pure, as long as nobody follows them."""

    def __init__(self, calls: WorkQueueCalls, namespace: str, quarantine: Quarantine | None = None) -> None:
        self.calls = calls
        self._quarantine = quarantine or Quarantine()
        self._registry = queues_key(namespace)
        self._is_registered = False

    def enqueue(self, messages: Sequence[Message]) -> Procedure[list[Enqueued]]:
        """Store messages, a batch at a time."""
        if not self._is_registered:
            yield Commands((("SADD", self._registry, self.calls.keys.queue),), self._registry)
            self._is_registered = True
        outcome: list[Enqueued] = []
        for batch in _batches(messages):
            outcome += yield self.calls.enqueue(batch)
        return outcome

    def claim(self, count: int, consumer: ConsumerName | None, lease_ms: int) -> Procedure[list[Delivery]]:
        """Take messages; bytes that are not a record are buried on the way, for they would only come back."""
        whole_number("count", count, least=1, most=LARGEST_BATCH)
        whole_number("lease_ms", lease_ms, least=1, most=LONGEST_HORIZON_MS)
        claimed: list[Delivery | UnreadableDelivery] | LookAgain = LOOK_AGAIN
        while claimed is LOOK_AGAIN:
            claimed = yield self.calls.claim(count, consumer, lease_ms)
        unreadable = [item for item in claimed if isinstance(item, UnreadableDelivery)]
        if not unreadable:
            return [item for item in claimed if isinstance(item, Delivery)]
        burials = [Bury(item, "undecodable", evidence={"problem": item.problem}) for item in unreadable]
        yield self.calls.settle(burials, consumer)
        return [item for item in claimed if isinstance(item, Delivery)]

    def settle(
        self, settlements: Sequence[Settlement], consumer: ConsumerName | None
    ) -> Procedure[list[Settlement]]:
        """End deliveries, a batch at a time; those whose lease was lost come back."""
        lost: list[Settlement] = []
        for batch in _chunks(settlements):
            _refuse_twice(batch)
            lost += yield self.calls.settle(batch, consumer)
        return lost

    def extend(self, deliveries: Sequence[Delivery], lease_ms: int) -> Procedure[list[Delivery]]:
        """Prolong leases; those that were lost come back."""
        whole_number("lease_ms", lease_ms, least=1, most=LONGEST_HORIZON_MS)
        lost: set[int] = set()
        for batch in _chunks(deliveries):
            lost.update((yield self.calls.extend([delivery.fence for delivery in batch], lease_ms)))
        return [delivery for delivery in deliveries if delivery.fence in lost]

    def reclaim(self) -> Procedure[tuple[int, int]]:
        """Return everything whose lease ended, until there is no more: (reclaimed, buried)."""
        reclaimed = buried = 0
        while True:
            some, others = yield self.calls.reclaim(LARGEST_BATCH)
            reclaimed, buried = reclaimed + some, buried + others
            if some + others < LARGEST_BATCH:
                return reclaimed, buried

    def reap(self, consumer: ConsumerName, silent_ms: int, losses: int) -> Procedure[int]:
        """Release everything a consumer holds that is gone, bit by bit; 0 also when it is alive."""
        released = 0
        while True:
            some: int = yield self.calls.reap(consumer, silent_ms, LARGEST_BATCH, losses=losses)
            if some <= 0:
                return released
            released += some

    def promote(self) -> Procedure[int]:
        """Move everything that is due, until there is no more; milliseconds until the next, or -1."""
        while True:
            some, next_ms = yield self.calls.promote(LARGEST_BATCH)
            if some < LARGEST_BATCH:
                return int(next_ms)

    def expire(self) -> Procedure[int]:
        """Report everything whose deadline passed, until there is no more."""
        expired = 0
        while True:
            some: int = yield self.calls.expire(LARGEST_BATCH)
            expired += some
            if some < LARGEST_BATCH:
                return expired

    def repair(self) -> Procedure[int]:
        """Mend entries without their other half, until all were looked at; how many."""
        repaired, cursors = 0, ("0", "0")
        while cursors != ("", ""):
            some, *rest = yield self.calls.repair(*cursors)
            repaired, cursors = repaired + some, (rest[0], rest[1])
        return repaired

    def consumers(self) -> Procedure[list[ConsumerName]]:
        """All consumers that may hold something."""
        keys = self.calls.keys
        (names,) = yield Commands((("ZRANGE", keys.named("consumers"), 0, -1),), keys.meta)
        return list(self._readable(names))

    def silent_consumers(self, silent_ms: int) -> Procedure[list[ConsumerName]]:
        """Consumers whose last beat is so long ago, by the server's clock."""
        keys = self.calls.keys
        beats, (seconds, _) = yield Commands(
            (("ZRANGE", keys.named("consumers"), 0, -1, "WITHSCORES"), ("TIME",)), keys.meta
        )
        latest_ms = int(seconds) * 1000 - silent_ms
        pairs = zip(beats[::2], beats[1::2], strict=True)
        return list(self._readable(name for name, beat_ms in pairs if float(beat_ms) <= latest_ms))

    def _readable(self, names: Iterable[object]) -> Iterator[ConsumerName]:
        return readable_consumers(self.calls.keys.named("consumers"), names, self._quarantine)

    def forget(self) -> Procedure[None]:
        """Drop replies of lanes unused for an hour, and guards that ended."""
        cursors = ("0", "0")
        while cursors != ("", ""):
            cursors = yield self.calls.forget(UNUSED_LANE_MS, *cursors)

    def cancel(self, message: MessageId) -> Procedure[bool]:
        """Take a waiting message out; False when it waits no longer."""
        for offset in _windows():
            verdict: int = yield self.calls.cancel(message, offset, _SEARCH_WINDOW)
            if verdict == 1:
                return True
            if verdict == -1:
                break
        # A repeated call whose first reply was lost finds nothing to cancel; the result tells.
        state, detail = yield self.calls.find(message, 0, 1)
        return bool(state == "settled" and detail == b"C")

    def find(self, message: MessageId) -> Procedure[Whereabouts]:
        """Look for a message in every state; cheap states first, the line from its back."""
        # Twice: what was claimed between the look at the held and the look at the line seems to be nowhere.
        found = Whereabouts("absent")
        for _ in range(2):
            found = (yield from self._find_held(message)) or (yield from self._find_unheld(message))
            if found.state != "absent":
                break
        return found

    def _find_unheld(self, message: MessageId) -> Procedure[Whereabouts]:
        for offset in _windows():
            state, detail = yield self.calls.find(message, offset, _SEARCH_WINDOW)
            if state != "further":
                return _whereabouts(state, detail)
        raise AssertionError("unreachable: windows are endless")

    def counts(self) -> Procedure[QueueCounts]:
        """The depth of each state and the counters, read in two round trips."""
        keys = self.calls.keys
        consumers: list[bytes] = (yield Commands((("ZRANGE", keys.named("consumers"), 0, -1),), keys.meta))[0]
        replies = yield Commands(
            (
                ("HGETALL", keys.meta),
                ("LLEN", keys.named("ready")),
                ("ZCARD", keys.named("urgent")),
                ("ZCARD", keys.named("delayed")),
                ("ZCARD", keys.named("delivered")),
                ("ZCARD", keys.named("dead")),
                ("HLEN", keys.held(None)),
                *(("HLEN", keys.held(name)) for name in self._readable(consumers)),
            ),
            keys.meta,
        )
        fields = [item.decode(errors="replace") for item in replies[0]]
        meta = dict(zip(fields[::2], fields[1::2], strict=True))
        limit = meta.pop("limit", None)
        return QueueCounts(
            # Another program may have noted more holes than there are; `repair` forgets them.
            ready=max(0, replies[1] + replies[2] - counter(meta.pop("holes", ""))),
            delayed=replies[3],
            leased=sum(replies[6:]),
            delivered=replies[4],
            dead=replies[5],
            is_paused=meta.pop("paused", None) is not None,
            limit=counter(limit or "") or None,
            totals={name: counter(value) for name, value in meta.items() if value.isdecimal()},
        )

    def revive(self, messages: Sequence[MessageId]) -> Procedure[list[MessageId]]:
        """Put dead letters back in line, a batch at a time."""
        revived: list[MessageId] = []
        for batch in _chunks(messages):
            revived += yield self.calls.revive(batch)
        return revived

    def purge(self, what: str) -> Procedure[int]:
        """Throw away what is 'waiting' or 'dead', until nothing is left."""
        thrown_away = 0
        while True:
            some, left = yield self.calls.purge(what, LARGEST_BATCH)
            thrown_away += int(some)
            if not left:
                return thrown_away

    def dead_letters(self, start: int, count: int) -> Procedure[list[DeadLetter]]:
        """Dead letters, the oldest first."""
        whole_number("start", start, least=0, most=2**53)
        whole_number("count", count, least=1, most=2**53)
        keys = self.calls.keys
        order: list[bytes] = (
            yield Commands(
                (("ZRANGE", keys.named("dead"), start, start + count - 1, "WITHSCORES"),), keys.meta
            )
        )[0]
        if not order:
            return []
        letters: list[bytes | None] = (
            yield Commands((("HMGET", keys.named("letters"), *order[::2]),), keys.meta)
        )[0]
        return [
            decode_dead_letter(MessageId(item.decode(errors="replace")), int(float(at_ms)), stored)
            for item, at_ms, stored in zip(order[::2], order[1::2], letters, strict=True)
            if stored is not None
        ]

    def push(self, elements: Sequence[bytes | str]) -> Procedure[list[MessageId]]:
        """MQ.PUSH of one or more elements."""
        if not elements:
            raise InvalidArgument("push takes at least one element; none was given")
        if len(elements) > LARGEST_BATCH:
            raise InvalidArgument(
                f"push takes at most {LARGEST_BATCH:,} elements; {len(elements):,} were given"
            )
        if not self._is_registered:
            yield Commands((("SADD", self._registry, self.calls.keys.queue),), self._registry)
            self._is_registered = True
        pushed: list[MessageId] = yield self.calls.push([_as_bytes(element) for element in elements])
        return pushed

    def pop(self, count: int) -> Procedure[list[tuple[MessageId, bytes]] | None]:
        """MQ.POP."""
        whole_number("count", count, least=1, most=LARGEST_BATCH)
        popped: list[tuple[MessageId, bytes]] | LookAgain | None = LOOK_AGAIN
        while popped is LOOK_AGAIN:
            popped = yield self.calls.pop(count)
        return popped

    def ack(self, messages: Sequence[str]) -> Procedure[list[MessageId] | None]:
        """MQ.ACK; an id of any form is accepted, for an unknown one is simply not acknowledged."""
        if not messages:
            raise InvalidArgument("ack takes at least one id; none was given")
        acked: list[MessageId] | None = yield self.calls.ack(messages)
        return acked

    def recover(self, count: int, elapsed_ms: int) -> Procedure[list[tuple[MessageId, bytes]] | None]:
        """MQ.RECOVER."""
        whole_number("count", count, least=-(2**53), most=2**53)
        whole_number("elapsed_ms", elapsed_ms, least=-(2**53), most=2**53)
        recovered: list[tuple[MessageId, bytes]] | None = yield self.calls.recover(
            max(0, min(count, LARGEST_BATCH)), max(0, elapsed_ms)
        )
        return recovered

    def inspect(self, start: int, count: int) -> Procedure[list[tuple[MessageId, bytes]]]:
        """MQ.INSPECT of the undelivered line."""
        _check_range(start, count)
        elements: list[tuple[MessageId, bytes]] = yield self.calls.inspect(start, count)
        return elements

    def inspect_pending(self, start: int, count: int) -> Procedure[list[PendingElement]]:
        """MQ.INSPECT of the delivered line."""
        _check_range(start, count)
        elements: list[PendingElement] = yield self.calls.inspect_pending(start, count)
        return elements

    def _find_held(self, message: MessageId) -> Procedure[Whereabouts | None]:
        keys = self.calls.keys
        names, popped = yield Commands(
            (("ZRANGE", keys.named("consumers"), 0, -1), ("HEXISTS", keys.named("popped"), message)),
            keys.meta,
        )
        if popped:
            return Whereabouts("delivered")
        consumers = [None, *self._readable(names)]
        held = yield Commands(tuple(("HGETALL", keys.held(consumer)) for consumer in consumers), keys.meta)
        for consumer, fields in zip(consumers, held, strict=True):
            for record in fields[1::2]:
                if record[25:].startswith(message.encode() + b" "):
                    return Whereabouts("leased", consumer=consumer)
        return None


def _whereabouts(state: str, detail: bytes) -> Whereabouts:
    match state:
        case "delayed":
            at_ms = int(float(detail))
            return Whereabouts("limited") if is_limited(at_ms) else Whereabouts("delayed", due_at_ms=at_ms)
        case "ready":
            return Whereabouts("ready", position=int(detail))
        case "settled" if detail.startswith(b"S"):
            return Whereabouts("succeeded", result=detail[1:])
        case "settled":
            return Whereabouts("cancelled" if detail == b"C" else "expired")
        case _:
            return Whereabouts(state)


def _batches(messages: Sequence[Message]) -> Iterator[Sequence[Message]]:
    if not messages:
        return
    is_small = len(messages) <= LARGEST_BATCH
    if is_small and sum([len(message.body) for message in messages]) <= LARGEST_BATCH_BYTES:
        yield messages
        return
    batch: list[Message] = []
    batch_bytes = 0
    for message in messages:
        if batch and (len(batch) == LARGEST_BATCH or batch_bytes + len(message.body) > LARGEST_BATCH_BYTES):
            yield batch
            batch, batch_bytes = [], 0
        batch.append(message)
        batch_bytes += len(message.body)
    if batch:
        yield batch


def _chunks(items: Sequence[ItemT]) -> Iterator[Sequence[ItemT]]:
    for start in range(0, len(items), LARGEST_BATCH):
        yield items[start : start + LARGEST_BATCH]


def _windows() -> Iterator[int]:
    offset = 0
    while True:
        yield offset
        offset += _SEARCH_WINDOW


def _refuse_twice(settlements: Sequence[Settlement]) -> None:
    fences = [settlement.delivery.fence for settlement in settlements]
    if len(set(fences)) != len(fences):
        raise InvalidArgument("a delivery is settled twice in one batch; accepted is each delivery once")


def _check_range(start: int, count: int) -> None:
    whole_number("start", start, least=-(2**53), most=2**53)
    whole_number("count", count, least=1, most=2**53)


def _as_bytes(element: bytes | str) -> bytes:
    if not isinstance(element, bytes | str):
        raise InvalidArgument(f"element is {shown(element)}; accepted are bytes or text")
    encoded = element.encode() if isinstance(element, str) else element
    if len(encoded) > LARGEST_BODY_BYTES:
        raise InvalidArgument(f"element is {len(encoded):,} bytes; accepted are up to {LARGEST_BODY_BYTES:,}")
    return encoded
