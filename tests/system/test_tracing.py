"""Traces of a whole node, as a collector gets them: from what is sent to what is run, and by whom it died."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from typing import cast

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from mqworker import App, chain
from mqworker.model.telemetry import BOUNDS_S
from mqworker.settings import Settings
from mqworker.tasks.tracing.sending import SendTracer
from tests.support.deadline import wait_until
from tests.support.otlp_receiver import Mood, OtlpReceiver, ReceivedSpan, plain
from tests.support.real_node import RealNode
from tests.support.real_server import RealServer
from tests.support.shop_node import shop_node

DEADLINE_S = 60.0
CONSUMER = 5
PRODUCER = 4
INTERNAL = 1
ERROR = 2

APP = """
import asyncio, logging, os, time
from opentelemetry import trace
from mqworker import App, Context, Retry

app = App("shop")
tracer = trace.get_tracer("shop")

@app.task
def price(number: int) -> int:
    with tracer.start_as_current_span("look up"):
        logging.getLogger("shop").info("looked up %s", number)
    return number * 2

@app.task
async def aprice(number: int) -> int:
    await asyncio.sleep(0.001)
    return number * 2

@app.task
def order(number: int) -> None:
    price.enqueue(number)

@app.task(retry=Retry(max=1, first=0.01))
def fail_twice() -> None:
    raise ValueError("no such order: 4711")

@app.task(max_crashes=2)
def die() -> None:
    os.kill(os.getpid(), 9)

@app.task
def hold(seconds: float) -> None:
    time.sleep(seconds)

@app.subscribe("orders")
def heard(order: dict) -> None:
    pass
"""


SCHEDULED = """
@app.schedule(every=1)
@app.task
def tick() -> None:
    pass
