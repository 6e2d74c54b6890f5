"""Tracing where calls and runs are made: what it costs when it is off, and that it makes nothing fail."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import TracerProvider

from mqworker.actors.run_slot import RunSlots, mark_of
from mqworker.model.clock import ManualClock
from mqworker.model.delivery import Delivery
from mqworker.model.envelope import MOST_HEADERS, CallOptions, decode_call, encode_call, with_headers
from mqworker.model.names import MessageId, TaskName
from mqworker.model.settlement import Ack, Failure, Release, RetryAt, Run
from mqworker.model.telemetry import BATCH, BOUNDS_S, RUN, RUN_TIMES, RunTimes
from mqworker.model.trace_context import Sampling, TraceContext, context_in
from mqworker.tasks.context import trace_facts
from mqworker.tasks.tracing.application_spans import activation
from mqworker.tasks.tracing.runs import RunTracer
from mqworker.tasks.tracing.sending import SendTracer

SENDER = TraceContext(17, 18)
HEADERS = SENDER.headers()


def a_delivery(fence: int = 7, body: bytes = b"\x92\x90\x80") -> Delivery:
    return Delivery(fence, MessageId("m-1"), TaskName("shop.price"), body, ManualClock().now_ms())


def a_tracer(share: float = 1.0) -> RunTracer:
    return RunTracer(Sampling(share), "link", worker="worker:0", node="node-1", activate=activation())


def test_while_it_is_off_opentelemetry_need_not_be_there_and_while_it_is_on_the_extra_is_named() -> None:
    # redis-py imports it wherever it is installed; we do not.
    program = (
        "import sys\n"
        "sys.modules['opentelemetry'] = sys.modules['sentry_sdk'] = None\n"
        "import mqworker.cli.main, mqworker.supervisor.topology, mqworker.actors.worker.process\n"
        "from mqworker import App\n"
        "from mqworker.settings import Settings\n"
        "assert App('shop', settings=Settings()).connections.tracer is None\n"
        "try:\n"
        "    App('shop', settings=Settings(otel='link')).connections.tracer\n"
        "except Exception as error:\n"
        "    print(type(error).__name__, error)"
    )

    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout

    assert told.startswith("ConfigurationError tracing is on (the setting otel): the package")
    assert "pip install 'mqworker[otel]'" in told


@pytest.mark.parametrize("extra", [None, CallOptions({"request": "r-1"}, timeout_ms=5, workflow="w-1")])
def test_headers_are_added_to_a_body_and_the_rest_stays(extra: CallOptions | None) -> None:
    body = encode_call([1, b"\x93"], {"a": {"b": 2.5}}, extra)
    before = decode_call(body)

    after = decode_call(with_headers(body, HEADERS))

    assert context_in(after.headers) == SENDER
    assert {**HEADERS, **before.headers} == after.headers
    assert (after.args, after.kwargs, after.timeout_ms, after.workflow) == (
        before.args,
        before.kwargs,
        before.timeout_ms,
        before.workflow,
    )


def test_a_call_with_all_the_headers_it_may_have_is_sent_without_a_trace() -> None:
    body = encode_call([], {}, CallOptions({f"h{number}": "x" for number in range(MOST_HEADERS)}))

    assert with_headers(body, HEADERS) == body


def test_headers_that_the_caller_gave_win() -> None:
    own = TraceContext(1, 2).headers()
    body = encode_call([], {}, CallOptions(own))

    assert decode_call(with_headers(body, HEADERS)).headers == own


def test_a_run_that_is_recorded_goes_along_with_the_report_on_it_once() -> None:
    tracer, delivery = a_tracer(), a_delivery()

    tracer.begin(delivery, "mail", HEADERS, None)
    facts = trace_facts()
    ack = Ack(delivery, run=Run("worker:0", "node-1", 0, run_ms=3.0))
    tracer.end(delivery, "mail", ack)
    other = tracer.take("mail", [Release(a_delivery(8))], {})
    first, times, span = tracer.take("mail", [ack], {ack.delivery.task: [3.0]})

    assert set(facts) == {"trace_id", "span_id"}
    assert trace_facts() == {}
    assert other == []
    assert (first[0], times[0], span[0]) == (BATCH, RUN_TIMES, RUN)
    assert not any(entry[0] == RUN for entry in tracer.take("mail", [ack], {ack.delivery.task: [3.0]}))


def test_a_run_that_is_stopped_ends_as_released_and_one_that_is_not_recorded_leaves_nothing() -> None:
    tracer, delivery = a_tracer(share=0.0), a_delivery()

    tracer.begin(delivery, "mail", HEADERS, None)
    tracer.end(delivery, "mail", None)
    tracer.begin(a_delivery(8), "mail", {}, None)
    tracer.end(a_delivery(8), "mail", None)

    _, span = tracer.take("mail", [Release(delivery), Release(a_delivery(8))], {})
    assert (span[0], span[4], span[11]) == (RUN, 7, "released")


def test_run_times_are_counted_by_task_and_error_and_add_up() -> None:
    tracer, run = a_tracer(0.0), Run("worker:0", "node-1", 0, run_ms=3.0)
    slow = Run("worker:0", "node-1", 0, run_ms=20_000.0)
    failed = RetryAt(a_delivery(9), failure=Failure("ValueError"), run=run)

    settlements = [Ack(a_delivery(), run=run), Ack(a_delivery(8), run=slow), failed]
    entries = tracer.take("mail", settlements, {failed.delivery.task: [3.0, 20_000.0, 3.0]})
    sums = RunTimes()
    for _ in range(2):
        for _, kind, counts, total_s in entries[1:]:
            sums.add((kind[0], kind[1], kind[2]), counts, total_s)

    by_error = {kind[2]: (counts, total_s) for kind, counts, total_s in sums}
    assert by_error[""] == ([2, *[0] * (len(BOUNDS_S) - 1), 2], pytest.approx(40.006))
    assert by_error["ValueError"] == ([2, *[0] * len(BOUNDS_S)], pytest.approx(0.006))


def test_beyond_two_hundred_kinds_all_others_are_one() -> None:
    sums = RunTimes()
    for number in range(1_000):
        sums.add(("mail", f"task-{number}", ""), [1], 0.1)

    kinds = {kind: counts[0] for kind, counts, _ in sums}
    assert len(kinds) == 201
    assert kinds["other", "other", ""] == 800


def test_what_is_not_recorded_carries_no_header() -> None:
    assert SendTracer(lambda *_: None).created("mail", "shop.price") == {}

    recording = TracerProvider(shutdown_on_exit=False).get_tracer("test")
    headers = SendTracer(lambda *_: None, tracer=recording).created("mail", "shop.price")
    assert context_in(headers) is not None


def test_the_newest_runs_of_a_worker_are_readable_after_its_death(tmp_path: Path) -> None:
    path = str(tmp_path / "slots")
    log = RunSlots(path).run_log(3)

    for fence in range(1, 5_001):
        log.note("mail", fence, 1_000 + fence)

    begun = RunSlots(path).begun(3)
    assert begun.log[mark_of("mail"), 5_000] == 6_000
    assert (mark_of("mail"), 1) not in begun.log
    assert len(begun.log) == 4_096
    assert begun.running == begun.ended == frozenset()


def test_a_worker_does_not_write_over_what_the_one_before_it_noted(tmp_path: Path) -> None:
    slots = RunSlots(str(tmp_path / "slots"))
    for fence in (1, 2, 3):
        slots.run_log(3).note("mail", fence, 1_000 + fence)

    assert {fence for _, fence in slots.begun(3).log} == {1, 2, 3}
