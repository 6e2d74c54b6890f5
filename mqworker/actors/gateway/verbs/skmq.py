"""What the broker's node does for the SKMQ gateway: the steps between a frame and Redis. Pure.

    skmq_send(queue, msgid, id, task, content)      "stored", or "exists" when its msgid is taken
    skmq_assign(queue, consumer, deliveries)        the address of a recipient for each, or None
    skmq_split(queue, id, content)                  "nobody", "waits" for its copies, or "done"
    skmq_forget(entries)                            None; entries of settled messages leave the index
    skmq_register(recipient), skmq_lose(…), skmq_recipients(queue), skmq_queues()

What a consumer says of a message that another node holds is in `skmq_feedback.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mqworker.actors.gateway.queues import GatewayQueues
from mqworker.actors.gateway.verbs.skmq_feedback import FeedbackVerb
from mqworker.actors.gateway.verbs.verb import LARGEST_GROUP, Arguments, Verb
from mqworker.errors import InvalidArgument, MqworkerError
from mqworker.model.message import Enqueued, Message
from mqworker.model.names import ConsumerName, MessageId, QueueName, TaskName
from mqworker.queues.skmq.calls import Addressee, IndexEntry, SkmqCalls, guard_of_copy, guard_of_message
from mqworker.queues.skmq.names import COPY, copy_field, copy_id_of
from mqworker.store.procedure import Procedure

STORED, EXISTS = "stored", "exists"
NOBODY, WAITS, DONE = "nobody", "waits", "done"

_LARGEST_GROUP_BYTES = 4 * 1024 * 1024


def verbs_of_intake(queues: GatewayQueues) -> dict[str, Verb]:
    """For the broker's node."""
    calls = SkmqCalls(queues.namespace)
    verbs = _Verbs(queues, calls)
    return {
        "skmq_send": Verb(verbs.send, verbs.send_together, _weight),
        "skmq_assign": Verb(verbs.assign),
        "skmq_split": Verb(verbs.split),
        "skmq_forget": Verb(verbs.forget),
        "skmq_register": Verb(verbs.register),
        "skmq_lose": Verb(verbs.lose),
        "skmq_recipients": Verb(verbs.recipients),
        "skmq_queues": Verb(verbs.all_queues),
        "skmq_feedback": Verb(FeedbackVerb(queues, calls).begin),
    }


