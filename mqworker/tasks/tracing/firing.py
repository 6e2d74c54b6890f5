"""The firing of a schedule as a span: `send`, by the broker, with the context of which its runs are found.

Its ids are made of the tick. So two brokers that fire the same tick give its message the same context, and
whichever of them stored it writes the span.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from mqworker.model.clock import epoch_ns
from mqworker.model.envelope import with_headers
from mqworker.model.message import Message
from mqworker.model.run_span import SYSTEM
from mqworker.model.telemetry import APPLICATION_SPAN, Entry
from mqworker.model.trace_context import Sampling, TraceContext

_PRODUCER = 3  # SpanKind of the SDK
_UNSET = 0


class FiringTracer:
    """The spans of what one broker fired, until they are taken."""

    def __init__(self, sampling: Sampling) -> None:
        self._sampling = sampling
        self._fired: list[Entry] = []

    def mark(self, message: Message) -> Message:
        """Give the message of a tick its context, if its runs are recorded."""
        if self._sampling.takes(message.id):
            message.body = with_headers(message.body, _context(message).headers())
        return message

    def note(self, schedule: str, queue: str, messages: Sequence[Message], start_ns: int) -> None:
        """These were stored; `start_ns` is when that began."""
        recorded = [each for each in messages if self._sampling.takes(each.id)]
        self._fired += [_entry(schedule, queue, each, start_ns) for each in recorded]

    def take(self) -> list[Entry]:
        """For the exporter; each once."""
        fired, self._fired = self._fired, []
        return fired


def _context(message: Message) -> TraceContext:
    digest = hashlib.blake2b(f"fired {message.id}".encode(), digest_size=24).digest()
    return TraceContext(int.from_bytes(digest[:16]) or 1, int.from_bytes(digest[16:]) or 1)


def _entry(schedule: str, queue: str, message: Message, start_ns: int) -> Entry:
    attributes = {
        "messaging.system": SYSTEM,
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": queue,
        "messaging.message.id": message.id,
        "mqworker.task": message.task,
        "mqworker.schedule": schedule,
    }
    times = [start_ns, max(start_ns, epoch_ns())]
    own = _context(message).traceparent
    scope = [SYSTEM, ""]
    return [
        APPLICATION_SPAN,
        f"send {queue}",
        own,
        "",
        _PRODUCER,
        *times,
        attributes,
        [],
        [],
        [_UNSET, ""],
        scope,
    ]
