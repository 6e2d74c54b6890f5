"""OTLP: spans and metrics as the OpenTelemetry SDK has them, and the exporters that send them.

Where they go, and with which headers and certificates, the exporters read from the OTEL_* variables.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from mqworker.actors.exporter.outbox import Outbox
from mqworker.actors.exporter.run_encoding import encoded_run, is_plain, request_of
from mqworker.errors import ConfigurationError
from mqworker.model.run_span import SYSTEM, RunSpan
from mqworker.model.telemetry import Entry, RunKind
from mqworker.model.trace_context import Relation, TraceContext, context_in
from mqworker.redaction import masked_text, masked_traceback
from mqworker.settings import OtelEnvironment

try:
    from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import Event, ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags, TraceState

    from mqworker.actors.exporter.otlp_metrics import Metrics, MetricsThread
except ImportError as error:
    raise ConfigurationError(
        f"tracing is on (the setting otel): the package {error.name} is missing; pip install 'mqworker[otel]'"
    ) from error

_SCOPE = InstrumentationScope(SYSTEM)
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)


class OtlpCollector:
    """A collector that is reached by OTLP over HTTP."""

    def __init__(
        self,
        relation: Relation,
        *,
        node: str,
        environment: OtelEnvironment | None = None,
        exporter: SpanExporter | None = None,
        outbox: Callable[..., Outbox[bytes | ReadableSpan]] = Outbox,
    ) -> None:
        environment = environment or OtelEnvironment()
        # We say ourselves what goes wrong, once and not with every batch.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
        self._relation = relation
        self._resource = Resource.create({"service.instance.id": node})
        self._exporter = exporter or OTLPSpanExporter()
        self._post_bytes = way_for_bytes(self._exporter)
        self._origin = packed_origin(self._resource)
        self._has_traces = environment.has_traces
        self._spans = outbox(self._send, name="spans")
        self._metrics = Metrics(self._resource)
        self._metrics_thread = (
            MetricsThread(self._metrics, OTLPMetricExporter(), every_s=environment.metrics_every_s)
            if environment.has_metrics
            else None
        )

    def add_run(self, span: RunSpan) -> None:
        """The span of a run."""
        if not self._has_traces:
            return
        if self._post_bytes is not None and is_plain(span):
            self._spans.add(encoded_run(span))
        else:
            self._spans.add(readable_run(span, self._relation, self._resource))

    def add_application_span(self, parts: Entry) -> None:
        """A span that the application made."""
        span = readable_application_span(parts, self._resource) if self._has_traces else None
        if span is not None:
            self._spans.add(span)

    def add_run_times(self, kind: RunKind, counts: list[int], total_s: float) -> None:
        """How long runs took."""
        self._metrics.add_run_times(kind, counts, total_s)

    def add_sent(self, queue: str, error: str, count: int) -> None:
        """How many messages tasks sent."""
        self._metrics.add_sent(queue, error, count)

    def end(self) -> None:
        """Send what is there, now."""
        self._spans.end()
        if self._metrics_thread is not None:
            self._metrics_thread.end()

    @property
    def is_over(self) -> bool:
        """Whether everything was sent, or given up."""
        return self._spans.is_over and (self._metrics_thread is None or self._metrics_thread.is_over)

    def facts(self) -> dict[str, Any]:  # Any: plain values
        """How it goes."""
        return {
            "exported": self._spans.sent,
            "dropped": self._spans.dropped,
            "waiting": len(self._spans),
            "trouble": self._spans.trouble or (self._metrics_thread and self._metrics_thread.trouble),
        }

    def _send(self, batch: Sequence[bytes | ReadableSpan]) -> str | None:
        # Broad: whatever a library raises over an answer that it cannot read, the next batch is tried.
        try:
            is_sent = self._is_sent(batch)
        except Exception as error:  # noqa: BLE001 - see above
            return masked_text(f"{type(error).__name__}: {error}")
        return None if is_sent else "the collector does not take it, or is away"

    def _is_sent(self, batch: Sequence[bytes | ReadableSpan]) -> bool:
        plain = [span for span in batch if isinstance(span, bytes)]
        others = [span for span in batch if not isinstance(span, bytes)]
        if not plain or self._post_bytes is None:
            return self._exporter.export(others) is SpanExportResult.SUCCESS
        request = request_of(plain, *self._origin)
        if others:
            request += encode_spans(others).SerializeToString()
        return bool(self._post_bytes(request).success)


def packed_origin(resource: Resource) -> tuple[bytes, bytes]:
    """The resource and the scope of all our spans, as the SDK packs them."""
    any_run = RunSpan("", "", "", 0, 0, 0, 0, 0, "", "", "")
    (packed,) = encode_spans([readable_run(any_run, "link", resource)]).resource_spans
    return packed.resource.SerializeToString(), packed.scope_spans[0].scope.SerializeToString()


# Any: an object of the SDK that says whether it worked.
def way_for_bytes(exporter: SpanExporter) -> Callable[[bytes], Any] | None:
    """How an exporter posts a request that is encoded already; None where it has no such way.

    It is no part of the exporter's interface: where it is missing, spans go by `export`.
    """
    way = getattr(getattr(exporter, "_client", None), "export", None)
    return way if callable(way) else None


def readable_run(span: RunSpan, relation: Relation, resource: Resource) -> ReadableSpan:
    """The span of a run as the SDK has it."""
    context, sender = span.context(relation), span.sender
    is_child = relation == "parent" and sender is not None
    links = [Link(_span_context(sender))] if sender is not None and not is_child else []
    message = masked_text(span.message)
    status = Status(StatusCode.ERROR, message or span.error) if span.error else Status(StatusCode.UNSET)
    events = []
    if span.error:
        facts = {"exception.type": span.error, "exception.message": message}
        if span.traceback:
            facts["exception.stacktrace"] = masked_traceback(span.traceback)
        events = [Event("exception", facts, timestamp=span.end_ns)]
    return ReadableSpan(
        f"process {span.queue}",
        context=_span_context(context, is_remote=False),
        parent=_span_context(sender) if sender is not None and is_child else None,
        resource=resource,
        attributes=span.attributes(),
        events=events,
        links=links,
        kind=SpanKind.CONSUMER,
        status=status,
        start_time=span.start_ns,
        end_time=max(span.start_ns, span.end_ns),
        instrumentation_scope=_SCOPE,
    )


def readable_application_span(parts: Entry, resource: Resource) -> ReadableSpan | None:
    """What tasks/tracing/application_spans.py took apart, together again."""
    name, own, parent, kind, start_ns, end_ns, attributes, events, links, status, scope = parts
    context = context_in({"traceparent": own})
    if context is None:
        return None
    parent_context = context_in({"traceparent": parent})
    linked = [(context_in({"traceparent": text}), facts) for text, facts in links]
    return ReadableSpan(
        name,
        context=_span_context(context, is_remote=False),
        parent=None if parent_context is None else _span_context(parent_context, is_remote=False),
        resource=resource,
        attributes=attributes,
        events=[Event(title, facts, timestamp=at_ns) for title, at_ns, facts in events],
        links=[Link(_span_context(each), facts) for each, facts in linked if each is not None],
        kind=SpanKind(kind),
        status=Status(StatusCode(status[0]), status[1] or None),
        start_time=start_ns,
        end_time=end_ns,
        instrumentation_scope=InstrumentationScope(*scope),
    )


def _span_context(context: TraceContext, *, is_remote: bool = True) -> SpanContext:
    state = TraceState.from_header([context.state]) if context.state else None
    return SpanContext(context.trace_id, context.span_id, is_remote, _SAMPLED, state)
