"""What a consumer says of a message that its gateway does not hold: another node does, or nobody. Pure.

    skmq_feedback(feedback, msgid, (key, host, apps), (retry_times, retry_delay_ms), asker)
                                                                            "known", "unknown", "missed"

`apps` are patterns of the apps whose messages the speaker may consume, None for all: of others it knows none.
The message is found by the index and settled under the fence of whoever holds it; that one's own settlement
comes too late then and is refused, as it should be. One that waits for its next attempt is taken out of the
line by an ack; for a rejection it waits already. "missed" is a word that could not be carried out, and the
caller asks again: a gateway has just taken the message and not noted it yet, or the one that asks holds it by
now. Neither is settled behind the back of its holder, which would push it all the same, to somebody who was
told `ack`. Of the asker, a consumer's name, that can be made sure: what it holds, it settles itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mqworker.actors.gateway.queues import GatewayQueues
from mqworker.errors import InvalidMessage
from mqworker.model.delivery import Delivery
from mqworker.model.gateway_users import matches
from mqworker.model.names import ConsumerName, MessageId
from mqworker.model.record import decode_record
from mqworker.model.settlement import Settlement
from mqworker.queues.skmq.calls import (
    Addressee,
    IndexEntry,
    SkmqCalls,
    SkmqQueueCalls,
    guard_of_copy,
    guard_of_message,
)
from mqworker.queues.skmq.names import app_of_queue, copy_field, is_topic
from mqworker.queues.skmq.settlement import ACK, ARRIVED, REJECT, RetryRules, settlement_of
from mqworker.store.procedure import Procedure

KNOWN, UNKNOWN, MISSED = "known", "unknown", "missed"

_TRIES = 3
"""A message may go to another consumer while it is looked for; not so often."""


class FeedbackVerb:
    """The verb; see the module's first lines."""

    def __init__(self, queues: GatewayQueues, calls: SkmqCalls) -> None:
        self._queues = queues
        self._calls = calls

    def begin(
        self, feedback: str, msgid: str, speaker: Sequence[Any], rules: Sequence[int], asker: str
    ) -> Procedure[str]:
        """Look for the message, or for the copy of a topic that the speaker got; carry the feedback out."""
        key, host, apps = speaker
        for _ in range(_TRIES):
            field, entry = yield from self._find(msgid, key, host)
            if entry is None or not (apps is None or matches(tuple(apps), app_of_queue(entry.queue))):
                return UNKNOWN
            if feedback == ARRIVED or is_topic(entry.id):
                return KNOWN
            delivery = yield from self._held(entry)
            if delivery is not None and entry.consumer == asker:
                return MISSED
            if (yield from self._settle(feedback, entry, delivery, RetryRules(*rules))):
                if feedback != REJECT:
                    yield self._calls.forget([(field, entry.id)])
                return KNOWN
            if not (yield from self._lives(entry, field, msgid)):
                yield self._calls.forget([(field, entry.id)])
                return UNKNOWN
        return MISSED

    def _find(self, msgid: str, key: str, host: str) -> Procedure[tuple[str, IndexEntry | None]]:
        """The message by its msgid; of a topic the copy of that recipient, or of the one at that host."""
        [entry] = yield self._calls.find([msgid])
        if entry is None or not is_topic(entry.id):
            return msgid, entry
        calls = self._calls.of_queue(entry.queue)
        keys = [key] if key else (yield from self._keys_at(calls, host))
        if not keys:
            return msgid, entry
        fields = [copy_field(msgid, each) for each in keys]
        copies: list[IndexEntry | None] = yield self._calls.find(fields)
        pushed = [(copy.fence, field, copy) for field, copy in zip(fields, copies, strict=True) if copy]
        if not pushed:
            return msgid, None if key else entry
        _, field, oldest = min(pushed, key=lambda each: each[0])
        return field, oldest

    def _keys_at(self, calls: SkmqQueueCalls, host: str) -> Procedure[list[str]]:
        recipients: list[tuple[Addressee, bool, int]] = yield calls.recipients()
        return [addressee.key for addressee, _, _ in recipients if addressee.host == host]

    def _settle(
        self, feedback: str, entry: IndexEntry, delivery: Delivery | None, rules: RetryRules
    ) -> Procedure[bool]:
        work = self._queues[entry.queue]
        if delivery is not None:
            settlement = settlement_of(feedback, delivery, rules)
            lost: list[Settlement] = yield work.calls.settle([settlement], entry.consumer)
            if not lost:
                return True
        if feedback != ACK:
            return delivery is None  # it waits for its next attempt already
        is_out: bool = yield from work.cancel(MessageId(entry.id))
        return is_out

    def _held(self, entry: IndexEntry) -> Procedure[Delivery | None]:
        if entry.consumer is None:
            return None
        calls = self._calls.of_queue(entry.queue)
        header: bytes = yield calls.peek(ConsumerName(entry.consumer), entry.fence)
        try:
            return decode_record(header, entry.fence) if header else None
        except InvalidMessage:
            return None

    def _lives(self, entry: IndexEntry, field: str, msgid: str) -> Procedure[bool]:
        """One look at its guard: who looks through all places misses a message that moves between them."""
        message = MessageId(entry.id)
        guard = guard_of_message(msgid) if field == msgid else guard_of_copy(message)
        holder: str = yield self._calls.of_queue(entry.queue).holder(guard.key)
        return holder == message
