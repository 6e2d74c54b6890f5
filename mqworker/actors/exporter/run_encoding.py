"""Runs as OTLP spans, in bytes: the ones of which there are many.

The SDK makes an object of each attribute, which takes six times as long as all else that the exporter does
for a span. A run that succeeded differs from the next one in a few numbers, and the rest of its bytes is kept
from one to the next. Runs with more to tell (an error, a sender) go by the SDK; a test compares both ways.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from struct import Struct

from mqworker.model.run_span import RunSpan
from mqworker.model.trace_context import context_of_run

_SPAN_KIND_CONSUMER = 5
# The bytes before a field: its number in the message, and how its value is written.
_TRACE_ID, _SPAN_ID, _NAME, _KIND = b"\x0a\x10", b"\x12\x08", b"\x2a", b"\x30"
_TIMES = Struct("<BQBQ")
_START, _END = 0x39, 0x41
_ATTRIBUTE, _KEY, _VALUE = b"\x4a", b"\x0a", b"\x12"
_TEXT, _WHOLE = b"\x0a", b"\x18"
_FLAGS = b"\x85\x01" + (0x100).to_bytes(4, "little")
"""It is known that there is no parent elsewhere."""
_RESOURCE_SPANS, _SCOPE_SPANS, _SPANS = b"\x0a", b"\x12", b"\x12"
_RESOURCE, _SCOPE = b"\x0a", b"\x0a"
_KINDS_KEPT = 1_000


def is_plain(span: RunSpan) -> bool:
    """Whether it is one of those that are encoded here."""
    return span.sender is None and not span.error and not span.workflow


def encoded_run(span: RunSpan) -> bytes:
    """A plain run as a `Span` of OTLP."""
    context = context_of_run(span.queue, span.id, span.fence, None, "link")
    wait_ms = max(0, span.start_ns // 1_000_000 - span.enqueued_at_ms)
    return b"".join(
        (
            _TRACE_ID,
            context.trace_id.to_bytes(16),
            _SPAN_ID,
            context.span_id.to_bytes(8),
            _TIMES.pack(_START, span.start_ns, _END, max(span.start_ns, span.end_ns)),
            _same_of(span.queue, span.task, span.outcome, f"{span.node}/{span.worker}"),
            _text("messaging.message.id", span.id),
            _whole("mqworker.attempt", span.attempt),
            _whole("mqworker.fence", span.fence),
            _whole("mqworker.wait_ms", wait_ms),
            _FLAGS,
        )
    )


def request_of(spans: Iterable[bytes], resource: bytes, scope: bytes) -> bytes:
    """An export request; several of them, one behind the other, are one."""
    in_scope = _sized(_SCOPE, scope) + b"".join(_sized(_SPANS, span) for span in spans)
    return _sized(_RESOURCE_SPANS, _sized(_RESOURCE, resource) + _sized(_SCOPE_SPANS, in_scope))


@lru_cache(_KINDS_KEPT)
def _same_of(queue: str, task: str, outcome: str, client: str) -> bytes:
    """What is the same for all runs of a task that ended like this in this worker."""
    known = RunSpan(queue, "", task, 0, 0, 0, 0, 0, "", "", outcome).attributes()
    texts = {name: value for name, value in known.items() if isinstance(value, str)}
    del texts["messaging.message.id"]
    texts["messaging.client.id"] = client
    return (
        _sized(_NAME, f"process {queue}".encode())
        + _KIND
        + _varint(_SPAN_KIND_CONSUMER)
        + b"".join(_text(name, value) for name, value in texts.items())
    )


def _text(name: str, value: str) -> bytes:
    return _attribute(name, _sized(_TEXT, value.encode()))


def _whole(name: str, value: int) -> bytes:
    return _attribute(name, _WHOLE + _varint(value))


def _attribute(name: str, value: bytes) -> bytes:
    return _sized(_ATTRIBUTE, _key(name) + _sized(_VALUE, value))


@lru_cache(_KINDS_KEPT)
def _key(name: str) -> bytes:
    return _sized(_KEY, name.encode())


def _sized(field: bytes, value: bytes) -> bytes:
    return field + _varint(len(value)) + value


def _varint(number: int) -> bytes:
    if number < 0x80:  # noqa: PLR2004 - one byte: nearly all of them
        return _ONE_BYTE[number]
    found = bytearray()
    while number >= 0x80:  # noqa: PLR2004 - as above
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


_ONE_BYTE = [bytes([number]) for number in range(0x80)]
