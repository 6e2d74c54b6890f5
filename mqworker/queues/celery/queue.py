"""A Celery queue as a queue of tasks: taken from Celery's lists under leases, beside its own workers.

What is taken stands in side keys of ours; Celery's `unacked` is never looked at, nor do its workers look at
ours. A call for later waits there, too, not in a worker. A task that nobody here knows goes back to where it
was, and its like are left for Celery for a while. What cannot be carried over is kept as a dead letter.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeVar

from mqworker.errors import ConfigurationError, InvalidArgument, InvalidMessage
from mqworker.model.clock import Clock, SystemClock
from mqworker.model.delivery import Delivery, UnreadableDelivery
from mqworker.model.instant import After, At
from mqworker.model.message import Enqueued, Message
from mqworker.model.names import LONGEST_HORIZON_MS, MessageId, whole_number
from mqworker.model.settlement import UNKNOWN_TASK, Bury, Failure, Park, Settlement
from mqworker.queues.celery.calls import CeleryCalls, Ended, Taken
from mqworker.queues.celery.ending import Endings
from mqworker.queues.celery.keys import CeleryKeys, has_hash_tag, result_key
from mqworker.queues.celery.message import CeleryMessage, MessageRefused, UnknownName, read_message
from mqworker.queues.celery.options import CeleryOptions as CeleryOptions  # noqa: PLC0414 - for users of the queue
from mqworker.queues.celery.outgoing import ResultPlace
from mqworker.queues.celery.sending import text_of
from mqworker.queues.celery.tasks_left import TasksLeft
from mqworker.queues.queue_model import Capability
from mqworker.store.exchange import UNREADABLE
from mqworker.store.link.cluster_connection import ClusterConnection
from mqworker.store.procedure import Commands, Procedure
from mqworker.store.store import Store

ItemT = TypeVar("ItemT")

DEFAULT_LEASE_MS = 30_000
LARGEST_BATCH = 500
MOST_ROUNDS = 20
"""Of one claim, while all that was taken had to be set aside."""


class CeleryState(StrEnum):
    """Where a message is, as far as its keys tell: nobody can find one in a list by its id."""

    SUCCEEDED = "succeeded"
    DEAD = "dead"
    RETRIED = "retried"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class CeleryBurial:
    """A dead letter: the message as it came, and why it was given up."""

    id: str
    message: bytes
    buried_at_ms: int
    reason: str
    details: dict[str, object]


class CeleryTaskQueue:
    """One queue of Celery, synchronously. Its methods are for one thread at a time."""

    capabilities = Capability.LEASE | Capability.EXTEND

    def __init__(
        self, name: str, store: Store, options: CeleryOptions | None = None, *, clock: Clock | None = None
    ) -> None:
        self.name = name
        self.store = store
        chosen = options or CeleryOptions()
        if isinstance(store.connection, ClusterConnection) and not _is_together(chosen):
            raise ConfigurationError(
                f"prefix and result_prefix of the Celery queue {name} are {chosen.prefix!r} and "
                f"{chosen.result_prefix!r}, and redis_url is a cluster, which keeps the keys of Celery "
                "apart; accepted are one server or Sentinel, or the same global_keyprefix in braces for "
                'both, such as "{celery}:"'
            )
        self._keys = CeleryKeys(chosen.prefix, name, tuple(chosen.steps))
        self._options = chosen
        self._calls = CeleryCalls(self._keys, result_ms=chosen.result_ms, result_db=chosen.result_db)
        place = ResultPlace(chosen.result_prefix) if chosen.writes_results else None
        self._endings = Endings(self._keys, place)
        self._clock = clock or SystemClock()
        self._left = TasksLeft(self._clock)
        self._held: dict[int, CeleryMessage] = {}

    def enqueue(self, *messages: Message) -> list[Enqueued]:
        """Send messages as Celery's producers do."""
        self.send(*messages)
        return [Enqueued(message.id, is_new=True) for message in messages]

    def send(self, *messages: Message) -> list[MessageId]:
        """The same; their ids."""
        texts = [text_of(message, self.name, self._clock.now_ms()) for message in messages]
        for batch in _batches(texts):
            self.store.run(self._calls.send(batch))
        return [message.id for message in messages]

    def claim(self, count: int = 1, *, lease_ms: int = DEFAULT_LEASE_MS) -> list[Delivery]:
        """Take up to `count` messages that are due under a lease that ends, unless extended."""
        return self.store.follow(self._claim(count, lease_ms))

    def settle(self, *settlements: Settlement) -> list[Settlement]:
        """End deliveries. Those whose lease was lost come back, untouched."""
        return self.store.follow(self._settle(settlements))

    def extend(self, *deliveries: Delivery, lease_ms: int = DEFAULT_LEASE_MS) -> list[Delivery]:
        """Prolong leases. Those that were lost come back."""
        return self.store.follow(self._extend(deliveries, lease_ms))

    def reclaim(self) -> tuple[int, int]:
        """Let what is under ended leases wait again, due at once: (came back, 0)."""
        return self.store.follow(self._reclaim())

    def begin_adoption(self) -> None:
        """Nothing to do: a lease goes by its fence, whichever process renews it."""

    def adopt(self, *deliveries: Delivery) -> list[Delivery]:
        """Take over what another process claimed; those that somebody else has by now come back."""
        return self.extend(*deliveries) if deliveries else []

    def end_adoption(self) -> None:
        """Nothing to do: what nobody renews comes back by itself."""

    def give_back(self) -> int:
        """Put what waits here for its time or its next try back into Celery's lists; how many."""
        return self.store.follow(self._give_back())

    def find(self, message: MessageId) -> CeleryState:
        """Where the message is, as far as that can be known."""
        return self.store.follow(self._find(message))

    def counts(self) -> dict[str, int]:
        """How many wait in Celery's lists, for their time or next try, are held, and are dead letters."""
        return self.store.follow(self._counts())

    def burial(self, message: str) -> CeleryBurial | None:
        """One dead letter by its id; None when it is not dead."""
        return next(iter(self.store.follow(self._burials_of([message.encode()]))), None)

    def burials(self, start: int = 0, count: int = 100) -> list[CeleryBurial]:
        """What was given up, the oldest first."""
        return self.store.follow(self._burials(start, count))

    def revive(self, *ids: str) -> list[bool]:
        """Put dead letters back into Celery's lists; for each whether it was one."""
        return [each for batch in _batches(ids) for each in self.store.run(self._calls.revive(batch))]

    def _claim(self, count: int, lease_ms: int) -> Procedure[list[Delivery]]:
        whole_number("count", count, least=1, most=1_000)
        whole_number("lease_ms", lease_ms, least=1, most=LONGEST_HORIZON_MS)
        deliveries: list[Delivery] = []
        for _ in range(MOST_ROUNDS):
            wanted = count - len(deliveries)
            now_ms, taken = yield self._calls.claim(wanted, lease_ms, self._left.names())
            aside: list[Ended] = []
            for each in taken:
                opened = self._opened(each, now_ms)
                if isinstance(opened, Ended):
                    aside.append(opened)
                else:
                    deliveries.append(opened)
            if aside:
                yield self._calls.settle(aside)
            if not aside or len(taken) < wanted or len(deliveries) == count:
                break
        return deliveries

    def _opened(self, taken: Taken, now_ms: int) -> Delivery | Ended:
        """The delivery, or how it ends before it begins."""
        unread = UnreadableDelivery(taken.fence, taken.raw, "")
        try:
            message = read_message(taken.raw)
            if message.has_following:
                self._endings.check(message, now_ms)
        except (InvalidMessage, MessageRefused, *UNREADABLE) as error:
            return self._refused(replace(unread, problem=str(error)), error, now_ms)
        except UnknownName as error:
            if self._left.note(taken.raw):
                return Ended(_returned(_nameless(taken), str(error)))
            return self._refused(replace(unread, problem=str(error)), error, now_ms)
        delivery = _delivery(taken, message)
        if message.expires_ms is not None and message.expires_ms <= now_ms:
            return self._endings.expired(delivery, message, now_ms)
        if message.eta_ms is not None and message.eta_ms > now_ms:
            due = At(min(message.eta_ms, now_ms + LONGEST_HORIZON_MS))
            return Ended(Park(delivery, due, Failure("")))
        self._held[taken.fence] = message
        return delivery

    def _refused(self, unread: UnreadableDelivery, error: Exception, now_ms: int) -> Ended:
        is_foreign = not isinstance(error, MessageRefused)
        settlement = Bury(
            unread,
            "undecodable" if is_foreign else "refused",
            Failure("InvalidMessage" if is_foreign else "NotSupported", unread.problem),
        )
        return self._endings.refused(settlement, unread.record, settlement.failure or Failure(""), now_ms)

    def _settle(self, settlements: Sequence[Settlement]) -> Procedure[list[Settlement]]:
        fences = [settlement.delivery.fence for settlement in settlements]
        if len(set(fences)) != len(fences):
            raise InvalidArgument("a delivery is settled twice in one batch; accepted is each delivery once")
        yield from self._read_adopted(fences)
        now_ms = self._clock.now_ms()
        lost: list[Settlement] = []
        for batch in _batches(settlements):
            ended = [self._ended(each, now_ms) for each in batch]
            lost += yield self._calls.settle(ended)
            for each in batch:
                self._held.pop(each.delivery.fence, None)
        return lost

    def _ended(self, settlement: Settlement, now_ms: int) -> Ended:
        if isinstance(settlement, Park) and settlement.mark == UNKNOWN_TASK:
            # Where its name cannot be told in its list, it would be taken again at once: so it waits here.
            is_left = self._left.note_task(settlement.delivery.task, settlement.due)
            return Ended(settlement if is_left else replace(settlement, mark=""))
        return self._endings.ended(settlement, self._held.get(settlement.delivery.fence), now_ms)

    def _read_adopted(self, fences: Sequence[int]) -> Procedure[None]:
        """Of what another process claimed only the fences are known: the messages are read again."""
        missing = [fence for fence in fences if fence not in self._held]
        if not missing:
            return
        (entries,) = yield Commands((("HMGET", self._keys.held, *missing),), self._keys.held)
        known = [(fence, entry) for fence, entry in zip(missing, entries, strict=True) if entry is not None]
        if not known:
            return
        wanted = [entry for _, entry in known]
        (stored,) = yield Commands((("HMGET", self._keys.messages, *wanted),), self._keys.held)
        for (fence, _), text in zip(known, stored, strict=True):
            try:
                self._held[fence] = read_message(_without_head(text or b""))
            except (InvalidMessage, MessageRefused, UnknownName, *UNREADABLE):
                continue  # changed by somebody else: it is settled without any writes

    def _extend(self, deliveries: Sequence[Delivery], lease_ms: int) -> Procedure[list[Delivery]]:
        whole_number("lease_ms", lease_ms, least=1, most=LONGEST_HORIZON_MS)
        lost: set[int] = set()
        for batch in _batches(deliveries):
            lost.update((yield self._calls.extend([each.fence for each in batch], lease_ms)))
        for fence in lost:
            self._held.pop(fence, None)
        return [delivery for delivery in deliveries if delivery.fence in lost]

    def _reclaim(self) -> Procedure[tuple[int, int]]:
        returned = 0
        while True:
            some, looked_at = yield self._calls.reclaim(LARGEST_BATCH)
            returned += some
            if looked_at < LARGEST_BATCH:
                return returned, 0

    def _give_back(self) -> Procedure[int]:
        returned = 0
        while True:
            some: int = yield self._calls.give_back(LARGEST_BATCH)
            returned += some
            if some < LARGEST_BATCH:
                return returned

    def _find(self, message: MessageId) -> Procedure[CeleryState]:
        dead, _, _ = self._keys.dead
        (is_dead,) = yield Commands((("HEXISTS", dead, message),), dead)
        if is_dead:
            return CeleryState.DEAD
        if not self._options.writes_results or self._options.result_db is not None:
            return CeleryState.UNKNOWN
        key = result_key(self._options.result_prefix, message)
        (text,) = yield Commands((("GET", key),), key)
        return _state_in(text)

    def _counts(self) -> Procedure[dict[str, int]]:
        _, _, _, leases, waiting, _, _, buried, *lists = self._keys.shared
        commands = (
            ("ZCARD", waiting),
            ("ZCARD", leases),
            ("ZCARD", buried),
            *(("LLEN", each) for each in lists),
        )
        later, held, dead, *lengths = yield Commands(commands, leases)
        return {"waiting": sum(lengths), "later": later, "held": held, "dead": dead}

    def _burials(self, start: int, count: int) -> Procedure[list[CeleryBurial]]:
        _, _, buried = self._keys.dead
        (ids,) = yield Commands((("ZRANGE", buried, start, start + count - 1),), buried)
        if not ids:
            return []
        found: list[CeleryBurial] = yield from self._burials_of(ids)
        return found

    def _burials_of(self, ids: Sequence[bytes]) -> Procedure[list[CeleryBurial]]:
        dead, letters, buried = self._keys.dead
        messages, reasons, instants = yield Commands(
            (("HMGET", dead, *ids), ("HMGET", letters, *ids), ("ZMSCORE", buried, *ids)), dead
        )
        parts = zip(ids, messages, instants, reasons, strict=True)
        return [_burial(id_, stored, at, why) for id_, stored, at, why in parts if stored is not None]


