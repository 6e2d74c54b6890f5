"""A collector of the test's own: takes OTLP over HTTP, keeps what it got, and misbehaves on request."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue

from tests.support.http_receiver import HttpReceiver

Mood = Literal["kind", "refuses", "unwell", "babbles", "stalls"]


@dataclass(frozen=True, slots=True)
class ReceivedSpan:
    """A span as it arrived."""

    name: str
    kind: int
    trace_id: str
    span_id: str
    parent_id: str
    start_ns: int
    end_ns: int
    attributes: dict[str, Any]
    links: tuple[tuple[str, str], ...]
    status: int
    status_text: str
    events: tuple[tuple[str, tuple[tuple[str, Any], ...]], ...]
    resource: dict[str, Any] = field(hash=False)


class OtlpReceiver(HttpReceiver):
    """Keeps spans and metrics."""

    def __init__(self) -> None:
        self.mood: Mood = "kind"
        self.requests = 0
        self._lock = threading.Lock()
        self._spans: list[ReceivedSpan] = []
        self._metrics: list[Any] = []
        self._released = threading.Event()
        super().__init__(self._take)

    @property
    def url(self) -> str:
        """For OTEL_EXPORTER_OTLP_ENDPOINT."""
        return f"http://{self.address}"

    @property
    def environment(self) -> dict[str, str]:
        """For a node that exports to here, quickly."""
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": self.url, "OTEL_METRIC_EXPORT_INTERVAL": "500"}

    def spans(self, prefix: str = "") -> list[ReceivedSpan]:
        """All that arrived, by the beginning of their names."""
        with self._lock:
            return [span for span in self._spans if span.name.startswith(prefix)]

    def metrics(self) -> Iterator[tuple[str, Any]]:
        """The newest of each metric, by name."""
        with self._lock:
            newest = {metric.name: metric for metric in self._metrics}
        yield from newest.items()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._released.set()
        super().__exit__(kind, error, trace)

    def _take(self, path: str, body: bytes) -> tuple[int, bytes]:
        self.requests += 1
        match self.mood:
            case "refuses":
                return 400, b"no"
            case "unwell":
                return 503, b""
            case "babbles":
                return 200, b"\xff<html>\x00" * 100
            case "stalls":
                self._released.wait(60)
                return 503, b""
            case _:
                self._keep(path, body)
                return 200, b""

    def _keep(self, path: str, body: bytes) -> None:
        with self._lock:
            if path == "/v1/traces":
                self._spans += _spans_in(ExportTraceServiceRequest.FromString(body))
            elif path == "/v1/metrics":
                request = ExportMetricsServiceRequest.FromString(body)
                for resource in request.resource_metrics:
                    for scope in resource.scope_metrics:
                        self._metrics += scope.metrics


def _spans_in(request: ExportTraceServiceRequest) -> Iterator[ReceivedSpan]:
    for resource in request.resource_spans:
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield ReceivedSpan(
                    span.name,
                    span.kind,
                    span.trace_id.hex(),
                    span.span_id.hex(),
                    span.parent_span_id.hex(),
                    span.start_time_unix_nano,
                    span.end_time_unix_nano,
                    plain(span.attributes),
                    tuple((link.trace_id.hex(), link.span_id.hex()) for link in span.links),
                    span.status.code,
                    span.status.message,
                    tuple((event.name, tuple(plain(event.attributes).items())) for event in span.events),
                    plain(resource.resource.attributes),
                )


# Any: a protobuf repeated field, whose type has no name of its own.
def plain(attributes: Any) -> dict[str, Any]:  # noqa: ANN401 - see above
    """Attributes as a dict."""
    pairs: list[KeyValue] = list(attributes)
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value") or "string_value") for pair in pairs}
