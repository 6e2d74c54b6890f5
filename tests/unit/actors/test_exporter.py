"""The exporter: what comes twice goes out once, what nobody can read stops nothing, a loss is said."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import pytest

from mqworker.actors.actor import Post
from mqworker.actors.exporter.exporter import Exporter, Newest
from mqworker.actors.exporter.outbox import Outbox
from mqworker.actors.mail import Drain, RunsLost, TelemetryGathered, TelemetryTaken
from mqworker.log import get_logger
from mqworker.model.delivery import Delivery
from mqworker.model.envelope import CallOptions, encode_call
from mqworker.model.names import MessageId, TaskName
from mqworker.model.record import encode_delivery
from mqworker.model.run_span import RunSpan
from mqworker.model.telemetry import BATCH, RUN, RUN_TIMES, Entry, RunKind, single_run
from mqworker.model.trace_context import Sampling, TraceContext
from tests.support.deadline import wait_until

SENDER = TraceContext(17, 18)


class ListCollector:
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.runs: list[RunSpan] = []
        self.spans: list[Entry] = []
        self.times: list[tuple[RunKind, list[int], float]] = []
        self.sent: list[tuple[str, str, int]] = []
        self.is_over = False
        self.lost = 0
        self.waiting = 0

    def add_run(self, span: RunSpan) -> None:
        self.runs.append(span)

    def add_application_span(self, parts: Entry) -> None:
        self.spans.append(parts)

    def add_run_times(self, kind: RunKind, counts: list[int], total_s: float) -> None:
        self.times.append((kind, counts, total_s))

    def add_sent(self, queue: str, error: str, count: int) -> None:
        self.sent.append((queue, error, count))

    def end(self) -> None:
        pass

    def facts(self) -> dict[str, Any]:
        return {"exported": 0, "dropped": self.lost, "waiting": self.waiting, "trouble": "away"}


@pytest.fixture
def collector() -> ListCollector:
    return ListCollector()


@pytest.fixture
def exporter(collector: ListCollector) -> Exporter:
    return Exporter(collector, Sampling(0.0), node="node-1", log=get_logger())


def a_run(fence: int = 7, *, sender: TraceContext | None = SENDER) -> RunSpan:
    return RunSpan(
        "mail",
        "m-1",
        "shop.price",
        fence,
        1,
        900,
        10**9,
        2 * 10**9,
        "worker:0",
        "node-1",
        "succeeded",
        sender=sender,
    )


def a_record(headers: dict[str, str] | None = None) -> bytes:
    body = encode_call([1], {}, None if headers is None else CallOptions(headers, workflow="w-1"))
    return encode_delivery(Delivery(7, MessageId("m-1"), TaskName("shop.price"), body, 900))


def test_a_report_that_is_repeated_goes_out_once_and_is_taken_twice(
    exporter: Exporter, collector: ListCollector
) -> None:
    entries: list[Entry] = [
        [BATCH, "b-1"],
        [RUN, *a_run().as_parts()],
        [RUN_TIMES, ["mail", "shop.price", ""], single_run(1.0), 1.0],
    ]

    answers = [exporter.handle(TelemetryGathered(entries), "dispatcher", 0) for _ in range(2)]

    assert answers == [(Post("dispatcher", TelemetryTaken(3)),)] * 2
    assert collector.runs == [a_run()]
    assert [kind for kind, _, _ in collector.times] == [("mail", "shop.price", "")]


def test_a_lost_run_is_one_span_whoever_tells_of_it_and_how_often(
    exporter: Exporter, collector: ListCollector
) -> None:
    lost = RunsLost(
        "worker:0", "SIGKILL", [["mail", 7, a_record(SENDER.headers()), "crashed", "", 1_000]], 3_000
    )

    for _ in range(2):
        exporter.handle(lost, "dispatcher", 0)
    exporter.handle(TelemetryGathered([[RUN, *a_run().as_parts()]]), "dispatcher", 0)

    (span,) = collector.runs
    assert (span.outcome, span.error, span.message) == ("crashed", "WorkerCrashed", "SIGKILL")
    assert (span.sender, span.workflow) == (SENDER, "w-1")
    assert (span.start_ns, span.end_ns) == (10**9, 3 * 10**9)
    assert collector.times == [(("mail", "shop.price", "WorkerCrashed"), single_run(2.0), 2.0)]


def test_a_lost_run_that_nobody_records_is_counted_all_the_same(
    exporter: Exporter, collector: ListCollector
) -> None:
    runs: list[list[Any]] = [
        ["mail", 7, a_record(), "crashed", "", 1_000],
        ["mail", 8, b"\xff no record", "buried", "", 1],
    ]

    exporter.handle(RunsLost("worker:0", "SIGKILL", runs, 3_000), "dispatcher", 0)

    assert collector.runs == []
    assert len(collector.times) == 1


def test_it_ends_when_all_is_sent_or_when_its_time_is_over(
    exporter: Exporter, collector: ListCollector
) -> None:
    collector.waiting = 5
    exporter.handle(Drain(1_000), "supervisor", 0)
    list(exporter.turn(500))
    was_done = exporter.is_done

    list(exporter.turn(990))

    assert (was_done, exporter.is_done) == (False, True)


def test_what_the_dispatcher_had_to_drop_is_counted_too(exporter: Exporter, collector: ListCollector) -> None:
    collector.lost = 2
    exporter.handle(TelemetryGathered([], dropped=3), "dispatcher", 0)

    assert exporter.facts()["dropped"] == 5


def test_only_the_newest_are_remembered() -> None:
    newest = Newest(most=2)

    assert [newest.add(key) for key in ("a", "b", "a", "c", "a")] == [True, True, False, True, True]


def test_an_outbox_that_is_full_drops_and_counts_and_never_waits() -> None:
    may_go_on = threading.Event()

    def send(_batch: Sequence[int]) -> str | None:
        may_go_on.wait(30)
        return None

    outbox: Outbox[int] = Outbox(send, name="spans", most_waiting=10)
    for number in range(1_000):
        outbox.add(number)
    held = len(outbox)
    may_go_on.set()
    outbox.end()
    wait_until(lambda: outbox.is_over, "all is sent")

    assert held <= 10 + 512
    assert outbox.sent + outbox.dropped == 1_000
    assert outbox.dropped >= 1_000 - 10 - 512


def test_a_batch_that_fails_is_tried_again_and_then_dropped() -> None:
    answers: list[str | None] = ["away", "away", None, "no", "no", "no"]
    batches: list[list[int]] = []

    def send(batch: Sequence[int]) -> str | None:
        batches.append(list(batch))
        return answers[len(batches) - 1]

    outbox: Outbox[int] = Outbox(send, name="spans", pauses_s=(0.01, 0.01))
    outbox.add(1)
    wait_until(lambda: outbox.sent == 1, "sent at the third time")
    outbox.add(2)
    wait_until(lambda: outbox.dropped == 1 and outbox.is_over, "given up")

    assert batches == [[1]] * 3 + [[2]] * 3
    assert (outbox.trouble, len(outbox)) == ("no", 0)
