"""Who is told to stop, who is asked what it has, and which worker is killed."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from mqworker.actors import cpu_wait
from mqworker.actors.actor import SUPERVISOR, Post
from mqworker.actors.cpu_wait import ThreadTimes
from mqworker.actors.dispatcher.worker_care import (
    ANSWER_WITHIN_MS,
    ASK_AFTER_MS,
    Stop,
    posts_to_stop,
    stop_in,
)
from mqworker.actors.dispatcher.workers import Flight, Workers
from mqworker.actors.mail import (
    CancelDelivery,
    DeliveriesListed,
    KillWorker,
    ListDeliveries,
    RunDeliveries,
)
from mqworker.actors.run_slot import RunSlots
from tests.support.dispatcher_stage import Stage, a_record

TOLD = [Post("worker:1", CancelDelivery("m1"))]
KILLED = Post(SUPERVISOR, KillWorker("worker:1", "cancelled"))


@pytest.fixture
def slots(tmp_path: Path) -> RunSlots:
    return RunSlots(str(tmp_path / "slots"))


def some_workers(*, is_async: bool = False) -> Workers:
    workers = Workers()
    workers.join("worker:0").take(1, Flight("mail", record_of("m10"), 1.0, is_alone=False, is_async=False))
    workers.join("worker:1").take(2, Flight("mail", record_of("m1"), 1.0, is_alone=False, is_async=is_async))
    return workers


def record_of(message: str) -> bytes:
    return b"1700000000000" + b"0--300000000" + message.encode() + b" shop.send body"


def test_a_wake_up_is_a_wish_to_stop_or_something_else() -> None:
    assert stop_in(b"cancel m1") == Stop(b"m1", is_kill=False)
    assert stop_in(b"kill m1") == Stop(b"m1", is_kill=True)
    assert stop_in(b"ready") is None


def test_only_who_has_the_message_is_told(slots: RunSlots) -> None:
    assert list(posts_to_stop(Stop(b"m1", is_kill=False), some_workers(), slots)) == TOLD


def test_a_worker_is_killed_for_what_it_runs(slots: RunSlots) -> None:
    slots.begin(1, "mail", 2, 0)

    assert list(posts_to_stop(Stop(b"m1", is_kill=True), some_workers(), slots)) == [*TOLD, KILLED]


def test_a_worker_is_not_killed_for_what_waits_behind_something_else(slots: RunSlots) -> None:
    slots.begin(1, "mail", 77, 0)

    assert list(posts_to_stop(Stop(b"m1", is_kill=True), some_workers(), slots)) == TOLD


def test_of_what_runs_on_an_event_loop_the_worker_is_killed(slots: RunSlots) -> None:
    assert list(posts_to_stop(Stop(b"m1", is_kill=True), some_workers(is_async=True), slots)) == [
        *TOLD,
        KILLED,
    ]


def test_a_wish_without_a_message_reaches_nobody(slots: RunSlots) -> None:
    assert list(posts_to_stop(Stop(b"", is_kill=True), some_workers(), slots)) == []


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def a_batch(stage: Stage, count: int = 8) -> RunDeliveries:
    """Quick deliveries of one worker; nothing more is claimed."""
    stage.hire("worker:0")
    stage.store.line = [a_record(number) for number in range(count + 1)]
    stage.finish("worker:0", stage.turn()[0])
    batch = cast(RunDeliveries, stage.turn()[0].mail)
    assert len(batch.fences) == count
    return batch


def test_a_silent_worker_is_asked_what_it_has_and_what_it_does_not_list_comes_back(stage: Stage) -> None:
    batch = a_batch(stage)
    (asked,) = stage.turn(passed_ms=ASK_AFTER_MS)
    question = cast(ListDeliveries, asked.mail)
    stage.store.settled.clear()

    stage.mail(DeliveriesListed(question.number, {"default": batch.fences[:2]}), "worker:0")
    stage.turn()

    released = [
        int(call[at + 1]) for call in stage.store.settled for at, part in enumerate(call) if part == "again"
    ]
    assert released == batch.fences[2:], "in the order of delivery"
    assert [fence for _, fence in stage.dispatcher._workers["worker:0"].flights] == batch.fences[:2]
    assert stage.dispatcher.facts()["missing"] == len(batch.fences) - 2


def test_what_was_handed_out_after_the_question_is_not_missed_in_the_answer(stage: Stage) -> None:
    batch = a_batch(stage, 3)
    (asked,) = stage.turn(passed_ms=ASK_AFTER_MS)
    worker = stage.dispatcher._workers["worker:0"]
    worker.take(900, Flight("default", a_record(9), 1.0, is_alone=False, is_async=False))

    stage.mail(
        DeliveriesListed(cast(ListDeliveries, asked.mail).number, {"default": batch.fences}), "worker:0"
    )

    assert [fence for _, fence in worker.flights] == [*batch.fences, 900]


def test_a_list_that_nobody_asked_for_or_that_comes_twice_takes_nothing_away(stage: Stage) -> None:
    batch = a_batch(stage, 3)
    (asked,) = stage.turn(passed_ms=ASK_AFTER_MS)
    number = cast(ListDeliveries, asked.mail).number

    stage.mail(DeliveriesListed(number + 1, {}), "worker:0")
    stage.mail(DeliveriesListed(number, {"default": batch.fences}), "worker:0")
    stage.mail(DeliveriesListed(number, {}), "worker:0")

    assert [fence for _, fence in stage.dispatcher._workers["worker:0"].flights] == batch.fences


def test_an_idle_worker_that_does_not_answer_is_killed_and_named_before(stage: Stage) -> None:
    a_batch(stage)
    stage.turn(passed_ms=ASK_AFTER_MS)

    early = stage.turn(passed_ms=ANSWER_WITHIN_MS - 1)
    facts = stage.dispatcher.facts()
    posts = stage.turn(passed_ms=1)

    assert early == []
    assert facts["unanswered_ms"] == {"worker:0": ANSWER_WITHIN_MS - 1}
    assert facts["busy"] == []
    assert [post.mail.worker for post in posts if isinstance(post.mail, KillWorker)] == ["worker:0"]


def test_a_worker_that_runs_a_task_and_does_not_answer_is_left_alone(stage: Stage) -> None:
    batch = a_batch(stage)
    stage.slots.begin(0, "default", batch.fences[0], 0)
    stage.turn(passed_ms=ASK_AFTER_MS)

    posts = stage.turn(passed_ms=10 * ANSWER_WITHIN_MS)

    assert posts == []
    assert stage.dispatcher.facts()["busy"] == ["worker:0"]


def test_a_hard_time_out_asks_the_supervisor_to_kill_that_worker(stage: Stage) -> None:
    stage.hire("worker:0")
    stage.store.line = [a_record(1)]
    fence = cast(RunDeliveries, stage.turn()[0].mail).fences[0]
    stage.slots.begin(0, "default", fence, stage.now_ms + 50)

    early = stage.turn(passed_ms=49)
    late = stage.turn(passed_ms=2)

    assert Post(SUPERVISOR, KillWorker("worker:0", "hard time-out")) not in early
    assert Post(SUPERVISOR, KillWorker("worker:0", "hard time-out")) in late


def test_a_worker_that_waits_for_a_cpu_is_not_killed_until_it_has_had_time_to_answer(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = {1: ThreadTimes(0, 0, is_ready=False)}
    monkeypatch.setattr(cpu_wait, "times_of", lambda _pid: dict(times))
    a_batch(stage)
    stage.turn(passed_ms=ASK_AFTER_MS)
    times[1] = ThreadTimes(1_000_000, 7_000 * 1_000_000, is_ready=False)

    killed = [killed_in(stage.turn(passed_ms=ms)) for ms in (ANSWER_WITHIN_MS, 6_999, 1)]

    assert killed == [[], [], ["worker:0"]]


def killed_in(posts: list[Post]) -> list[str]:
    return [post.mail.worker for post in posts if isinstance(post.mail, KillWorker)]