def _is_together(options: CeleryOptions) -> bool:
    return has_hash_tag(options.prefix) and options.result_prefix == options.prefix


def _delivery(taken: Taken, message: CeleryMessage) -> Delivery:
    """With what Celery's workers have tried before."""
    return Delivery(
        fence=taken.fence,
        id=message.id,
        task=message.task,
        body=message.body,
        enqueued_at_ms=taken.taken_at_ms,
        deliveries=taken.deliveries + message.retries,
        failures=taken.failures + message.retries,
        crashes=taken.crashes,
        deadline_at_ms=message.expires_ms,
    )


def _nameless(taken: Taken) -> Delivery:
    return Delivery(taken.fence, MessageId("-"), UNKNOWN_TASK, b"", taken.taken_at_ms)  # type: ignore[arg-type]


def _returned(delivery: Delivery, problem: str) -> Park:
    return Park(delivery, After(TasksLeft.PAUSE_MS), Failure("UnknownTask", problem), UNKNOWN_TASK)


def _without_head(stored: bytes) -> bytes:
    """The message behind 'list deliveries failures crashes taken-at '."""
    parts = stored.split(b" ", 5)
    return parts[5] if len(parts) == 6 else b""  # noqa: PLR2004 - see above


def _state_in(text: bytes | None) -> CeleryState:
    if text is None:
        return CeleryState.UNKNOWN
    found = {b"SUCCESS": CeleryState.SUCCEEDED, b"RETRY": CeleryState.RETRIED}
    beginning = text[:40]
    return next((state for word, state in found.items() if b'"%b"' % word in beginning), CeleryState.UNKNOWN)


def _burial(id_: bytes, stored: bytes, at_ms: bytes | None, letter: bytes | None) -> CeleryBurial:
    details: dict[str, object] = json.loads(letter) if letter else {}
    reason = str(details.pop("reason", ""))
    return CeleryBurial(id_.decode(), _without_head(stored), int(float(at_ms or 0)), reason, details)


def _batches(items: Sequence[ItemT]) -> Iterable[Sequence[ItemT]]:
    return (items[at : at + LARGEST_BATCH] for at in range(0, len(items), LARGEST_BATCH))
