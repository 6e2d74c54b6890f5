"""Runs in bytes: what a collector reads of them is what the SDK would have written."""

from __future__ import annotations

import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from mqworker.actors.exporter.otlp import packed_origin, readable_run, way_for_bytes
from mqworker.actors.exporter.run_encoding import encoded_run, is_plain, request_of
from mqworker.model.run_span import RunSpan
from mqworker.model.trace_context import TraceContext

RESOURCE = Resource.create({"service.instance.id": "node-1"})
START_NS = 1_794_807_772_460_000_000


def a_run(name: str = "01J", fence: int = 7, **facts: object) -> RunSpan:
    span = RunSpan(
        "mail",
        name,
        "shop.send",
        fence,
        1,
        START_NS // 1_000_000 - 5,
        START_NS,
        START_NS + 9,
        "w:0",
        "n",
        "ok",
    )
    for field, value in facts.items():
        setattr(span, field, value)
    return span


@pytest.mark.parametrize(
    "span",
    [
        a_run(),
        a_run("i" * 5_000, 2**62),
        a_run(queue="ö" * 200, task="t" * 128, worker="", node="ü"),
        a_run(attempt=128, fence=127),
        a_run(enqueued_at_ms=START_NS),  # by another clock: no negative wait
        a_run(end_ns=START_NS - 1),
        a_run(outcome="released"),
    ],
)
def test_a_run_in_bytes_is_read_like_that_of_the_sdk(span: RunSpan) -> None:
    ours = ExportTraceServiceRequest.FromString(request_of([encoded_run(span)], *packed_origin(RESOURCE)))
    theirs = encode_spans([readable_run(span, "link", RESOURCE)])

    assert is_plain(span)
    assert ours.resource_spans[0].resource == theirs.resource_spans[0].resource
    assert ours.resource_spans[0].scope_spans[0].scope == theirs.resource_spans[0].scope_spans[0].scope
    assert _facts(ours) == _facts(theirs)


def test_two_requests_one_behind_the_other_are_one() -> None:
    origin = packed_origin(RESOURCE)
    data = request_of([encoded_run(a_run("1")), encoded_run(a_run("2"))], *origin)
    data += encode_spans([readable_run(a_run("3", error="ValueError"), "link", RESOURCE)]).SerializeToString()

    found = ExportTraceServiceRequest.FromString(data)

    assert len(_spans(found)) == 3


def test_what_has_more_to_tell_is_left_to_the_sdk() -> None:
    sender = TraceContext(1, 2)

    plain = [is_plain(a_run(**facts)) for facts in ({"error": "E"}, {"sender": sender}, {"workflow": "w"})]

    assert plain == [False, False, False]


def test_the_exporter_that_is_installed_takes_bytes_and_another_need_not() -> None:
    assert way_for_bytes(OTLPSpanExporter()) is not None
    assert way_for_bytes(InMemorySpanExporter()) is None


def _spans(request: ExportTraceServiceRequest) -> list[Span]:
    return [
        span for resource in request.resource_spans for scope in resource.scope_spans for span in scope.spans
    ]


def _facts(request: ExportTraceServiceRequest) -> list[tuple[object, ...]]:
    return [
        (
            span.trace_id,
            span.span_id,
            span.parent_span_id,
            span.name,
            span.kind,
            span.start_time_unix_nano,
            span.end_time_unix_nano,
            span.flags,
            span.status.code,
            sorted(each.SerializeToString() for each in span.attributes),
        )
        for span in _spans(request)
    ]
