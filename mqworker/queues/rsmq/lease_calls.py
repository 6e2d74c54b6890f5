"""The calls behind `RsmqQueue`: claims with fences on an RSMQ queue, and tasks as JSON texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from mqworker.errors import InvalidArgument, InvalidMessage
from mqworker.model.dead_letter import encode_letter
from mqworker.model.delivery import Delivery, UnreadableDelivery
from mqworker.model.instant import as_argument
from mqworker.model.message import Message
from mqworker.model.names import MessageId, message_id
from mqworker.model.settlement import Ack, Bury, Crash, Park, Release, RetryAt, Settlement, Suspect
from mqworker.queues.rsmq.arguments import refusal
from mqworker.queues.rsmq.calls import OutgoingMessage, RsmqMessage, checked, received_messages, sent_ms
from mqworker.queues.rsmq.keys import RsmqKeys
from mqworker.queues.rsmq.text import TaskText, decode_text, encode_text
from mqworker.store.script import Call, RawReply, scripts_of

script = scripts_of(__package__)


class RsmqLeaseCalls:
    """Builds calls for one queue and its dead letters; pure."""

    def __init__(self, queue: str, keys: RsmqKeys) -> None:
        self._queue = queue
        self._keys = keys

    def claim(self, count: int, lease_ms: int) -> Call[list[Delivery | UnreadableDelivery]]:
        """Receive messages under leases."""
        arguments = (count, lease_ms)
        return Call(script("claim"), self._keys.with_leases, arguments, self._claimed, is_numbered=True)

    def settle(self, settlements: Sequence[Settlement]) -> Call[list[Settlement]]:
        """End deliveries; the reply lists those whose lease was lost."""
        arguments = [part for settlement in settlements for part in _arguments_of(settlement)]
        return Call(
            script("settle"),
            (*self._keys.with_leases, *self._keys.dead),
            tuple(arguments),
            lambda lost: [settlements[position] for position in lost],
            is_numbered=True,
        )

    def extend(self, fences: Sequence[int], lease_ms: int) -> Call[list[int]]:
        """Prolong leases; the reply lists the fences that were lost."""
        return Call(
            script("extend"),
            self._keys.with_leases,
            (lease_ms, *map(str, fences)),
            lambda lost: [fences[position] for position in lost],
            is_numbered=True,
        )

    def reclaim(self, limit: int) -> Call[tuple[int, int]]:
        """Forget leases that ended: (messages that returned, leases looked at)."""
        return Call(script("reclaim"), self._keys.with_leases, (limit,), tuple)

    def revive(self, ids: Sequence[str]) -> Call[list[bool]]:
        """Put dead letters back in line; for each whether it was one."""
        return Call(
            script("revive"),
            (*self._keys.with_leases, *self._keys.dead),
            tuple(ids),
            checked(self._queue, lambda reply: [verdict == 1 for verdict in reply]),
            is_numbered=True,
        )

    def promote(self) -> Call[int]:
        """Milliseconds until the next delayed message is due, or -1."""
        return Call(script("promote"), self._keys.shared, (), int)

    def _claimed(self, reply: RawReply) -> list[Delivery | UnreadableDelivery]:
        if isinstance(reply, bytes):
            raise refusal(reply.decode(), self._queue)
        first, found = reply
        return [_delivery(received, fence) for fence, received in enumerate(received_messages(found), first)]


def outgoing_of(message: Message, chosen: MessageId | None) -> OutgoingMessage:
    """The message as it is sent through RSMQ, with an id of ours or not; some wishes have no place there."""
    for wish in ("priority", "deadline", "guard", "limits"):
        if getattr(message, wish):
            raise InvalidArgument(f"{wish}: an RSMQ queue offers none; use a work queue for that")
    text = encode_text(TaskText(message.task, message.body, chosen))
    # Without a wish the message is due at once: the queue's delay is for those who know of it.
    return OutgoingMessage(text, as_argument(message.due) or "+0")


def _delivery(received: RsmqMessage, fence: int) -> Delivery | UnreadableDelivery:
    try:
        content = decode_text(received.message)
        id_ = content.id or message_id(received.id)  # foreign clients may name a message as they like
    except (InvalidMessage, InvalidArgument) as error:
        return UnreadableDelivery(fence, received.message, str(error))
    return Delivery(
        fence=fence,
        id=id_,
        task=content.task,
        body=content.body,
        enqueued_at_ms=int(sent_ms(received.id)),
        deliveries=received.rc - 1,
        # The layout counts deliveries and nothing else: whoever had it before is taken to have failed.
        failures=received.rc - 1,
        crashes=received.rc - 1,
    )


def _arguments_of(settlement: Settlement) -> tuple[str | bytes, str | bytes, str | bytes]:
    fence = str(settlement.delivery.fence)
    match settlement:
        case Ack():
            return ("ack", fence, "")
        case RetryAt(_, due) | Park(_, due):
            return ("again", fence, as_argument(due))
        case Release() | Crash() | Suspect():
            return ("front", fence, "")
        case Bury():
            return ("bury", fence, encode_letter(settlement))
        case _:
            assert_never(settlement)
