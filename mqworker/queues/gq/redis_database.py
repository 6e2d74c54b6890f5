"""gq on Redis: every statement is one script, on the server's clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from mqworker.errors import InvalidArgument
from mqworker.model.names import DEFAULT_NAMESPACE, queue_name, shown
from mqworker.queues.gq.calls import FROM_THE_START, GqCalls
from mqworker.queues.gq.database import GqOutgoing
from mqworker.queues.gq.rules import (
    GqClaim,
    GqConsumerRecord,
    GqHeld,
    GqLiveness,
    GqMessage,
    GqRecord,
    GqResult,
    GqStatus,
    GqTerms,
    GqView,
)
from mqworker.store.exchange import LanePool
from mqworker.store.procedure import Commands, Procedure
from mqworker.store.store import Store


class GqRedis:
    """The statements of gq on one queue in Redis. Safe between threads."""

    def __init__(self, name: str, store: Store, *, namespace: str = DEFAULT_NAMESPACE) -> None:
        self._store = store
        self._calls = GqCalls(namespace, queue_name(name))
        self._lanes = LanePool()
        self.owns_store = False
        """Whether `close` closes the store."""

    def prepare_push(self, messages: Sequence[GqOutgoing]) -> Callable[[], list[int]]:
        """A push in a lane of its own until it is answered: sent again, it is recognised."""
        lane = self._lanes.take()
        call = self._calls.push(lane.next_call(), messages)

        def push() -> list[int]:
            ids = self._store.run(call)
            self._lanes.give_back(lane)
            return ids

        return push

    def push_within(self, connection: object, messages: Sequence[GqOutgoing]) -> list[int]:
        """Refused: Redis takes no part in a transaction of a SQL database."""
        raise InvalidArgument(
            f"connection is {shown(connection)} for {len(messages)} messages; accepted by gq on SQL only"
        )

    def register(self, consumer: str) -> None:
        """Put a consumer at the end of the order of birth."""
        self._store.run(self._calls.register(consumer))

    def beat(self, consumer: str, liveness: GqLiveness) -> bool:
        """A sign of life; False when the consumer was given up before."""
        return self._store.run(self._calls.beat(consumer, liveness))

    def prune(self, liveness: GqLiveness, terms: GqTerms) -> list[str]:
        """Delete dead consumers, fail what expired, drop what was kept long enough; who was deleted."""
        return self._store.run(self._calls.prune(liveness, terms))

    def leave(self, consumer: str) -> None:
        """Delete a consumer's record."""
        self._store.run(self._calls.leave(consumer))

    def view(self, consumer: str, liveness: GqLiveness) -> GqView:
        """The consumer's place among the active."""
        return self._store.run(self._calls.view(consumer, liveness))

    def pop(self, claim: GqClaim, count: int, liveness: GqLiveness, terms: GqTerms) -> list[GqMessage]:
        """Select and claim in one step; several while there are only messages of others to pass over."""
        go_on, messages = FROM_THE_START, list[GqMessage]()
        while go_on and not messages:
            go_on, messages = self._store.run(self._calls.pop(claim, count, liveness, terms, go_on))
        return messages

    def select(self, view: GqView, count: int, terms: GqTerms) -> list[int]:
        """Ids that a consumer with this view would claim."""
        go_on, ids = FROM_THE_START, list[int]()
        while go_on and not ids:
            go_on, ids = self._store.run(self._calls.select(view, count, terms, go_on))
        return ids

    def claim(
        self, claim: GqClaim, ids: Sequence[int], liveness: GqLiveness, terms: GqTerms
    ) -> list[GqMessage]:
        """Take those that nobody took meanwhile."""
        return self._store.run(self._calls.claim(claim, ids, liveness, terms))

    def adopt(self, claim: GqClaim, family: str, held: Sequence[GqHeld], liveness: GqLiveness) -> list[int]:
        """Take over what consumers of the same family of names hold; returns it."""
        return self._store.run(self._calls.adopt(claim, family, held, liveness))

    def retire(self, consumer: str, terms: GqTerms) -> None:
        """Delete the record of a consumer whose process ended."""
        self._store.run(self._calls.retire(consumer, terms))

    def settle(self, results: Sequence[GqResult], terms: GqTerms) -> list[int]:
        """Write results; the ids of messages that another consumer has by now."""
        return self._store.run(self._calls.settle(results, terms))

    def find(self, message: int) -> GqRecord | None:
        """A message as it is stored."""
        return self._store.follow(self._find(message))

    def counts(self) -> Mapping[GqStatus, int]:
        """How many messages are stored in each status."""
        return self._store.follow(self._count())

    def consumers(self) -> list[GqConsumerRecord]:
        """All records of consumers, in the order of birth."""
        return self._store.follow(self._list_consumers())

    def close(self) -> None:
        """Close the store that was opened for this queue; a store that was given stays the caller's."""
        if self.owns_store:
            self._store.close()

    def _find(self, message: int) -> Procedure[GqRecord | None]:
        keys = self._calls.keys
        commands = (("HGET", keys.named("records"), message), ("HGET", keys.named("payloads"), message))
        record, payload = yield Commands(commands, keys.shared[0])
        if record is None or payload is None:
            return None
        status, _, created, deadline, attempts, consumer, _, reason = record.decode().split(" ")
        return GqRecord(
            message,
            payload,
            GqStatus(status),
            int(created),
            None if deadline == "-" else int(deadline),
            int(attempts),
            None if consumer == "-" else consumer,
            "" if reason == "-" else reason,
        )

    def _count(self) -> Procedure[Mapping[GqStatus, int]]:
        keys = self._calls.keys
        commands = (
            ("ZCARD", keys.named("queued")),
            ("ZCARD", keys.named("owned")),
            ("HMGET", keys.named("meta"), GqStatus.PROCESSED, GqStatus.FAILED),
        )
        queued, consumed, ended = yield Commands(commands, keys.shared[0])
        numbers = (queued, consumed, *(int(number or 0) for number in ended))
        return dict(zip(GqStatus, numbers, strict=True))

    def _list_consumers(self) -> Procedure[list[GqConsumerRecord]]:
        keys = self._calls.keys
        commands = (
            ("ZRANGE", keys.named("births"), 0, -1),
            ("ZRANGE", keys.named("beats"), 0, -1, "WITHSCORES"),
        )
        names, beats = yield Commands(commands, keys.shared[0])
        beat_by_name = dict(zip(beats[::2], beats[1::2], strict=True))
        # The two reads are not one: somebody may have come or gone in between.
        return [
            GqConsumerRecord(name.decode(), int(float(beat_by_name[name])))
            for name in names
            if name in beat_by_name
        ]
