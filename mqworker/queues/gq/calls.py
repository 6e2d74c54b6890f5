"""gq on Redis as calls: arguments in the order of each script's contract, replies turned into values."""

from __future__ import annotations

from collections.abc import Sequence

from mqworker.model.instant import as_argument
from mqworker.model.names import QueueName
from mqworker.queues.gq.database import GqNotRegistered, GqOutgoing
from mqworker.queues.gq.keys import GqKeys
from mqworker.queues.gq.rules import (
    DELIVERIES_TOLD_APART,
    GqClaim,
    GqHeld,
    GqLiveness,
    GqMessage,
    GqResult,
    GqTerms,
    GqView,
)
from mqworker.store.script import Call, RawReply, scripts_of

script = scripts_of(__package__)

Argument = str | bytes | int
FROM_THE_START = "0"


class GqCalls:
    """Builds calls for one queue; pure."""

    def __init__(self, namespace: str, queue: QueueName) -> None:
        self.keys = GqKeys.of(namespace, queue)

    def push(self, numbering: tuple[str, int], messages: Sequence[GqOutgoing]) -> Call[list[int]]:
        """Append a batch. Numbered by the caller, who may run the same call again much later."""
        arguments: list[Argument] = [*numbering]
        for message in messages:
            arguments += (as_argument(message.deadline), message.payload)
        return Call(
            script("push"),
            self.keys.shared,
            tuple(arguments),
            lambda first: list(range(first, first + len(messages))),
        )

    def register(self, consumer: str) -> Call[int]:
        """Put a consumer at the end of the order of birth."""
        return Call(script("register"), self.keys.shared, (consumer,), int)

    def beat(self, consumer: str, liveness: GqLiveness) -> Call[bool]:
        """A sign of life."""
        return Call(script("beat"), self.keys.shared, (consumer, liveness.dead_after_ms), bool)

    def leave(self, consumer: str) -> Call[int]:
        """Delete a record."""
        return Call(script("leave"), self.keys.shared, (consumer,), int)

    def view(self, consumer: str, liveness: GqLiveness) -> Call[GqView]:
        """A consumer's place among the active."""
        return Call(
            script("view"),
            self.keys.shared,
            (consumer, liveness.dead_after_ms),
            lambda reply: GqView(*_registered(reply or b"", consumer)),
        )

    def prune(self, liveness: GqLiveness, terms: GqTerms) -> Call[list[str]]:
        """Delete dead consumers and do what is due."""
        arguments = (
            liveness.dead_after_ms,
            "reclaim" if terms.reclaim_dead else "leave",
            terms.guarantee,
            _retries(terms),
            terms.retention.ms,
            terms.retention.count,
        )
        return Call(
            script("prune"), self.keys.shared, arguments, lambda reply: [name.decode() for name in reply]
        )

    def pop(
        self, claim: GqClaim, count: int, liveness: GqLiveness, terms: GqTerms, start: str
    ) -> Call[tuple[str, list[GqMessage]]]:
        """Select and claim; where to go on when nothing was found so far."""
        arguments = (
            claim.consumer,
            claim.number,
            count,
            liveness.dead_after_ms,
            terms.guarantee,
            _retries(terms),
            "" if terms.steal_after_ms is None else terms.steal_after_ms,
            start,
        )

        def decode(reply: RawReply) -> tuple[str, list[GqMessage]]:
            go_on, messages = _registered(reply, claim.consumer)
            return go_on.decode(), _messages(messages, claim)

        return Call(script("pop"), self.keys.shared, arguments, decode)

    def select(self, view: GqView, count: int, terms: GqTerms, start: str) -> Call[tuple[str, list[int]]]:
        """Ids for a view; where to go on when nothing was found so far."""
        arguments = (view.index, view.count, count, terms.guarantee, start)
        return Call(
            script("select"),
            self.keys.shared,
            arguments,
            lambda reply: (reply[0].decode(), [int(id_) for id_ in reply[1]]),
        )

    def claim(
        self, claim: GqClaim, ids: Sequence[int], liveness: GqLiveness, terms: GqTerms
    ) -> Call[list[GqMessage]]:
        """Take selected messages."""
        arguments = (
            *(claim.consumer, claim.number, terms.guarantee, _retries(terms), liveness.dead_after_ms),
            *ids,
        )
        return Call(
            script("claim"),
            self.keys.shared,
            arguments,
            lambda reply: _messages(_registered(reply, claim.consumer), claim),
        )

    def adopt(
        self, claim: GqClaim, family: str, held: Sequence[GqHeld], liveness: GqLiveness
    ) -> Call[list[int]]:
        """Take over what others of a node hold; the ids of what is the consumer's now."""
        arguments: list[Argument] = [claim.consumer, claim.number, family]
        arguments += [liveness.dead_after_ms, DELIVERIES_TOLD_APART]
        for each in held:
            arguments += (each.id, each.delivery)
        return Call(
            script("adopt"),
            self.keys.shared,
            tuple(arguments),
            lambda reply: [int(id_) for id_ in _registered(reply, claim.consumer)],
        )

    def retire(self, consumer: str, terms: GqTerms) -> Call[int]:
        """Delete the record of a consumer whose process ended."""
        fate = "reclaim" if terms.reclaim_dead else "leave"
        return Call(script("retire"), self.keys.shared, (consumer, fate, _retries(terms)), int)

    def settle(self, results: Sequence[GqResult], terms: GqTerms) -> Call[list[int]]:
        """Write results; lost ids."""
        arguments: list[Argument] = [
            "fail" if terms.error_fails_expired else "retry",
            _retries(terms),
            terms.retention.ms,
            terms.retention.count,
        ]
        for result in results:
            claim = result.message.claim
            verdict = "ok" if result.is_ok else "error"
            arguments += (result.message.id, claim.consumer, claim.number, verdict)
        return Call(
            script("settle"),
            self.keys.shared,
            tuple(arguments),
            lambda reply: [int(id_) for id_ in reply],
            is_numbered=True,
        )


def _retries(terms: GqTerms) -> str | int:
    return "" if terms.max_retries is None else terms.max_retries


def _registered(reply: RawReply, consumer: str) -> RawReply:
    """Scripts answer a consumer that may not pop with a word, and others with a list."""
    if isinstance(reply, bytes):
        raise GqNotRegistered(f"consumer {consumer} was given up after too long a silence")
    return reply


def _messages(reply: RawReply, claim: GqClaim) -> list[GqMessage]:
    return [
        GqMessage(int(id_), payload, int(attempt), int(created), int(deadline) if deadline else None, claim)
        for id_, payload, attempt, created, deadline in reply
    ]
