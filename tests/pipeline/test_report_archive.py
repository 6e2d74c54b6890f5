"""From the verbs of a queue through Redis, archive and lake: the report counts what the ledger says."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from mqworker import App
from mqworker.cli.report_screen import report_lines
from mqworker.model.clock import SystemClock
from mqworker.model.message import Message
from mqworker.model.names import MessageId, TaskName
from mqworker.model.settlement import Ack, Bury, Crash, Failure, RetryAt, Run, Settlement
from mqworker.settings import Settings
from mqworker_services.pipeline.archive import ArchivePlan, archive_once
from mqworker_services.pipeline.engine import Engine
from mqworker_services.pipeline.lake import Lake
from mqworker_services.pipeline.report.answers import make_report
from mqworker_services.pipeline.report.document import document
from mqworker_services.pipeline.report.files import look_at_files
from mqworker_services.pipeline.report.page import page
from mqworker_services.pipeline.report.question import By, Question, Window
from tests.support.real_server import RealServer

if TYPE_CHECKING:
    from mqworker.model.delivery import Delivery

MESSAGES = 300
A_MINUTE_MS = 60_000


def test_the_report_on_an_archive_counts_what_the_ledger_of_the_run_says(
    engine: Engine, settings: Settings, lake: Lake
) -> None:
    ledger = run_tasks(settings)
    archive_once(engine, ArchivePlan(settings, lake), lambda _batch, _events: None)

    window = Window(None, SystemClock().now_ms() + A_MINUTE_MS)
    report = make_report(engine, Question(lake, window), look_at_files(lake, window))

    counts = report.whole.counts
    assert ledger == {
        "enqueued": counts.enqueued,
        "succeeded": counts.succeeded,
        "retried": counts.retried,
        "buried": counts.dead,
        "crashed": counts.crashes,
    }
    assert counts.events == ledger.total()
    assert counts.failed == ledger["retried"] + ledger["buried"]
    assert report.whole.times.run.max_ms == 10.0
    assert [(reason.task, reason.error) for reason in report.reasons[:1]] == [("shop.pay", "ValueError")]


def test_workers_of_the_same_name_on_two_nodes_are_told_apart_and_gaps_are_shown(
    engine: Engine, settings: Settings, server: RealServer, lake: Lake
) -> None:
    app = App("nodes", settings=settings)
    orders = app.work_queue("orders")
    orders.push("a", "b", "c")
    first, *others = orders.claim(3)
    orders.settle(Ack(first, b"", Run("worker:0", "node-a", first.enqueued_at_ms, 10.0)))
    orders.settle(*[Ack(each, b"", Run("worker:0", "node-b", each.enqueued_at_ms, 10.0)) for each in others])
    app.close()
    with server.client() as client:
        client.xtrim("mqw:{orders}:events", maxlen=2, approximate=False)
    archive_once(engine, ArchivePlan(settings, lake), lambda _batch, _events: None)

    window = Window(None, SystemClock().now_ms() + A_MINUTE_MS)
    report = make_report(engine, Question(lake, window, By.WORKER), look_at_files(lake, window))

    assert {group.name: group.counts.succeeded for group in report.groups} == {
        "node-a/worker:0": 1,
        "node-b/worker:0": 2,
    }
    (gap,) = report.gaps
    assert gap == "queue orders: 1 blocks of events were dropped before the archive began"
    assert f"not in the lake: {gap}" in "\n".join(report_lines(report, 80))
    assert document(report)["gaps"] == [gap]
    assert "Not in the lake" in page(report)


def run_tasks(settings: Settings) -> Counter[str]:
    """Enqueue, and settle until the line is empty; what was settled is counted here, by the caller."""
    ledger: Counter[str] = Counter(enqueued=MESSAGES)
    app = App("ledger", settings=settings)
    orders = app.work_queue("orders")
    orders.enqueue(*[Message(MessageId(f"m{n}"), b"", TaskName("shop.pay")) for n in range(MESSAGES)])
    while deliveries := orders.claim(50):
        settlements = [settlement(delivery, number) for number, delivery in enumerate(deliveries)]
        orders.settle(*settlements)
        ledger.update(EVENT_OF[type(each)] for each in settlements)
    app.close()
    return ledger


EVENT_OF = {Ack: "succeeded", RetryAt: "retried", Bury: "buried", Crash: "crashed"}


def settlement(delivery: Delivery, number: int) -> Settlement:
    """Of the first deliveries some fail, some are given up and some crash; the second ones succeed."""
    run = Run("worker:0", "node", delivery.enqueued_at_ms + number, 10.0)
    if delivery.deliveries or number % 5 > 2:
        return Ack(delivery, b"", run)
    failure = Failure("ValueError", "no such order")
    return (
        RetryAt(delivery, failure=failure, run=run),
        Bury(delivery, "failed", failure, run=run),
        Crash(delivery),
    )[number % 5]
