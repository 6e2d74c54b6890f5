"""Sending as spans: `send` around what is stored, `create` for what is stored later, in a batch.

They are made by the OpenTelemetry API, so that they belong to the trace of whoever sends: a web request, a
task. Their context goes along in the headers of the message, if they are recorded, and nothing otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from mqworker.errors import ConfigurationError
from mqworker.model.names import MessageId
from mqworker.model.run_span import SYSTEM
from mqworker.model.trace_context import TraceContext

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

NO_HEADERS: Mapping[str, str] = {}
MISSING = "tracing is on (the setting otel): the package {name} is missing; pip install 'mqworker[otel]'"

CountSent = Callable[[str, str, int], None]
"""Told of a queue, an error ("" for none) and how many messages were sent."""


class SendTracer:
    """Makes spans of what this process sends."""

    def __init__(
        self, count_sent: CountSent | None = None, *, creates: bool = False, tracer: Tracer | None = None
    ) -> None:
        """Without a `tracer` that of the application is used; without `count_sent` its meter counts.

        `creates` is whether each message of a batch has a span of its own.
        """
        self.creates = creates
        try:
            from opentelemetry import trace  # noqa: PLC0415 - only where tracing is on
        except ImportError as error:
            raise ConfigurationError(MISSING.format(name=error.name)) from error
        self._tracer = tracer or trace.get_tracer(SYSTEM)
        self._producer, self._client = trace.SpanKind.PRODUCER, trace.SpanKind.CLIENT
        self._error = trace.StatusCode.ERROR
        self._count_sent = count_sent or _meter_of_application()

    @contextmanager
    def sending(
        self, queue: str, task: str = "", *, count: int | None = None, workflow: str = ""
    ) -> Iterator[Sending]:
        """Around the sending of a message, or of a batch of `count`.

        A batch whose messages have spans of their own is sent by a client: its context does not travel.
        """
        kind = self._client if count is not None and self.creates else self._producer
        attributes = _attributes("send", queue, task)
        if count is not None:
            attributes["messaging.batch.message_count"] = count
        if workflow:
            attributes["messaging.message.conversation_id"] = workflow
        error = ""
        try:
            with self._tracer.start_as_current_span(
                f"send {queue}", kind=kind, attributes=attributes, set_status_on_exception=False
            ) as span:
                try:
                    yield Sending(span)
                except BaseException as raised:
                    error = type(raised).__qualname__
                    span.set_attribute("error.type", error)
                    span.set_status(self._error, error)
                    raise
        finally:
            self._count_sent(queue, error, 1 if count is None else count)

    def created(self, queue: str, task: str, message: MessageId | None = None) -> Mapping[str, str]:
        """A message was made and is sent later, with others: its headers."""
        attributes = _attributes("create", queue, task)
        if message is not None:
            attributes["messaging.message.id"] = message
        span = self._tracer.start_span(f"create {queue}", kind=self._producer, attributes=attributes)
        span.end()
        return headers_of(span)

    def count_sent(self, queue: str, count: int, error: str = "") -> None:
        """Messages that were created before were sent."""
        self._count_sent(queue, error, count)


class Sending:
    """A message under way."""

    def __init__(self, span: Span) -> None:
        self._span = span
        self.headers = headers_of(span)

    def stored_as(self, message: MessageId) -> None:
        """The id that it was given."""
        self._span.set_attribute("messaging.message.id", message)


def headers_of(span: Span) -> Mapping[str, str]:
    """What a message carries of a span; nothing of one that is not recorded."""
    context = span.get_span_context()
    if not context.is_valid or not context.trace_flags.sampled:
        return NO_HEADERS
    return TraceContext(context.trace_id, context.span_id, state=context.trace_state.to_header()).headers()


# Any: the values of attributes, texts and numbers.
def _attributes(operation: str, queue: str, task: str) -> dict[str, Any]:
    attributes: dict[str, Any] = {
        "messaging.system": SYSTEM,
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": queue,
    }
    if task:
        attributes["mqworker.task"] = task
    return attributes


def _meter_of_application() -> CountSent:
    from opentelemetry import metrics  # noqa: PLC0415 - only where tracing is on

    sent = metrics.get_meter(SYSTEM).create_counter(
        "messaging.client.sent.messages", unit="{message}", description="Messages that were sent."
    )

    def count(queue: str, error: str, count: int) -> None:
        attributes = {
            "messaging.system": SYSTEM,
            "messaging.operation.name": "send",
            "messaging.destination.name": queue,
        }
        sent.add(count, attributes | ({"error.type": error} if error else {}))

    return count
