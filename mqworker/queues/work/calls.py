"""The work queue's scripts as calls: arguments in the order of each contract, replies turned into values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import cast

from mqworker.errors import InvalidMessage
from mqworker.model.delivery import Delivery, UnreadableDelivery
from mqworker.model.event import IDS, enqueued_block
from mqworker.model.instant import as_argument
from mqworker.model.message import Enqueued, Message
from mqworker.model.names import DEFAULT_NAMESPACE, ConsumerName, MessageId, QueueName
from mqworker.model.record import crash_digit, decode_record, plain_record_tail
from mqworker.model.settlement import Settlement
from mqworker.queues.work.keys import WorkQueueKeys
from mqworker.queues.work.settlement import Argument, settle_arguments
from mqworker.store.script import Call, RawReply, scripts_of

script = scripts_of(__package__)


@dataclass(frozen=True, slots=True)
class WorkQueueOptions:
    """What every call of a queue carries along."""

    namespace: str = DEFAULT_NAMESPACE
    events_kept: int = 10_000
    """About how many entries (blocks) the stream of events holds."""
    dedup_window_ms: int = 600_000
    """How long an id chosen by the caller stays taken after its message was settled."""
    permit_ms: int = 0
    """How long after it was admitted a limited message may start; then it waits for another permit.
    0: for ever, where whoever admits it also starts it."""


class LookAgain(Enum):
    """A script stepped over as much as one call may; what was asked for may lie behind it."""

    LOOK_AGAIN = "look again"


LOOK_AGAIN = LookAgain.LOOK_AGAIN


class WorkQueueCalls:
    """Builds calls for one queue; pure."""

    def __init__(self, queue: QueueName, options: WorkQueueOptions) -> None:
        self.keys = WorkQueueKeys.of(options.namespace, queue)
        self._plain_keys = self.keys.plain
        self._kept = options.events_kept
        self._window_ms = options.dedup_window_ms
        self._permit_ms = options.permit_ms

    def enqueue(self, messages: Sequence[Message]) -> Call[list[Enqueued]]:
        """Store a batch, whole or not at all."""
        block = enqueued_block(messages)
        arguments: list[Argument] = [self._kept, block.codec, block.data]
        is_plain = all(message.is_plain for message in messages)
        if is_plain:
            arguments += map(plain_record_tail, messages)
        else:  # one that wants more takes the others along: a batch keeps its order
            arguments += [part for message in messages for part in _rich_arguments(message)]
        return Call(
            script("enqueue" if is_plain else "enqueue_rich"),
            self._plain_keys if is_plain else self.keys.shared,
            tuple(arguments),
            lambda reply: _enqueued(messages, reply),
            is_numbered=True,
        )

    def enqueue_one(self, message: Message) -> Call[Enqueued]:
        """The same for a single message, which most calls are, in fewer steps."""
        if not message.is_plain:
            return alone(self.enqueue((message,)))
        return Call(
            script("enqueue"),
            self._plain_keys,
            (self._kept, IDS, f"{message.task} {message.id}".encode(), plain_record_tail(message)),
            lambda _: Enqueued(message.id, is_new=True),
            is_numbered=True,
        )

    def enqueue_following(self, messages: Sequence[Message]) -> Call[list[Enqueued]]:
        """The same for a caller that numbers it, and says which call it follows: `number>earlier`."""
        block = enqueued_block(messages)
        arguments = [part for message in messages for part in _rich_arguments(message)]
        return Call(
            script("enqueue_rich"),
            self.keys.shared,
            (self._kept, block.codec, block.data, *arguments),
            lambda reply: _enqueued(messages, reply),
            is_numbered=True,
        )

    def claim(
        self, count: int, consumer: ConsumerName | None, lease_ms: int
    ) -> Call[list[Delivery | UnreadableDelivery] | LookAgain]:
        """Take messages under a lease: the consumer's heartbeat, or for a time where it has no name."""
        return Call(
            script("claim"),
            (*self.keys.shared, self.keys.held(consumer)),
            (self._kept, count, consumer or "", lease_ms, self._window_ms, ""),
            _claimed,
            is_numbered=True,
        )

    def claim_records(
        self, count: int, consumer: ConsumerName, tickets: Sequence[str] = (), known: Sequence[str] = ()
    ) -> Call[list[tuple[int, bytes]] | LookAgain]:
        """As `claim`, for a consumer that passes records on unread: (fence, record) each.

        One of `tickets` for each that could begin at once: as many as do not wait here are handed over when
        they are enqueued, each with its ticket. `known` are tasks, each with its version: of these comes
        first what others could not run (parts/parked.lua).
        """
        return Call(
            script("claim"),
            (*self.keys.shared, self.keys.held(consumer)),
            (self._kept, count, consumer, 1, self._window_ms, " ".join(tickets), *known),
            _claimed_records,
            is_numbered=True,
        )

    def settle_with(self, arguments: Sequence[Argument], consumer: ConsumerName) -> Call[int]:
        """A settlement whose arguments were made elsewhere, by `settle`; how many had lost their lease."""
        keys = (*self.keys.shared, self.keys.held(consumer))
        return Call(script("settle"), keys, tuple(arguments), len, is_numbered=True)

    def settle(
        self,
        settlements: Sequence[Settlement],
        consumer: ConsumerName | None,
        results_ms: int = 60_000,
        longest_ms: int = 0,
    ) -> Call[list[Settlement]]:
        """End deliveries, keeping results so long; the reply lists those whose lease was lost.

        `longest_ms` is what other results of the same application are kept, if that is longer.
        """
        kept_ms: Argument = f"{results_ms} {longest_ms}" if longest_ms > results_ms else results_ms
        arguments, in_order = settle_arguments(
            settlements, kept=self._kept, window_ms=self._window_ms, results_ms=kept_ms
        )
        return Call(
            script("settle"),
            (*self.keys.shared, self.keys.held(consumer)),
            arguments,
            lambda lost: [in_order[position] for position in lost],
            is_numbered=True,
        )

    def extend(self, fences: Sequence[int], lease_ms: int) -> Call[list[int]]:
        """Prolong leases that expire; the reply lists the fences that were lost."""
        return Call(
            script("extend"),
            (*self.keys.shared, self.keys.held(None)),
            (lease_ms, *fences),
            lambda lost: [fences[position] for position in lost],
            is_numbered=True,
        )

    def reclaim(self, limit: int) -> Call[tuple[int, int]]:
        """Return deliveries whose lease ended: (reclaimed, buried)."""
        return Call(
            script("reclaim"),
            (*self.keys.shared, self.keys.held(None)),
            (self._kept, limit, self._window_ms),
            tuple,
        )

    def beat(self, consumer: ConsumerName) -> Call[None]:
        """A consumer's sign of life."""
        return Call(script("beat"), self.keys.shared, (consumer,), lambda _: None)

    def begin_probation(self, fence: int, consumer: ConsumerName) -> Call[bytes | None]:
        """Note that a delivery which was lost too often is about to run alone: its record, None if lost."""
        return Call(
            script("begin_probation"),
            (*self.keys.shared, self.keys.held(consumer)),
            (fence,),
            _record_or_none,
        )

    def reap(
        self, consumer: ConsumerName, silent_ms: int, limit: int, *, losses: int, valid_until_ms: int = 0
    ) -> Call[int]:
        """Release what a consumer holds that is gone: how many, or -1 when it is alive or the time is over.

        `losses` is 1 when it vanished with what it held, which is counted; 0 when its node took leave of it.
        """
        return Call(
            script("reap"),
            (*self.keys.shared, self.keys.held(consumer)),
            (self._kept, limit, consumer, silent_ms, self._window_ms, losses, valid_until_ms),
            int,
        )

    def promote(self, limit: int) -> Call[tuple[int, int]]:
        """Move due messages to their line: (promoted, ms until the next or -1)."""
        return Call(script("promote"), self.keys.shared, (limit,), tuple)

    def admit(self, room: int) -> Call[tuple[int, int]]:
        """Let limited messages in: (admitted, ms until the next token or -1)."""
        return Call(script("admit"), self.keys.shared, (room, self._permit_ms), tuple)

    def set_limit(self, name: str, most: int | None) -> Call[None]:
        """Say how many of a limit run at once; None goes by what the code says again."""
        arguments: tuple[Argument, ...] = (name, most or "")
        return Call(script("set_limit"), self.keys.shared, arguments, lambda _: None, is_numbered=True)

    def close(self, names: Sequence[str], for_ms: int, *, task: str = "", why: str = "") -> Call[int]:
        """Let nothing start that has these names among its limits, for so long; 0 opens them."""
        arguments: tuple[Argument, ...] = (self._kept, task, for_ms, why, *names)
        return Call(script("close"), self.keys.shared, arguments, int, is_numbered=True)

    def spend(self, fence: int, cost: int, positions: Sequence[int], consumer: ConsumerName) -> Call[int]:
        """Say what a delivery costs in truth, of which of its rates by weight."""
        keys = (*self.keys.shared, self.keys.held(consumer))
        return Call(script("spend"), keys, (fence, cost, *positions), int, is_numbered=True)

    def begin_spawn(
        self, fence: int, consumer: ConsumerName | None, starts: Sequence[MessageId] = ()
    ) -> Call[int]:
        """A running message spawns others: 1, 2, 0 or -1 as in begin_spawn.lua."""
        keys = (*self.keys.shared, self.keys.held(consumer))
        return Call(script("begin_spawn"), keys, (fence, *starts), int)

    def expire(self, limit: int) -> Call[int]:
        """Report waiting messages whose deadline passed."""
        return Call(script("expire"), self.keys.shared, (self._kept, limit, self._window_ms), int)

    def cancel(self, message: MessageId, offset: int, size: int) -> Call[int]:
        """Take a waiting message out, looking at one window of the line: 1, 0 or -1 as in cancel.lua."""
        arguments = (self._kept, self._window_ms, message, offset, size)
        return Call(script("cancel"), self.keys.shared, arguments, int, is_numbered=True)

    def find(self, message: MessageId, offset: int, size: int) -> Call[tuple[str, bytes]]:
        """The state of a message, looking at one window of the line: (state, detail) as in find.lua."""
        return Call(script("find"), self.keys.shared, (message, offset, size), _found)

    def wait(self, messages: Sequence[MessageId]) -> Call[list[bytes | None]]:
        """Ask to be told when messages end (`keys.done`); the outcomes of those that did already."""
        return Call(script("await"), self.keys.shared, tuple(messages), list)

    def request_cancel(self, message: MessageId) -> Call[int]:
        """Ask to stop a message that a consumer holds."""
        return Call(script("request_cancel"), self.keys.shared, (message, "cancel"), int, is_numbered=True)

    def request_kill(self, message: MessageId) -> Call[int]:
        """The same, and to kill the worker that runs it."""
        return Call(script("request_cancel"), self.keys.shared, (message, "kill"), int, is_numbered=True)

    def clear_outbox(self, ends: Sequence[tuple[MessageId, bytes]]) -> Call[int]:
        """Say that what followed from these ends of workflow members was done."""
        arguments: list[Argument] = [self._window_ms]
        for member, outcome in ends:
            arguments += (member, outcome[:1])
        return Call(script("clear_outbox"), self.keys.shared, tuple(arguments), int)

    def rotate_results(self) -> Call[tuple[int, int]]:
        """Drop results that were kept long enough: (1 if a period was dropped, ms until others end)."""
        return Call(script("rotate_results"), self.keys.shared, (), tuple)

    def revive(self, messages: Sequence[MessageId]) -> Call[list[MessageId]]:
        """Put dead letters back in line; the reply lists those that were."""
        return Call(script("revive"), self.keys.shared, (self._kept, *messages), _ids, is_numbered=True)

    def purge(self, what: str, limit: int) -> Call[tuple[int, int]]:
        """Throw away what is 'waiting' or 'dead': (thrown away, left)."""
        arguments = (self._kept, what, limit, self._window_ms)
        return Call(script("purge"), self.keys.shared, arguments, tuple, is_numbered=True)

    def configure(self, **switches: str) -> Call[None]:
        """Set or clear ('') switches of the queue."""
        pairs = [text for pair in switches.items() for text in pair]
        return Call(script("configure"), self.keys.shared, tuple(pairs), lambda _: None, is_numbered=True)

    def forget(self, lane_ms: int, calls_cursor: str, guards_cursor: str) -> Call[tuple[str, str]]:
        """Drop replies and guards no longer needed; the reply says where to go on."""
        return Call(
            script("forget"),
            self.keys.shared,
            (lane_ms, calls_cursor, guards_cursor),
            lambda cursors: (cursors[0].decode(), cursors[1].decode()),
        )

    def repair(self, parcels_cursor: str, held_cursor: str) -> Call[tuple[int, str, str]]:
        """Mend entries without their other half; the reply says how many and where to go on."""
        return Call(
            script("repair"),
            (*self.keys.shared, self.keys.held(None)),
            (parcels_cursor, held_cursor),
            lambda reply: (reply[0], reply[1].decode(), reply[2].decode()),
        )

    def push(self, elements: Sequence[bytes]) -> Call[list[MessageId]]:
        """MQ.PUSH."""
        return Call(script("push"), self.keys.rqueue, (self._kept, *elements), _ids, is_numbered=True)

    def pop(self, count: int) -> Call[list[tuple[MessageId, bytes]] | LookAgain | None]:
        """MQ.POP."""
        return Call(
            script("pop"),
            self.keys.rqueue,
            (self._kept, count, self._window_ms),
            _popped,
            is_numbered=True,
        )

    def put_back(self, messages: Sequence[str]) -> Call[int]:
        """Undo a pop whose caller is gone; how many that caller still held."""
        return Call(script("put_back"), self.keys.rqueue, (self._kept, *messages), int, is_numbered=True)

    def ack(self, messages: Sequence[str]) -> Call[list[MessageId] | None]:
        """MQ.ACK."""
        return Call(
            script("ack"),
            self.keys.rqueue,
            (self._kept, self._window_ms, *messages),
            _ids_or_none,
            is_numbered=True,
        )

    def recover(self, count: int, elapsed_ms: int) -> Call[list[tuple[MessageId, bytes]] | None]:
        """MQ.RECOVER."""
        return Call(script("recover"), self.keys.rqueue, (count, elapsed_ms), _elements, is_numbered=True)

    def inspect(self, start: int, count: int) -> Call[list[tuple[MessageId, bytes]]]:
        """MQ.INSPECT."""
        return Call(
            script("inspect"), self.keys.rqueue, ("undelivered", start, count), lambda r: _elements(r) or []
        )

    def inspect_pending(self, start: int, count: int) -> Call[list[PendingElement]]:
        """MQ.INSPECT … PENDING."""
        return Call(script("inspect"), self.keys.rqueue, ("pending", start, count), _pending)


