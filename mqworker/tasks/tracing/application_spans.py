"""Spans that the application makes while its tasks run: children of the run's span, reported with it.

A worker has no exporter: what an application's libraries record goes the way of the worker's own spans. An
application that set up a tracer provider of its own keeps it, and what it does with it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mqworker.errors import ConfigurationError
from mqworker.model.telemetry import Entry
from mqworker.model.trace_context import TraceContext
from mqworker.tasks.tracing.runs import Activate
from mqworker.tasks.tracing.sending import MISSING

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

LONGEST_TEXT = 8_192
MOST_ITEMS = 128


def import_sdk() -> None:
    """Import what workers need, in the supervisor: once for all of them, and before anything starts.

    Raises `ConfigurationError` where it is not installed.
    """
    try:
        importlib.import_module("opentelemetry.sdk.trace")
    except ImportError as error:
        raise ConfigurationError(MISSING.format(name=error.name)) from error


def activation() -> Activate:
    """Makes a run's span the current one of the OpenTelemetry API."""
    from opentelemetry import context as contexts  # noqa: PLC0415 - only where tracing is on
    from opentelemetry import trace  # noqa: PLC0415 - as above

    sampled = trace.TraceFlags(trace.TraceFlags.SAMPLED)

    def activate(context: TraceContext) -> Callable[[], None]:
        state = trace.TraceState.from_header([context.state]) if context.state else None
        span = trace.NonRecordingSpan(
            trace.SpanContext(
                context.trace_id, context.span_id, is_remote=False, trace_flags=sampled, trace_state=state
            )
        )
        token = contexts.attach(trace.set_span_in_context(span))
        return lambda: contexts.detach(token)

    return activate


def collect_application_spans(collect: Callable[[Entry], None]) -> None:
    """Give the application a tracer provider that reports to us, unless it has its own.

    It records what happens inside runs that are recorded, and nothing else.
    """
    try:
        from opentelemetry import trace  # noqa: PLC0415 - only where tracing is on
        from opentelemetry.sdk.trace import SpanProcessor, TracerProvider  # noqa: PLC0415 - as above
        from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased  # noqa: PLC0415 - as above
    except ImportError as error:
        raise ConfigurationError(MISSING.format(name=error.name)) from error

    class Collector(SpanProcessor):
        def on_end(self, span: ReadableSpan) -> None:
            collect(parts_of_span(span))

    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        provider = TracerProvider(sampler=ParentBased(ALWAYS_OFF), shutdown_on_exit=False)
        provider.add_span_processor(Collector())
        trace.set_tracer_provider(provider)


def parts_of_span(span: ReadableSpan) -> Entry:
    """A span of the SDK in plain values; actors/exporter/otlp.py makes a span of them again."""
    context, parent, scope = span.get_span_context(), span.parent, span.instrumentation_scope
    return [
        span.name[:LONGEST_TEXT],
        TraceContext(context.trace_id, context.span_id).traceparent if context else "",
        "" if parent is None else TraceContext(parent.trace_id, parent.span_id).traceparent,
        span.kind.value,
        span.start_time or 0,
        span.end_time or 0,
        _plain_map(span.attributes),
        [[event.name, event.timestamp, _plain_map(event.attributes)] for event in span.events[:MOST_ITEMS]],
        [
            [
                TraceContext(link.context.trace_id, link.context.span_id).traceparent,
                _plain_map(link.attributes),
            ]
            for link in span.links[:MOST_ITEMS]
        ],
        [span.status.status_code.value, (span.status.description or "")[:LONGEST_TEXT]],
        ["", ""] if scope is None else [scope.name, scope.version or ""],
    ]


# Any: attributes hold whatever the SDK let through.
def _plain_map(attributes: Any) -> dict[str, Any]:  # noqa: ANN401 - see above
    chosen = list((attributes or {}).items())[:MOST_ITEMS]
    return {str(name)[:LONGEST_TEXT]: _plain(value) for name, value in chosen}


def _plain(value: Any) -> Any:  # noqa: ANN401 - as above
    match value:
        case bool() | float():
            return value
        case int() if value.bit_length() < 64:  # noqa: PLR2004 - what a mail can hold
            return value
        case list() | tuple():
            return [_plain(each) for each in value[:MOST_ITEMS]]
        case _:
            return str(value)[:LONGEST_TEXT]
