"""The worker's actor, without a process: what it begins by itself, and what it leaves alone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from mqworker import App, Batch
from mqworker.actors.early_start.take import LISTEN_AFTER_MS, TRY_AGAIN_MS, EarlyStart
from mqworker.actors.early_start.tickets import CANCELLED, Tickets
from mqworker.actors.mail import (
    CancelDelivery,
    DeliveriesFinished,
    DeliveriesReturned,
    Drain,
    PeerAttached,
    PeerLost,
    ReportsAccepted,
    RunDeliveries,
    StandReady,
    WorkerReady,
)
from mqworker.actors.run_slot import RunSlots, mark_of
from mqworker.actors.worker.lifetime import WorkerLimits
from mqworker.actors.worker.process import readiness
from mqworker.actors.worker.report import Report
from mqworker.actors.worker.worker import DISPATCHER, Worker
from mqworker.errors import StoreUnavailable
from mqworker.log import get_logger
from mqworker.model.clock import ManualClock
from mqworker.model.envelope import encode_call
from mqworker.model.message import Message
from mqworker.model.names import MessageId, TaskName
from mqworker.model.quarantine import Quarantine
from mqworker.model.record import plain_record_tail
from mqworker.queues.work.calls import WorkQueueCalls, WorkQueueOptions
from mqworker.settings import Settings
from mqworker.store.store import Store
from mqworker.tasks.running.run import TaskRunner
from tests.support.dispatcher_stage import ScriptedStore

CHANNEL = "mqw:{default}:begin:node-1:0"
TICKET = 17


class Stage:
    """A worker with a clock, a store that speaks when it is told to, and tasks that leave a trace."""

    def __init__(self, directory: Path) -> None:
        path = str(directory / "slots")
        self.slots, self.tickets, self.clock = RunSlots(path), Tickets(path), ManualClock()
        self.store = ScriptedStore()
        self.ran: list[str] = []
        self.quarantine = Quarantine()
        self.now_ms = 1_000
        app = App("shop")
        app.task(name="quick")(lambda: self.ran.append("quick"))
        app.task(name="ten_ms")(lambda: self.clock.advance(ms=10))
        self.batches: list[list[int]] = []
        app.task(name="rows", batch=Batch(size=10))(self._rows)
        app.task(name="once", delivery="at_most_once")(lambda: self.ran.append("once"))
        self.worker = Worker(
            "worker:0",
            0,
            TaskRunner(app.registry, worker="worker:0", node="n", clock=self.clock),
            readiness(app, Settings()),
            slots=self.slots,
            early_start=EarlyStart(0, self.tickets, self._open_store, get_logger(), self.quarantine),
            report=Report(lambda queue: WorkQueueCalls(queue, WorkQueueOptions()), {}, frozenset()),
            limits=WorkerLimits(None, None, lambda: 0),
            announcements=(),
            clock=self.clock,
            log=get_logger(),
        )

    def listen(self) -> None:
        self.worker.handle(StandReady({CHANNEL: "default"}), DISPATCHER, self.now_ms)
        self.dial(LISTEN_AFTER_MS)

    def dial(self, passed_ms: int) -> None:
        """Let a thread subscribe, and see what came of it."""
        self.turn(passed_ms)
        for thread in threading.enumerate():
            if thread.name == "early-start":
                thread.join()
        self.turn()

    def turn(self, passed_ms: int = 0) -> list[int]:
        """The fences it reported."""
        self.now_ms += passed_ms
        mails = [post.mail for post in self.worker.turn(self.now_ms)]
        return [fence for mail in mails if isinstance(mail, DeliveriesFinished) for fence in mail.fences]

    def hand_over(self, fence: int, task: str = "quick", ticket: int = TICKET) -> None:
        self.store.calls.append((CHANNEL, b"%d 0:%d:%016x %b" % (fence, ticket, fence, a_record(task))))

    def _rows(self, rows: list[int]) -> None:
        self.batches.append(rows)

    def _open_store(self) -> Store:
        return cast(Store, self.store)


def a_record(task: str) -> bytes:
    message = Message(MessageId("m1"), encode_call((), {}), TaskName(task))
    return b"1700000000000" + plain_record_tail(message)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    yield stage
    stage.worker.close()


def test_the_dispatcher_is_told_how_often_each_task_may_be_lost() -> None:
    app = App("shop")
    for name, options in (("set", {}), ("own", {"max_losses": 2}), ("endless", {"max_losses": None})):
        app.task(name=name, **options)(lambda: None)

    ready = readiness(app, Settings(max_losses=7))

    assert {name: task["max_losses"] for name, task in ready.tasks.items()} == {
        "set": 7,
        "own": 2,
        "endless": None,
    }


def test_what_it_ran_stays_readable_after_its_report_was_sent(stage: Stage) -> None:
    stage.worker.handle(
        RunDeliveries("default", [7, 8], [a_record("quick"), a_record("quick")]), "dispatcher", 0
    )

    assert stage.turn() == [7, 8]
    assert stage.slots.running(0) is None
    assert stage.slots.begun(0).last_in_order == (mark_of("default"), 8)


def test_a_new_worker_leaves_the_evidence_of_the_one_before_it(stage: Stage) -> None:
    stage.slots.begin(0, "default", 7, 0)  # and died over it

    stage.turn()
    running = stage.slots.running(0)

    assert running is not None
    assert running.fence == 7


def test_it_begins_by_itself_what_comes_with_its_ticket(stage: Stage) -> None:
    stage.listen()
    stage.tickets.issue(0, TICKET)

    stage.hand_over(900)

    assert stage.turn() == [900]
    assert stage.ran == ["quick"]
    assert stage.tickets.cancel(0, TICKET) != CANCELLED


def test_one_ticket_is_good_for_one_message(stage: Stage) -> None:
    stage.listen()
    stage.tickets.issue(0, TICKET)

    stage.hand_over(900)
    stage.hand_over(901)

    assert stage.turn() == [900]
    assert stage.turn() == []


def test_a_ticket_that_came_with_something_unwanted_is_used_up(stage: Stage) -> None:
    stage.listen()
    stage.tickets.issue(0, TICKET)

    stage.hand_over(900, "unknown")
    stage.hand_over(901, "quick")

    assert stage.turn() == []
    assert stage.ran == []


def test_what_comes_with_another_ticket_is_left_to_the_dispatcher(stage: Stage) -> None:
    stage.listen()
    stage.tickets.issue(0, TICKET + 1)

    stage.hand_over(900)

    assert stage.turn() == []
    assert stage.ran == []


def test_what_may_run_once_makes_an_early_start_too_for_its_start_is_acknowledged(stage: Stage) -> None:
    stage.listen()
    stage.tickets.issue(0, TICKET)

    stage.hand_over(900, "once")

    assert stage.turn() == [900]
    assert stage.ran == ["once"]


def test_a_task_that_it_does_not_know_is_left_to_the_dispatcher(stage: Stage) -> None:
    stage.listen()
    stage.tickets.issue(0, TICKET)

    stage.hand_over(900, "unknown")

    assert stage.turn() == []
    assert stage.tickets.cancel(0, TICKET) == CANCELLED


def test_a_worker_that_leaves_begins_nothing_more(stage: Stage) -> None:
    stage.listen()
    stage.tickets.issue(0, TICKET)
    stage.worker.handle(Drain(0), DISPATCHER, stage.now_ms)

    stage.hand_over(900)

    assert stage.turn() == []
    assert stage.worker.is_done


def test_a_worker_with_something_in_its_hands_begins_nothing_by_itself(stage: Stage) -> None:
    stage.listen()
    stage.tickets.issue(0, TICKET)
    stage.worker.handle(RunDeliveries("default", [1], [a_record("quick")]), DISPATCHER, stage.now_ms)

    stage.hand_over(900)

    assert stage.turn() == [1]
    assert stage.tickets.cancel(0, TICKET) == CANCELLED


def test_it_listens_no_longer_than_its_dispatcher_lives(stage: Stage) -> None:
    stage.listen()
    listening = stage.worker.watched()

    stage.worker.handle(PeerLost(DISPATCHER), "supervisor", stage.now_ms)

    assert len(list(listening)) == len(list(stage.worker.watched())) + 1
    assert stage.worker.next_turn_in_ms(stage.now_ms) == 1_000


def test_a_server_that_is_away_is_asked_again_after_a_while(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts: list[int] = []

    def refuse(_channels: object) -> ScriptedStore:
        attempts.append(stage.now_ms)
        raise StoreUnavailable("away")

    monkeypatch.setattr(stage.store, "subscribe", refuse)
    stage.listen()
    stage.turn()
    stage.dial(TRY_AGAIN_MS - 1)
    monkeypatch.undo()
    stage.dial(1)
    stage.tickets.issue(0, TICKET)
    stage.hand_over(900)

    assert len(attempts) == 1
    assert stage.turn() == [900]


def test_a_delivery_whose_permit_ended_in_its_hands_is_given_back_unbegun(stage: Stage) -> None:
    now_ms = stage.clock.monotonic_ms()
    permits = {901: now_ms + 100, 902: now_ms + 201}
    stage.worker.handle(
        RunDeliveries("default", [900, 901, 902], [a_record("quick")] * 3, permits), DISPATCHER, now_ms
    )

    stage.clock.advance(ms=100)  # the worker was stopped
    report, _counted = [post.mail for post in stage.worker.turn(stage.now_ms)]

    assert stage.ran == ["quick", "quick"]  # one that needs no permit, one whose permit is good still
    assert isinstance(report, DeliveriesFinished)
    assert sorted(report.fences) == [900, 901, 902]
    assert report.arguments.count("again") == 1
    assert stage.worker.facts()["unpermitted"] == 1


# Without a dispatcher


def greeting(stage: Stage) -> tuple[WorkerReady, list[DeliveriesFinished]]:
    """What it says to the next dispatcher."""
    stage.worker.handle(PeerLost(DISPATCHER), "supervisor", stage.now_ms)
    first, *others = [
        post.mail
        for post in stage.worker.handle(PeerAttached(DISPATCHER), "supervisor", stage.now_ms)
        if isinstance(post.mail, WorkerReady | DeliveriesFinished)
    ]
    assert isinstance(first, WorkerReady)
    return first, [mail for mail in others if isinstance(mail, DeliveriesFinished)]


def run_quick(stage: Stage, *fences: int, accepted: tuple[int, ...] = ()) -> None:
    records = [a_record("quick") for _ in fences]
    mail = RunDeliveries("default", list(fences), records, accepted=list(accepted))
    stage.worker.handle(mail, DISPATCHER, stage.now_ms)


def test_it_goes_on_with_what_it_has_when_its_dispatcher_is_lost(stage: Stage) -> None:
    run_quick(stage, 1, 2)

    stage.worker.handle(PeerLost(DISPATCHER), "supervisor", stage.now_ms)

    assert stage.turn() == [1, 2]


def test_it_tells_the_next_dispatcher_what_it_has_not_begun(stage: Stage) -> None:
    run_quick(stage, 1, 2)

    ready, reports = greeting(stage)

    assert ready.held == [["default", 1, "quick", b"", 0], ["default", 2, "quick", b"", 0]]
    assert reports == []


def test_it_reports_again_what_nobody_has_accepted(stage: Stage) -> None:
    run_quick(stage, 1, 2)
    stage.turn()

    ready, reports = greeting(stage)

    assert [entry[1] for entry in ready.held] == [1, 2]
    assert [(mail.fences, mail.number) for mail in reports] == [([1, 2], 1)]


@pytest.mark.parametrize("is_with_work", [True, False], ids=["with work", "alone"])
def test_it_forgets_what_was_accepted_and_nothing_else(stage: Stage, *, is_with_work: bool) -> None:
    for fence in (1, 2, 3):
        run_quick(stage, fence)
        stage.turn()

    if is_with_work:
        run_quick(stage, 4, accepted=(1, 3))
    else:
        stage.worker.handle(ReportsAccepted([1, 3]), DISPATCHER, stage.now_ms)
    _, reports = greeting(stage)

    assert [mail.fences for mail in reports] == [[2]]


def test_it_begins_nothing_more_before_the_next_dispatcher_has_answered(stage: Stage) -> None:
    run_quick(stage, 1, 2)
    greeting(stage)

    before = stage.turn()
    stage.worker.handle(StandReady({}, [["default", 1]]), DISPATCHER, stage.now_ms)

    assert (before, stage.turn()) == ([], [2])
    assert stage.ran == ["quick"]


def test_it_gives_back_what_is_stale(stage: Stage) -> None:
    run_quick(stage, 1, 2)
    greeting(stage)

    posts = stage.worker.handle(StandReady({}, [["default", 1]]), DISPATCHER, stage.now_ms)

    assert [post.mail for post in posts] == [DeliveriesReturned("default", [1])]


def test_it_does_not_leave_before_its_report_is_accepted(stage: Stage) -> None:
    run_quick(stage, 1)
    stage.worker.handle(Drain(0), DISPATCHER, stage.now_ms)
    stage.turn()
    is_done_before = stage.worker.is_done

    stage.worker.handle(ReportsAccepted([1]), DISPATCHER, stage.now_ms)
    stage.turn()

    assert (is_done_before, stage.worker.is_done) == (False, True)


def test_it_leaves_at_once_when_the_supervisor_says_so_for_nobody_is_left_to_accept(stage: Stage) -> None:
    run_quick(stage, 1)
    stage.turn()
    stage.worker.handle(Drain(0), "supervisor", stage.now_ms)
    stage.turn()

    assert stage.worker.is_done


@pytest.mark.parametrize(("stint_ms", "reported"), [(10, [1]), (40, [1, 2, 3, 4])])
def test_it_reports_after_as_long_as_the_dispatcher_says(
    stage: Stage, stint_ms: int, reported: list[int]
) -> None:
    records = [a_record("ten_ms")] * 5
    stage.now_ms = stage.clock.monotonic_ms()
    stage.worker.handle(
        RunDeliveries("default", [1, 2, 3, 4, 5], records, stint_ms=stint_ms), DISPATCHER, stage.now_ms
    )

    assert stage.turn() == reported


def test_the_word_that_it_listens_to_a_channel_now_is_no_rubbish(stage: Stage) -> None:
    stage.listen()
    stage.store.calls.append((CHANNEL, b""))

    stage.turn()

    assert not stage.quarantine.facts()


def rows_record(row: int) -> bytes:
    message = Message(MessageId(f"m{row}"), encode_call((row,), {}), TaskName("rows"))
    return b"1700000000000" + plain_record_tail(message)


def take_together(stage: Stage, *records: bytes) -> None:
    mail = RunDeliveries("default", list(range(1, len(records) + 1)), list(records), are_together=True)
    stage.worker.handle(mail, DISPATCHER, stage.now_ms)


def test_what_comes_together_runs_in_one_call_and_is_reported_one_by_one(stage: Stage) -> None:
    take_together(stage, *map(rows_record, (5, 6, 7)))

    assert stage.turn() == [1, 2, 3]
    assert stage.batches == [[5, 6, 7]]


def test_two_batches_stay_two(stage: Stage) -> None:
    take_together(stage, *map(rows_record, (5, 6)))
    mail = RunDeliveries("default", [8, 9], [rows_record(7), rows_record(8)], are_together=True)
    stage.worker.handle(mail, DISPATCHER, stage.now_ms)

    assert stage.turn() == [1, 2, 8, 9]
    assert stage.batches == [[5, 6], [7, 8]]


def test_what_cannot_be_read_or_was_cancelled_is_no_part_of_its_batch(stage: Stage) -> None:
    take_together(stage, rows_record(5), b"forged rows body", rows_record(7), rows_record(8))
    stage.worker.handle(CancelDelivery("m5"), DISPATCHER, stage.now_ms)

    assert sorted(stage.turn()) == [1, 2, 3, 4]
    assert stage.batches == [[7, 8]]


def test_a_delivery_that_comes_alone_is_a_batch_of_one(stage: Stage) -> None:
    mail = RunDeliveries("default", [1], [rows_record(5)])
    stage.worker.handle(mail, DISPATCHER, stage.now_ms)

    assert stage.turn() == [1]
    assert stage.batches == [[5]]


def test_what_comes_together_for_a_task_without_batches_runs_one_by_one(stage: Stage) -> None:
    take_together(stage, a_record("quick"), a_record("quick"))

    assert stage.turn() == [1, 2]
    assert stage.ran == ["quick", "quick"]


def test_the_next_dispatcher_hears_what_runs_together(stage: Stage) -> None:
    take_together(stage, *map(rows_record, (5, 6)))
    run_quick(stage, 7)

    ready, _ = greeting(stage)

    assert [(fence, together) for _, fence, _, _, together in ready.held] == [(1, 1), (2, 1), (7, 0)]


def test_no_early_start_is_made_of_what_is_to_be_gathered(stage: Stage) -> None:
    assert stage.worker._may_begin(a_record("quick"))
    assert not stage.worker._may_begin(rows_record(5))
