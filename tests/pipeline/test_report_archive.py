"""From the verbs of a queue through Redis, archive and lake: the report counts what the ledger says."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from mqworker import App
from mqworker.model.clock import SystemClock
from mqworker.model.message import Message
from mqworker.model.names import MessageId, TaskName
from mqworker.model.settlement import Ack, Bury, Crash, Failure, RetryAt, Run, Settlement
from mqworker.settings import Settings
from mqworker_services.pipeline.archive import ArchivePlan, archive_once
from mqworker_services.pipeline.lake import Lake
from mqworker_services.pipeline.report.answers import make_report
from mqworker_services.pipeline.report.files import look_at_files
from mqworker_services.pipeline.report.question import Question, Window

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mqworker.model.delivery import Delivery

MESSAGES = 300
A_MINUTE_MS = 60_000


def test_the_report_on_an_archive_counts_what_the_ledger_of_the_run_says(
    spark: SparkSession, settings: Settings, lake: Lake
) -> None:
    ledger = run_tasks(settings)
    archive_once(spark, ArchivePlan(settings, lake), lambda _batch, _events: None)

    window = Window(None, SystemClock().now_ms() + A_MINUTE_MS)
    report = make_report(spark, Question(lake, window), look_at_files(lake, window))

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