def alone(batch: Call[list[Enqueued]]) -> Call[Enqueued]:
    """The call for a batch of one, for callers that want one result."""
    return replace(cast("Call[Enqueued]", batch), decode=lambda reply: batch.decode(reply)[0])


@dataclass(frozen=True, slots=True)
class PendingElement:
    """A delivered element that was not acknowledged, as INSPECT PENDING shows it."""

    id: MessageId
    element: bytes
    last_delivery_ms: int
    elapsed_ms: int
    deliveries: int


def _rich_arguments(message: Message) -> tuple[Argument, ...]:
    guard = message.guard
    mode = (f"s{guard.tick_until_ms}{guard.mode}" if guard.tick_until_ms else guard.mode) if guard else "-"
    terms = (
        f"{message.priority} {mode} {guard.ttl_ms if guard else 0} {crash_digit(message.max_crashes)}"
        f" {as_argument(message.due)} {as_argument(message.deadline)} {message.limits or ''}"
        f" {message.batch_key or ''} {message.task}"
    )
    return terms, message.id, guard.key if guard else "", message.body


def _enqueued(messages: Sequence[Message], turned_away: RawReply) -> list[Enqueued]:
    outcome = [Enqueued(message.id, is_new=True) for message in messages]
    for position, holder in zip(turned_away[::2], turned_away[1::2], strict=True):
        outcome[position] = Enqueued(MessageId(holder.decode()), is_new=False)
    return outcome


