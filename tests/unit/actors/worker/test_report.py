"""The report: what goes to the dispatcher, in mails of a bounded size."""

from __future__ import annotations

from typing import cast

from mqworker.actors.mail import DeliveriesFinished
from mqworker.actors.worker.report import LARGEST_MAIL_BYTES, MOST_PER_MAIL, Report
from mqworker.model.delivery import Delivery
from mqworker.model.names import MessageId, TaskName
from mqworker.model.settlement import Ack, Run
from mqworker.queues.work.calls import WorkQueueCalls, WorkQueueOptions


def report_of(count: int, result: bytes = b"") -> list[DeliveriesFinished]:
    report = Report(lambda queue: WorkQueueCalls(queue, WorkQueueOptions()), {"task": 60_000})
    for fence in range(1, count + 1):
        delivery = Delivery(fence, MessageId(f"m{fence}"), TaskName("task"), b"", 0)
        report.add("default", Ack(delivery, result, Run("worker:0", "node", 0, 0.1)))
    return [cast(DeliveriesFinished, post.mail) for post in report.posts()]


def test_a_long_stint_is_reported_in_several_mails_in_order() -> None:
    mails = report_of(2 * MOST_PER_MAIL + 1)

    assert [len(mail.fences) for mail in mails] == [MOST_PER_MAIL, MOST_PER_MAIL, 1]
    assert [fence for mail in mails for fence in mail.fences] == list(range(1, 2 * MOST_PER_MAIL + 2))
    assert [mail.number for mail in mails] == [1, 2, 3]


def test_large_results_are_reported_in_several_mails() -> None:
    mails = report_of(3, b"x" * (LARGEST_MAIL_BYTES // 2))

    assert [len(mail.fences) for mail in mails] == [2, 1]


def test_what_fits_is_one_mail() -> None:
    assert [len(mail.fences) for mail in report_of(MOST_PER_MAIL)] == [MOST_PER_MAIL]
