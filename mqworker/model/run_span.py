"""The span of a run: what is known of one delivery that was run, as plain values for the exporter.

The names are those of OpenTelemetry's messaging convention, as of its version 1.44.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from mqworker.model.delivery import Delivery
from mqworker.model.envelope import Envelope
from mqworker.model.settlement import (
    Ack,
    Bury,
    Crash,
    Failure,
    Park,
    Release,
    RetryAt,
    Settlement,
    Suspect,
)
from mqworker.model.trace_context import Relation, TraceContext, context_in, context_of_run

SYSTEM = "mqworker"
WORKER_CRASHED = "WorkerCrashed"

_OUTCOME_BY_KIND: dict[type[Settlement], str] = {
    Ack: "succeeded",
    RetryAt: "retried",
    Bury: "buried",
    Crash: "crashed",
    Suspect: "crashed",
    Release: "released",
    Park: "parked",
}
_NO_FAILURE = Failure("")
_NS_PER_MS = 1_000_000


@dataclass(slots=True)
class RunSpan:
    """One run of a delivery, begun and ended; treat it as read-only."""

    queue: str
    id: str
    task: str
    fence: int
    attempt: int
    enqueued_at_ms: int
    start_ns: int
    end_ns: int
    worker: str
    node: str
    outcome: str
    error: str = ""
    message: str = ""
    traceback: str = ""
    workflow: str = ""
    sender: TraceContext | None = None
    """Whoever sent the message."""

    def context(self, relation: Relation) -> TraceContext:
        """Its ids."""
        return context_of_run(self.queue, self.id, self.fence, self.sender, relation)

    def as_parts(self) -> list[Any]:  # Any: texts and numbers, as they stand in a mail
        """Plain values; the context as its headers, for its ids are longer than numbers in a mail may be."""
        sender = {} if self.sender is None else self.sender.headers()
        return [getattr(self, name) for name in _PLAIN] + [sender]

    # Any: what stands on the span, texts and numbers.
    def attributes(self) -> dict[str, Any]:
        """By the convention; and some of our own, which begin with our name."""
        known: dict[str, Any] = {
            "messaging.system": SYSTEM,
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "messaging.destination.name": self.queue,
            "messaging.message.id": self.id,
            "messaging.client.id": f"{self.node}/{self.worker}",
            "mqworker.task": self.task,
            "mqworker.attempt": self.attempt,
            "mqworker.fence": self.fence,
            "mqworker.wait_ms": max(0, self.start_ns // _NS_PER_MS - self.enqueued_at_ms),
            "mqworker.outcome": self.outcome,
        }
        if self.workflow:
            known["messaging.message.conversation_id"] = self.workflow
        if self.error:
            known["error.type"] = self.error
        return known


_PLAIN = tuple(each.name for each in fields(RunSpan))[:-1]


def run_span_of(parts: list[Any]) -> RunSpan:
    """The span in plain values."""
    *values, sender = parts
    span = RunSpan(*values)
    span.sender = context_in(sender)
    return span


def outcome_of(settlement: Settlement) -> tuple[str, Failure]:
    """What became of a run, in one word, and what went wrong."""
    failure = settlement.failure if isinstance(settlement, RetryAt | Bury | Park) else None
    if isinstance(settlement, Bury) and failure is None:
        failure = Failure(settlement.reason)
    return _OUTCOME_BY_KIND[type(settlement)], failure or _NO_FAILURE


def lost_run_span(
    delivery: Delivery,
    queue: str,
    call: Envelope,
    *,
    outcome: str,
    error: str,
    cause: str,
    began_at_ms: int,
    ended_at_ms: int,
    worker: str,
    node: str,
) -> RunSpan:
    """The span of a run whose worker was killed, written by somebody else."""
    return RunSpan(
        queue,
        delivery.id,
        delivery.task,
        delivery.fence,
        delivery.attempt,
        delivery.enqueued_at_ms,
        min(began_at_ms, ended_at_ms) * _NS_PER_MS,
        ended_at_ms * _NS_PER_MS,
        worker,
        node,
        outcome,
        error=error or WORKER_CRASHED,
        message=cause,
        workflow=call.workflow or "",
        sender=context_in(call.headers),
    )