def _claimed(reply: RawReply) -> list[Delivery | UnreadableDelivery] | LookAgain:
    first, records = reply
    if first < 0:
        return LOOK_AGAIN
    return [_delivery(record, fence) for fence, record in enumerate(records, first) if record is not None]


def _claimed_records(reply: RawReply) -> list[tuple[int, bytes]] | LookAgain:
    first, records = reply
    if first < 0:
        return LOOK_AGAIN
    return [(fence, record) for fence, record in enumerate(records, first) if record is not None]


def _delivery(record: bytes, fence: int) -> Delivery | UnreadableDelivery:
    try:
        return decode_record(record, fence)
    except InvalidMessage as error:
        return UnreadableDelivery(fence, record, str(error))


def _record_or_none(reply: RawReply) -> bytes | None:
    return reply if isinstance(reply, bytes) else None


def _found(reply: RawReply) -> tuple[str, bytes]:
    state, detail = reply[0], reply[1] if len(reply) > 1 else b""
    return state.decode(), b"%d" % detail if isinstance(detail, int) else detail


def _ids(reply: RawReply) -> list[MessageId]:
    return [MessageId(item.decode()) for item in reply]


def _ids_or_none(reply: RawReply) -> list[MessageId] | None:
    return None if reply is None else _ids(reply)


def _elements(reply: RawReply) -> list[tuple[MessageId, bytes]] | None:
    return None if reply is None else [(MessageId(item.decode()), element) for item, element in reply]


def _popped(reply: RawReply) -> list[tuple[MessageId, bytes]] | LookAgain | None:
    return LOOK_AGAIN if reply == -1 else _elements(reply)


def _pending(reply: RawReply) -> list[PendingElement]:
    return [PendingElement(MessageId(item.decode()), *rest) for item, *rest in reply]
