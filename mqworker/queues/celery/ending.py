"""How a delivery ends for Celery: what is written beside its settlement. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from mqworker.errors import InvalidMessage
from mqworker.model.delivery import Delivery
from mqworker.model.message import NO_TASK
from mqworker.model.settlement import Ack, Bury, Failure, RetryAt, Settlement
from mqworker.model.value_codec import PACKED_NONE, unpack
from mqworker.queues.celery.calls import Ended
from mqworker.queues.celery.keys import CeleryKeys
from mqworker.queues.celery.message import CeleryMessage, known_id, own_id
from mqworker.queues.celery.outgoing import (
    FAILURE,
    RETRY,
    REVOKED,
    SUCCESS,
    FollowingMessages,
    ResultPlace,
    Write,
    failure_value,
)
from mqworker.queues.celery.values import to_kombu
from mqworker.store.exchange import UNREADABLE

EXPIRED = Failure("TaskRevokedError", "expired")


@dataclass(frozen=True, slots=True)
class Endings:
    """What a queue writes; `results` is None where it writes no results."""

    keys: CeleryKeys
    results: ResultPlace | None

    def ended(self, settlement: Settlement, message: CeleryMessage | None, now_ms: int) -> Ended:
        """A settlement with its writes; without the message nothing but the settlement."""
        if message is None:
            return Ended(settlement, dead_id=_dead_id(settlement))
        match settlement:
            case Ack(delivery, result):
                try:
                    value = to_kombu(unpack(result or PACKED_NONE))
                except (TypeError, InvalidMessage) as error:
                    failure = Failure("InvalidResult", f"the result cannot be written for Celery: {error}")
                    return self.ended(Bury(delivery, "result_not_accepted", failure), message, now_ms)
                return Ended(settlement, self._after_success(message, value, now_ms))
            case RetryAt(_, _, Failure() as failure):
                return Ended(settlement, self._result(message, RETRY, failure_value(failure), now_ms))
            case Bury(reason=reason, failure=told):
                told = Failure("TaskFailed", reason) if told is None else told
                return Ended(settlement, self._after_failure(message, told, now_ms), _dead_id(settlement))
        return Ended(settlement)

    def check(self, message: CeleryMessage, now_ms: int) -> None:
        """Make what follows once before the task runs; raises `InvalidMessage` where that fails."""
        following = FollowingMessages(self.keys, message, now_ms)
        try:
            for _ in (*following.after_success(None), *following.after_failure()):
                pass
        except UNREADABLE as error:
            raise InvalidMessage(f"what is to follow the task cannot be sent: {error}") from error

    def expired(self, delivery: Delivery, message: CeleryMessage, now_ms: int) -> Ended:
        """Too late to begin: dropped, and told to be revoked, as Celery's workers do it."""
        value = {**failure_value(EXPIRED), "exc_module": "celery.exceptions"}
        return Ended(Ack(delivery), self._result(message, REVOKED, value, now_ms))

    def refused(self, settlement: Bury, raw: bytes, failure: Failure, now_ms: int) -> Ended:
        """Kept as a dead letter; whoever waits for it hears why."""
        task_id = known_id(raw)
        if task_id is None:
            return Ended(settlement, dead_id=_dead_id(settlement))
        unread = CeleryMessage(task_id, task=NO_TASK, body=b"")
        writes = self._result(unread, FAILURE, failure_value(failure), now_ms)
        return Ended(settlement, writes, own_id(task_id))

    def _after_success(self, message: CeleryMessage, value: object, now_ms: int) -> list[Write]:
        following = FollowingMessages(self.keys, message, now_ms)
        pushed = list(following.after_success(value))
        return [*pushed, *self._result(message, SUCCESS, value, now_ms, children=following.ids)]

    def _after_failure(self, message: CeleryMessage, failure: Failure, now_ms: int) -> list[Write]:
        following = FollowingMessages(self.keys, message, now_ms)
        trace, value = failure.traceback or None, failure_value(failure)
        writes = [*following.after_failure(), *self._result(message, FAILURE, value, now_ms, trace=trace)]
        for each in message.chain:
            task_id = (each.get("options") or {}).get("task_id")
            if isinstance(task_id, str) and task_id:
                one = replace(message, task_id=task_id, parent_id=None, ignores_result=False)
                writes += self._result(one, FAILURE, value, now_ms, trace=trace)
        return writes

    def _result(
        self,
        message: CeleryMessage,
        status: str,
        value: object,
        now_ms: int,
        *,
        trace: str | None = None,
        children: Sequence[str] = (),
    ) -> list[Write]:
        if self.results is None or message.ignores_result:
            return []
        return [self.results.write(message, status, value, now_ms, trace=trace, children=children)]


def _dead_id(settlement: Settlement) -> str:
    """By which it is found again: its own id, or its fence where it has none."""
    delivery = settlement.delivery
    return delivery.id if isinstance(delivery, Delivery) else f"fence-{delivery.fence}"
