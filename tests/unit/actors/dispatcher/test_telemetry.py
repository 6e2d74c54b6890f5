"""Telemetry at the dispatcher: who has what, until the exporter has it."""

from __future__ import annotations

from mqworker.actors.actor import Post
from mqworker.actors.dispatcher.acceptance import LONGEST_UNTAKEN_MS
from mqworker.actors.dispatcher.telemetry import EXPORTER, MOST_LOST_MAILS, MOST_UNDER_WAY, Telemetry
from mqworker.actors.dispatcher.workers import WorkerState
from mqworker.actors.mail import PeerAttached, PeerLost, RunsLost, TelemetryGathered, TelemetryTaken
from mqworker.model.delivery import Delivery
from mqworker.model.names import MessageId, TaskName
from mqworker.model.settlement import Release

ENTRY = ["s", ["mail", ""], 1]


def attached() -> Telemetry:
    telemetry = Telemetry(lambda: 1_000)
    telemetry.hear(PeerAttached(EXPORTER))
    return telemetry


def test_a_report_is_accepted_when_the_exporter_has_taken_what_came_with_it() -> None:
    telemetry, worker = attached(), WorkerState("worker:0")
    worker.accepted = [1, 2]

    telemetry.reported(worker, 1, [ENTRY], 100)
    before = worker.take_accepted(110)
    telemetry.hear(TelemetryTaken(1))
    after = worker.take_accepted(120)

    assert (before, after) == ([2], [1])


def test_an_exporter_that_does_not_read_holds_up_no_worker() -> None:
    telemetry, worker = attached(), WorkerState("worker:0")
    worker.accepted = [1]

    telemetry.reported(worker, 1, [ENTRY], 100)

    assert worker.take_accepted(100 + LONGEST_UNTAKEN_MS) == [1]


def test_at_the_end_no_report_is_held_back() -> None:
    telemetry, worker = attached(), WorkerState("worker:0")
    worker.accepted = [1]
    telemetry.reported(worker, 1, [ENTRY], 100)

    telemetry.close()

    assert worker.take_accepted(101) == [1]


def test_what_the_exporter_had_not_taken_goes_to_the_next_one() -> None:
    telemetry, worker = attached(), WorkerState("worker:0")
    telemetry.reported(worker, 1, [ENTRY], 100)
    telemetry.reported(worker, 2, [ENTRY, ENTRY], 100)
    telemetry.hear(TelemetryTaken(1))

    telemetry.hear(PeerLost(EXPORTER))
    meanwhile = telemetry.reported(worker, 3, [ENTRY], 100)
    again = telemetry.hear(PeerAttached(EXPORTER))

    assert meanwhile == ()
    assert [len(_entries(post)) for post in again] == [2, 1]


def test_what_nobody_reads_is_dropped_and_counted() -> None:
    telemetry, worker = attached(), WorkerState("worker:0")

    kept = telemetry.reported(worker, 1, [ENTRY] * MOST_UNDER_WAY, 0)
    dropped = telemetry.reported(worker, 2, [ENTRY] * 3, 0)
    telemetry.hear(TelemetryTaken(MOST_UNDER_WAY))
    (post,) = telemetry.reported(worker, 3, [ENTRY], 0)

    assert (len(kept), dropped, telemetry.dropped) == (1, (), 3)
    assert isinstance(post.mail, TelemetryGathered)
    assert post.mail.dropped == 3
    assert 2 not in worker.untaken


def test_runs_of_dead_workers_wait_for_an_exporter_so_many_at_the_most() -> None:
    telemetry = Telemetry(lambda: 1_000)
    delivery = Delivery(7, MessageId("m"), TaskName("t"), b"", 1)
    for _ in range(MOST_LOST_MAILS + 5):
        telemetry.note_stray("mail", b"record", Release(delivery), "killed", None)

    before = telemetry.take_lost()
    telemetry.hear(PeerAttached(EXPORTER))
    after = telemetry.take_lost()

    assert before == []
    assert (len(after), telemetry.dropped) == (MOST_LOST_MAILS, 5)
    assert isinstance(after[0].mail, RunsLost)
    assert after[0].mail.runs[0][-1] == 1_000  # when it began is not known


def _entries(post: Post) -> list[object]:
    assert isinstance(post.mail, TelemetryGathered)
    return post.mail.entries