"""


@pytest.fixture
def server() -> Iterator[RealServer]:
    with RealServer() as running:
        yield running


@pytest.fixture
def receiver() -> Iterator[OtlpReceiver]:
    with OtlpReceiver() as listening:
        yield listening


@pytest.fixture
def sent() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def app(server: RealServer, sent: InMemorySpanExporter) -> Iterator[App]:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(sent))
    made = App("shop", settings=Settings(redis_url=server.url))
    made.connections.tracer = SendTracer(tracer=provider.get_tracer("mqworker"))
    yield made
    made.close()


def a_node(server: RealServer, receiver: OtlpReceiver, **settings: str) -> RealNode:
    usual = {
        "MQWORKER_OTEL": "link",
        "MQWORKER_WORKERS": "2",
        "MQWORKER_LOG_FORMAT": "json",
        "OTEL_SERVICE_NAME": "shop",
        **receiver.environment,
    }
    return shop_node(server, APP, usual | settings)


def test_a_run_is_a_span_that_is_linked_to_that_of_its_sender(
    server: RealServer, receiver: OtlpReceiver, app: App, sent: InMemorySpanExporter
) -> None:
    price = app.task(name="shop.price")(lambda number: number)
    with a_node(server, receiver) as node:
        job = price.enqueue(21)

        assert job.result(DEADLINE_S) == 42
        wait_until(lambda: len(receiver.spans()) == 2, "both spans", DEADLINE_S)
        log = [json.loads(line) for line in node.log().splitlines() if "looked up 21" in line]

    (send,), (run,), (inner,) = sent.get_finished_spans(), receiver.spans("process"), receiver.spans("look")
    assert (send.name, send.kind) == ("send default", SpanKind.PRODUCER)
    assert send.attributes == {
        "messaging.system": "mqworker",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "default",
        "messaging.message.id": job.id,
        "mqworker.task": "shop.price",
    }
    assert (run.name, run.kind, run.status, run.parent_id) == ("process default", CONSUMER, 0, "")
    assert run.links == ((f"{send.context.trace_id:032x}", f"{send.context.span_id:016x}"),)
    facts = dict(run.attributes)
    assert facts.pop("mqworker.fence") > 0
    assert facts.pop("mqworker.wait_ms") >= 0
    assert facts.pop("messaging.client.id").endswith(("/worker:0", "/worker:1"))
    assert facts == {
        "messaging.system": "mqworker",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "default",
        "messaging.message.id": job.id,
        "mqworker.task": "shop.price",
        "mqworker.attempt": 1,
        "mqworker.outcome": "succeeded",
    }
    assert run.resource["service.name"] == "shop"
    assert (inner.trace_id, inner.parent_id, inner.kind) == (run.trace_id, run.span_id, INTERNAL)
    assert run.start_ns <= inner.start_ns <= inner.end_ns <= run.end_ns
    assert [(line["trace_id"], line["span_id"]) for line in log] == [(run.trace_id, run.span_id)]


def test_with_the_setting_a_run_is_a_child_of_its_sender_through_tasks_that_send_on(
    server: RealServer, receiver: OtlpReceiver, app: App, sent: InMemorySpanExporter
) -> None:
    order = app.task(name="shop.order")(lambda _number: None)
    with a_node(server, receiver, MQWORKER_OTEL="parent"):
        order.enqueue(1)

        wait_until(lambda: len(receiver.spans()) == 4, "all four spans", DEADLINE_S)

    (send,) = sent.get_finished_spans()
    first, second = _by_task(receiver, "shop.order"), _by_task(receiver, "shop.price")
    (passed_on,) = receiver.spans("send default")
    assert {span.trace_id for span in receiver.spans()} == {f"{send.context.trace_id:032x}"}
    assert first.parent_id == f"{send.context.span_id:016x}"
    assert passed_on.parent_id == first.span_id
    assert second.parent_id == passed_on.span_id


def test_a_run_whose_worker_was_killed_has_its_span_with_the_cause(
    server: RealServer, receiver: OtlpReceiver, app: App, sent: InMemorySpanExporter
) -> None:
    die = app.task(name="shop.die", max_crashes=2)(lambda: None)
    with a_node(server, receiver):
        die.enqueue()

        wait_until(lambda: len(receiver.spans("process")) == 2, "both runs", DEADLINE_S)

    (send,) = sent.get_finished_spans()
    first, last = sorted(receiver.spans("process"), key=lambda span: span.attributes["mqworker.attempt"])
    assert [span.attributes["mqworker.outcome"] for span in (first, last)] == ["crashed", "buried"]
    for span in (first, last):
        assert (span.status, span.attributes["error.type"]) == (ERROR, "WorkerCrashed")
        assert "SIGKILL" in span.status_text
        assert span.links == ((f"{send.context.trace_id:032x}", f"{send.context.span_id:016x}"),)
        assert span.start_ns <= span.end_ns


def test_failures_workflows_events_and_async_tasks_are_followed(
    server: RealServer, receiver: OtlpReceiver, app: App, sent: InMemorySpanExporter
) -> None:
    price = app.task(name="shop.price")(lambda number: number)
    aprice = app.task(name="shop.aprice")(_aprice)
    fail_twice = app.task(name="shop.fail_twice")(lambda: None)
    with a_node(server, receiver):
        job = chain(price.s(1), aprice.s()).enqueue()
        assert job.result(DEADLINE_S) == 4
        fail_twice.enqueue()
        wait_until(lambda: _subscribes(server), "a subscription", DEADLINE_S)
        app.publish("orders", {"number": 1})

        wait_until(lambda: len(receiver.spans("process")) == 5, "all runs", DEADLINE_S)

    spans = {span.name: span for span in sent.get_finished_spans()}
    flow = next(
        each
        for each in sent.get_finished_spans()
        if each.attributes and "messaging.message.conversation_id" in each.attributes
    )
    assert flow.attributes is not None
    assert flow.attributes["messaging.batch.message_count"] == 2
    for task in ("shop.price", "shop.aprice"):
        run = _by_task(receiver, task)
        assert run.attributes["messaging.message.conversation_id"] == job.id
        assert run.links == ((f"{flow.context.trace_id:032x}", f"{flow.context.span_id:016x}"),)
    heard, published = _by_task(receiver, "shop.heard"), spans["send orders"]
    assert heard.links == ((f"{published.context.trace_id:032x}", f"{published.context.span_id:016x}"),)
    failed = [span for span in receiver.spans("process") if span.status == ERROR]
    assert Counter(span.attributes["mqworker.outcome"] for span in failed) == {"retried": 1, "buried": 1}
    assert {span.attributes["error.type"] for span in failed} == {"ValueError"}
    event, facts = failed[0].events[0]
    assert event == "exception"
    assert dict(facts)["exception.message"] == "no such order: 4711"
    assert "fail_twice" in dict(facts)["exception.stacktrace"]


async def _aprice(number: int) -> int:
    return number


def _by_task(receiver: OtlpReceiver, task: str) -> ReceivedSpan:
    (found,) = [span for span in receiver.spans("process") if span.attributes["mqworker.task"] == task]
    return found


def _subscribes(server: RealServer) -> bool:
    return bool(server.client().exists("mqw:{topic:orders}:subscribers"))


@pytest.mark.parametrize("mood", ["refuses", "unwell", "babbles", "stalls", "away"])
def test_a_collector_in_trouble_is_nobody_elses(
    server: RealServer, receiver: OtlpReceiver, app: App, mood: str
) -> None:
    price = app.task(name="shop.price")(lambda number: number)
    settings = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"} if mood == "away" else {}
    receiver.mood = "kind" if mood == "away" else cast("Mood", mood)
    with a_node(server, receiver, **settings) as node:
        jobs = price.enqueue_many([(number,) for number in range(300)])

        results = [job.result(DEADLINE_S) for job in jobs]
        facts = node.facts("exporter")
        exit_code = node.stop()
        lines = [json.loads(line) for line in node.log().splitlines() if '"telemetry_dropped"' in line]

    assert results == [2 * number for number in range(300)]
    assert facts["waiting"] + facts["dropped"] + facts["exported"] <= 600
    assert exit_code == 0
    # Each run and what it looked up; what babbles has said that it took them.
    assert sum(line["count"] for line in lines) == (0 if mood == "babbles" else 600)


def test_an_exporter_that_is_stopped_holds_up_nobody_and_one_that_is_killed_comes_back(
    server: RealServer, receiver: OtlpReceiver, app: App
) -> None:
    price = app.task(name="shop.price")(lambda number: number)
    with a_node(server, receiver) as node:
        pid = node.child("exporter")["pid"]
        os.kill(pid, signal.SIGSTOP)
        jobs = price.enqueue_many([(number,) for number in range(300)])
        results = [job.result(DEADLINE_S) for job in jobs]
        before = len(receiver.spans())
        os.kill(pid, signal.SIGCONT)
        wait_until(lambda: len(receiver.spans("process")) == 300, "all runs of the stop", DEADLINE_S)

        node.kill("exporter")
        price.enqueue(1000).result(DEADLINE_S)
        wait_until(lambda: len(receiver.spans("process")) == 301, "the run after the kill", DEADLINE_S)

    assert results == [2 * number for number in range(300)]
    assert before == 0


def test_metrics_of_the_convention_count_every_run_though_few_are_recorded(
    server: RealServer, receiver: OtlpReceiver, app: App
) -> None:
    app.connections.tracer = None
    order = app.task(name="shop.order")(lambda _number: None)
    die = app.task(name="shop.die", max_crashes=1)(lambda: None)
    with a_node(server, receiver, MQWORKER_OTEL_SHARE="0"):
        order.enqueue_many([(number,) for number in range(50)])
        die.enqueue()

        wait_until(
            lambda: _consumed(receiver) == {("default", ""): 100, ("default", "WorkerCrashed"): 1}, "all", 60
        )

    found = dict(receiver.metrics())
    (sent,) = found["messaging.client.sent.messages"].sum.data_points
    durations = found["messaging.process.duration"]
    by_task = {plain(point.attributes)["mqworker.task"]: point for point in durations.histogram.data_points}
    assert receiver.spans() == []
    assert (sent.as_int, plain(sent.attributes)["messaging.destination.name"]) == (50, "default")
    assert (durations.unit, by_task["shop.price"].count, by_task["shop.die"].count) == ("s", 50, 1)
    assert list(by_task["shop.price"].explicit_bounds) == list(BOUNDS_S)
    assert sum(by_task["shop.price"].bucket_counts) == 50
    assert plain(by_task["shop.die"].attributes)["error.type"] == "WorkerCrashed"


def test_the_firing_of_a_schedule_is_a_span_that_its_run_is_linked_to(
    server: RealServer, receiver: OtlpReceiver
) -> None:
    node = a_node(server, receiver)
    (node.directory / "shop.py").write_text(APP + SCHEDULED)
    with node:
        wait_until(lambda: len(receiver.spans("process")) >= 2, "two runs", DEADLINE_S)
        wait_until(lambda: len(receiver.spans("send default")) >= 2, "two firings", DEADLINE_S)

    runs = {span.attributes["messaging.message.id"]: span for span in receiver.spans("process")}
    fired = {span.attributes["messaging.message.id"]: span for span in receiver.spans("send default")}
    both = runs.keys() & fired.keys()
    assert len(both) >= 2
    assert len(fired) == len(receiver.spans("send default"))
    for message in both:
        assert runs[message].links == ((fired[message].trace_id, fired[message].span_id),)
        assert fired[message].attributes["mqworker.schedule"] == "shop/shop.tick"
        assert fired[message].kind == PRODUCER
        assert fired[message].start_ns <= fired[message].end_ns


def _consumed(receiver: OtlpReceiver) -> dict[tuple[str, str], int]:
    consumed = dict(receiver.metrics()).get("messaging.client.consumed.messages")
    points = [] if consumed is None else consumed.sum.data_points
    facts = [(plain(point.attributes), point.as_int) for point in points]
    return {(each["messaging.destination.name"], each.get("error.type", "")): count for each, count in facts}
