"""Verbs for gateways that enqueue messages, or take deliveries as a worker does. Pure.

A gateway that takes deliveries is a consumer of its own: the heartbeat reaper beats for it as long as its
process lives, and releases what it held, uncounted, when it dies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mqworker.actors.gateway.queues import GatewayQueues
from mqworker.actors.gateway.size import count_that_fits
from mqworker.actors.gateway.verbs.verb import LARGEST_GROUP, Arguments, Verb
from mqworker.errors import InvalidArgument, InvalidMessage
from mqworker.model.delivery import UnreadableDelivery
from mqworker.model.guard import chosen_id_guard
from mqworker.model.instant import After
from mqworker.model.message import NO_TASK, USUAL_MAX_CRASHES, Message
from mqworker.model.names import ConsumerName, MessageId, TaskName
from mqworker.model.record import decode_record
from mqworker.model.settlement import Bury, Release, Settlement
from mqworker.queues.work.calls import LOOK_AGAIN, LookAgain
from mqworker.queues.work.settlement import Argument
from mqworker.queues.work.steps import LARGEST_BATCH_BYTES
from mqworker.store.procedure import Commands, Procedure

_BYTES_OF_A_SHARE = LARGEST_BATCH_BYTES // LARGEST_GROUP
_ACCEPTED = {"id", "body", "task", "priority", "delay_ms", "deadline_ms", "max_crashes", "is_chosen_id"}


def verbs_of_intake(queues: GatewayQueues) -> dict[str, Verb]:
    """For the broker's node: enqueue."""
    verbs = _Verbs(queues)
    return {"enqueue": Verb(verbs.enqueue, verbs.enqueue_together, _weigh)}


def verbs_of_output(queues: GatewayQueues) -> dict[str, Verb]:
    """For the dispatcher's node: claim, settle, held."""
    verbs = _Verbs(queues)
    return {"claim": Verb(verbs.claim), "settle": Verb(verbs.settle), "held": Verb(verbs.held)}


class _Verbs:
    def __init__(self, queues: GatewayQueues) -> None:
        self._queues = queues

    def enqueue(self, queue: str, message: Mapping[str, Any]) -> Procedure[Any]:
        """Store one message; (id, whether it is new). See `_ACCEPTED` for what a message may have."""
        yield from self._queues.admit(queue)
        (enqueued,) = yield from self._queues[queue].enqueue([_message(message)])
        return enqueued.id, enqueued.is_new

    def enqueue_together(self, calls: Sequence[Arguments]) -> Procedure[list[Any]]:
        messages = [_message(message) for _, message in calls]
        yield from self._queues.admit(calls[0][0])
        enqueued = yield from self._queues[calls[0][0]].enqueue(messages)
        return [(each.id, each.is_new) for each in enqueued]

    def claim(self, queue: str, consumer: str, count: int) -> Procedure[Any]:
        """Take deliveries: (fence, record) each."""
        calls, name = self._queues[queue].calls, ConsumerName(consumer)
        claimed: list[tuple[int, bytes]] | LookAgain = LOOK_AGAIN
        while claimed is LOOK_AGAIN:
            claimed = yield calls.claim_records(count, name)
        fitting = count_that_fits(claimed) if claimed else 0
        if fitting < len(claimed):
            yield calls.settle([_release(fence, record) for fence, record in claimed[fitting:]], name)
        return claimed[:fitting]

    def settle(self, queue: str, consumer: str, arguments: Sequence[Argument]) -> Procedure[Any]:
        """End deliveries with the arguments of settle.lua; how many had lost their lease."""
        lost = yield self._queues[queue].calls.settle_with(arguments, ConsumerName(consumer))
        return lost

    def held(self, queue: str, consumer: str) -> Procedure[Any]:
        """What the server thinks a consumer holds: (fence, record) each."""
        keys = self._queues[queue].calls.keys
        (fields,) = yield Commands((("HGETALL", keys.held(ConsumerName(consumer))),), keys.meta)
        return [(int(fence), record) for fence, record in zip(fields[::2], fields[1::2], strict=True)]


def _release(fence: int, record: bytes) -> Settlement:
    try:
        return Release(decode_record(record, fence))
    except InvalidMessage as error:
        return Bury(UnreadableDelivery(fence, record, str(error)), "undecodable")


def _weigh(call: Arguments) -> int:
    """So that a lump is stored by one script, whole or not at all, however large its bodies are."""
    body = call[1].get("body")
    return 1 + (len(body) // _BYTES_OF_A_SHARE if isinstance(body, bytes) else 0)


def _message(given: Mapping[str, Any]) -> Message:
    unknown = sorted(set(given) - _ACCEPTED)
    if unknown:
        raise InvalidArgument(f"message has {unknown}; accepted are {', '.join(sorted(_ACCEPTED))}")
    message, delay_ms, deadline_ms = MessageId(given["id"]), given.get("delay_ms"), given.get("deadline_ms")
    return Message(
        id=message,
        body=given["body"],
        task=TaskName(given.get("task", NO_TASK)),
        priority=given.get("priority", 0),
        due=After(delay_ms) if delay_ms else None,
        deadline=After(deadline_ms) if deadline_ms is not None else None,
        guard=chosen_id_guard(message) if given.get("is_chosen_id") else None,
        max_crashes=given.get("max_crashes", USUAL_MAX_CRASHES),
    )