class _Verbs:
    def __init__(self, queues: GatewayQueues, calls: SkmqCalls) -> None:
        self._queues = queues
        self._calls = calls

    def send(self, *call: Any) -> Procedure[str]:  # noqa: ANN401 - see send_together
        [outcome] = yield from self.send_together([call])
        return outcome

    def send_together(self, calls: Sequence[Arguments]) -> Procedure[list[str]]:
        """Reserve the msgids, look at those that are taken, and store the rest."""
        queue = QueueName(calls[0][0])
        yield from self._queues.admit(queue)
        first_by_msgid: dict[str, Arguments] = {}
        for call in calls:
            first_by_msgid.setdefault(call[1], call)
        wishes = [(msgid, id_) for _, msgid, id_, _, _ in first_by_msgid.values()]
        known: list[IndexEntry | None] = yield self._calls.reserve(queue, wishes)
        free: list[Arguments] = []
        for call, entry in zip(first_by_msgid.values(), known, strict=True):
            if entry is None or not (yield from self._is_taken(queue, call[1], call[2], entry)):
                free.append(call)
        stored = yield from self._store(queue, free)
        outcome_by_id = dict(zip([call[2] for call in free], stored, strict=True))
        return [outcome_by_id.get(call[2], EXISTS) for call in calls]

    def _is_taken(self, queue: QueueName, msgid: str, message: str, known: IndexEntry) -> Procedure[bool]:
        """Whether the message that the index knows lives; if it does not, the newer one takes its place."""
        holder: str = yield self._calls.of_queue(known.queue).holder(guard_of_message(msgid).key)
        if holder:
            return True
        yield self._calls.reserve(queue, [(msgid, message)], gone_id=known.id)
        return False  # what came between is turned away by the guard in the queue, if it has the same app

    def _store(self, queue: QueueName, calls: Sequence[Arguments]) -> Procedure[list[str]]:
        messages = [_message(msgid, id_, task, content) for _, msgid, id_, task, content in calls]
        if not messages:
            return []
        try:
            enqueued: list[Enqueued] = yield from self._queues[queue].enqueue(messages)
        except MqworkerError:
            yield self._calls.forget([(msgid, id_) for _, msgid, id_, _, _ in calls])
            raise
        # A holder with our own id is this very call, carried out before its answer was lost.
        return [
            STORED if each.is_new or each.id == message.id else EXISTS
            for each, message in zip(enqueued, messages, strict=True)
        ]

    def assign(self, queue: str, consumer: str, deliveries: Sequence[Arguments]) -> Procedure[list[Any]]:
        """Choose for deliveries of (fence, id, field of the index, key of a recipient or '')."""
        calls = self._calls.of_queue(QueueName(queue))
        chosen: list[Addressee | None] = yield calls.assign([key for *_, key in deliveries])
        pushed = [
            (
                copy_field(field, key) if key else field,
                IndexEntry(QueueName(queue), id_, ConsumerName(consumer), fence),
            )
            for (fence, id_, field, key), addressee in zip(deliveries, chosen, strict=True)
            if addressee is not None
        ]
        if pushed:
            yield self._calls.note(pushed)
        return [None if each is None else (each.key, each.host, each.port, each.id) for each in chosen]

    def split(self, queue: str, message: str, content: bytes) -> Procedure[str]:
        """Make a copy of a topic's message for each recipient, once; and say whether they are settled."""
        calls = self._calls.of_queue(QueueName(queue))
        state, *keys = yield calls.split(message)
        if state == NOBODY:
            return NOBODY
        if state == "chosen":
            copies = [_copy(copy_id_of(message, key), content) for key in keys]
            yield from self._queues[queue].enqueue(copies)
        living: int = yield calls.outstanding(message)
        return WAITS if living else DONE

    def forget(self, entries: Sequence[tuple[str, str]]) -> Procedure[None]:
        yield self._calls.forget(entries)

    def register(self, queue: str, key: str, entry: str, must_stay: object = None) -> Procedure[None]:
        """Let a recipient take part at this queue, and at no other; `must_stay`: not if it is at another."""
        yield from self._queues.admit(queue)
        old: QueueName | None = yield self._calls.move(key, QueueName(queue), must_stay=bool(must_stay))
        if old is not None and must_stay:
            raise InvalidArgument("id is that of a recipient of another app; accepted is one of its own")
        if old is not None:
            yield self._calls.of_queue(old).leave(key)
        yield self._calls.of_queue(QueueName(queue)).register(key, entry)

    def lose(self, queue: str, key: str, address: str) -> Procedure[int]:
        was_alive: int = yield self._calls.of_queue(QueueName(queue)).lose(key, address)
        return was_alive

    def recipients(self, queue: str) -> Procedure[list[Any]]:
        """All of an app: (key, host, port, id, whether it is alive, weight) each."""
        found: list[tuple[Addressee, bool, int]] = yield self._calls.of_queue(QueueName(queue)).recipients()
        return [(each.key, each.host, each.port, each.id, alive, weight) for each, alive, weight in found]

    def all_queues(self) -> Procedure[list[QueueName]]:
        queues: list[QueueName] = yield self._calls.queues()
        return queues


def _message(msgid: str, message: str, task: str, content: bytes) -> Message:
    # A gateway or a node that dies over it says nothing against the message: no limit of crashes.
    guard = guard_of_message(msgid)
    return Message(MessageId(message), content, TaskName(task), guard=guard, max_crashes=None)


def _copy(copy: MessageId, content: bytes) -> Message:
    return Message(copy, content, COPY, guard=guard_of_copy(copy), max_crashes=None)


def _weight(call: Arguments) -> int:
    return 1 + len(call[4]) * LARGEST_GROUP // _LARGEST_GROUP_BYTES
