"""What becomes of the deliveries of a worker that died."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from mqworker.actors.actor import SUPERVISOR, Post
from mqworker.actors.dispatcher.lost_workers import (
    EVIDENCE_WAIT_MS,
    HARD_TIMEOUT,
    PIPE_BROKE,
    release,
    settlements_of_drained,
    settlements_of_lost,
)
from mqworker.actors.dispatcher.workers import Flight, WorkerState
from mqworker.actors.frame import NO_MAIL
from mqworker.actors.mail import (
    DeliveriesFinished,
    KillWorker,
    PeerLost,
    RunDeliveries,
    WorkerExited,
    WorkerReady,
)
from mqworker.actors.run_slot import Begun, mark_of
from mqworker.model.instant import After
from mqworker.model.settlement import Bury, Crash, Release, RetryAt, Settlement, Suspect
from tests.support.dispatcher_stage import Stage, a_record

QUEUE = "default"


def record_with(*, failures: int = 0, crashes: int = 0, max_crashes: str = "3") -> bytes:
    return b"17000000000000--%b000%03d0%did7 shop.resize body" % (max_crashes.encode(), failures, crashes)


def a_worker(*fences: int, threads: int = 1, beside: tuple[int, ...] = (), **facts: int | str) -> WorkerState:
    """A worker with deliveries, the async ones among them as `beside`."""
    worker = WorkerState("worker:0", threads=threads, tasks={"shop.resize": {"retries": 3}})
    for fence in (*fences, *beside):
        is_async = fence in beside
        worker.take(fence, Flight(QUEUE, record_with(**facts), 1.0, is_alone=False, is_async=is_async))
    return worker


def begun(running: tuple[int, ...] = (), ended: tuple[int, ...] = (), last: int | None = None) -> Begun:
    mark = mark_of(QUEUE)
    return Begun(
        frozenset((mark, fence) for fence in running),
        frozenset((mark, fence) for fence in ended),
        None if last is None else (mark, last),
    )


def judged(worker: WorkerState, evidence: Begun, cause: str = "SIGKILL") -> dict[int, type[Settlement]]:
    settlements = settlements_of_lost(worker, evidence, cause).get(QUEUE, [])
    return {each.delivery.fence: type(each) for each in settlements}


def only(worker: WorkerState, evidence: Begun, cause: str = "SIGKILL") -> Settlement:
    (settlement,) = settlements_of_lost(worker, evidence, cause)[QUEUE]
    return settlement


def test_what_was_not_begun_goes_back_uncounted() -> None:
    assert judged(a_worker(1, 2, beside=(3,)), begun()) == {1: Release, 2: Release, 3: Release}


def test_of_a_batch_that_runs_in_order_only_the_one_that_ran_counts() -> None:
    assert judged(a_worker(1, 2, 3), begun(running=(2,), last=2)) == {1: Release, 2: Crash, 3: Release}


def test_what_ran_beside_others_is_under_suspicion_and_what_had_not_begun_is_not() -> None:
    verdicts = judged(a_worker(beside=(1, 2, 3)), begun(running=(1, 3)))

    assert verdicts == {1: Suspect, 2: Release, 3: Suspect}


def test_what_ran_in_threads_is_judged_alike() -> None:
    verdicts = judged(a_worker(1, 2, 3, threads=2), begun(running=(1, 2)))

    assert verdicts == {1: Suspect, 2: Suspect, 3: Release}


def test_a_task_of_the_main_thread_and_those_of_the_event_loop_suspect_one_another() -> None:
    verdicts = judged(a_worker(1, 2, beside=(7, 8)), begun(running=(1, 7), last=1))

    assert verdicts == {1: Suspect, 2: Release, 7: Suspect, 8: Release}


def test_the_only_one_that_ran_is_counted_though_others_waited_or_had_just_ended() -> None:
    verdicts = judged(a_worker(beside=(1, 2, 3)), begun(running=(2,), ended=(1,)))

    assert verdicts == {1: Release, 2: Crash, 3: Release}


def test_traces_of_what_was_reported_long_ago_accuse_nobody() -> None:
    verdicts = judged(a_worker(5, beside=(6,)), begun(running=(6,), ended=(1, 2, 3), last=3))

    assert verdicts == {5: Release, 6: Crash}


def test_a_worker_that_dies_between_two_tasks_died_of_what_it_had_not_reported_yet() -> None:
    assert judged(a_worker(1, 2), begun(ended=(1,), last=1)) == {1: Crash, 2: Release}
    assert judged(a_worker(1, 2, 3), begun(ended=(2,), last=2)) == {1: Suspect, 2: Suspect, 3: Release}


@pytest.mark.parametrize("cause", [f"{PIPE_BROKE} (SIGKILL)", f"{NO_MAIL} (SIGKILL)"])
def test_garbage_in_a_pipe_may_be_of_any_task_whose_report_was_not_read(cause: str) -> None:
    assert judged(a_worker(1, 2, 3), begun(running=(2,), last=2), cause) == {
        1: Suspect,
        2: Suspect,
        3: Release,
    }
    assert judged(a_worker(1, 2), begun(ended=(1,), last=1), cause) == {1: Crash, 2: Release}


def test_the_last_crash_buries_with_the_evidence() -> None:
    verdict = only(a_worker(1, crashes=2), begun(running=(1,), last=1), "SIGSEGV")

    assert isinstance(verdict, Bury)
    assert verdict.reason == "crashed"
    assert verdict.evidence == {"cause": "SIGSEGV"}
    assert verdict.failure is not None
    assert verdict.failure.message == "the worker died over it 3 times: SIGSEGV"


def test_one_crash_is_told_as_once() -> None:
    verdict = only(a_worker(1, max_crashes="1"), begun(running=(1,), last=1), "SIGSEGV")

    assert isinstance(verdict, Bury)
    assert verdict.failure is not None
    assert verdict.failure.message == "the worker died over it once: SIGSEGV"


def test_a_suspect_is_never_buried_however_often_it_crashed_before() -> None:
    assert judged(a_worker(beside=(1, 2), crashes=2), begun(running=(1, 2))) == {1: Suspect, 2: Suspect}


def test_without_a_limit_a_message_may_crash_for_ever() -> None:
    assert judged(a_worker(1, crashes=9, max_crashes="-"), begun(running=(1,), last=1)) == {1: Crash}


def test_a_hard_time_out_is_a_failure_and_is_retried_later_each_time() -> None:
    evidence = begun(running=(1,), last=1)

    pauses = [only(a_worker(1, failures=failures), evidence, HARD_TIMEOUT) for failures in range(3)]

    assert [pause.due for pause in pauses if isinstance(pause, RetryAt)] == [
        After(1_000),
        After(2_000),
        After(4_000),
    ]


def test_a_hard_time_out_after_the_last_retry_buries() -> None:
    verdict = only(a_worker(1, failures=3), begun(running=(1,), last=1), HARD_TIMEOUT)

    assert isinstance(verdict, Bury)
    assert verdict.reason == "timed out"


def test_a_hard_time_out_is_nothing_to_those_beside_it() -> None:
    verdicts = judged(a_worker(1, 2, beside=(7,)), begun(running=(1, 7), last=1), f"{HARD_TIMEOUT} (SIGKILL)")

    assert verdicts == {1: RetryAt, 2: Release, 7: Release}


def test_of_a_worker_that_was_ended_by_a_drain_nothing_is_counted() -> None:
    (settlements,) = settlements_of_drained(a_worker(1, beside=(2,))).values()

    assert [type(each) for each in settlements] == [Release, Release]


def test_bytes_that_are_no_record_are_buried() -> None:
    verdict = release(7, b"garbage")

    assert isinstance(verdict, Bury)
    assert verdict.reason == "undecodable"


def test_a_worker_that_went_on_after_its_pipe_broke_is_looked_at_twice() -> None:
    evidence = begun(running=(1,), last=1).later(begun(running=(2,), ended=(1,), last=2))

    assert judged(a_worker(1, 2, 3), evidence, PIPE_BROKE) == {1: Suspect, 2: Suspect, 3: Release}


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def test_of_a_dead_workers_deliveries_only_the_running_one_is_counted_as_a_crash(stage: Stage) -> None:
    stage.hire("worker:0")
    stage.store.line = [a_record(number) for number in range(4)]
    stage.finish("worker:0", stage.turn()[0])
    batch = cast(RunDeliveries, stage.turn()[0].mail)
    stage.slots.begin(0, "default", batch.fences[1], 0)

    stage.mail(PeerLost("worker:0"))
    stage.mail(WorkerExited("worker:0", "SIGKILL", 0))
    stage.turn()

    arguments = stage.store.settled[-1]
    verdicts = [
        arguments[at : at + 5] for at in range(len(arguments) - 5 * len(batch.fences), len(arguments), 5)
    ]
    assert verdicts == [
        ("again", batch.fences[0], "", 0, 0),
        ("again", batch.fences[1], "", 0, 1),
        ("again", batch.fences[2], "", 0, 0),
    ]


def test_two_queues_that_give_out_the_same_fence_are_not_mixed_up(stage: Stage) -> None:
    stage.hire("worker:0")
    stage.mail(WorkerReady({}, {"default": {"weight": 1}, "mail": {"weight": 1}}, 2, 1), "worker:0")
    worker = stage.dispatcher._workers["worker:0"]
    for queue in ("default", "mail"):
        worker.take(7, Flight(queue, a_record(1), 1.0, is_alone=False, is_async=False))

    stage.mail(DeliveriesFinished("mail", [7], ["done", 7], {}), "worker:0")

    assert list(worker.flights) == [("default", 7)]


def test_a_worker_that_comes_back_before_the_cause_is_known_does_not_hide_what_was_lost(stage: Stage) -> None:
    stage.hire("worker:0")
    stage.store.line = [a_record(1)]
    stage.turn()

    stage.mail(PeerLost("worker:0"))
    stage.hire("worker:0")
    stage.turn()
    settled_early = list(stage.store.settled)
    stage.turn(passed_ms=EVIDENCE_WAIT_MS)

    assert settled_early == []
    assert len(stage.store.settled) == 1


def test_a_worker_whose_pipe_broke_is_killed_before_its_work_is_given_away(stage: Stage) -> None:
    stage.hire("worker:0")
    stage.store.line = [a_record(0)]
    stage.turn()
    stage.mail(PeerLost("worker:0"))

    posts = stage.turn(passed_ms=EVIDENCE_WAIT_MS)
    settled_early = list(stage.store.settled)
    stage.mail(WorkerExited("worker:0", "its pipe broke (SIGKILL)", 0))
    stage.turn()

    assert posts == [Post(SUPERVISOR, KillWorker("worker:0", "its pipe broke"))]
    assert settled_early == []
    assert len(stage.store.settled) == 1


def a_batch(*fences: int, worker: WorkerState | None = None) -> WorkerState:
    """A worker with deliveries that run in one call."""
    worker = worker or a_worker()
    for fence in fences:
        flight = Flight(QUEUE, record_with(), 1.0, is_alone=True, is_async=False)
        flight.together, flight.is_follower = fences[0], fence != fences[0]
        worker.take(fence, flight)
    return worker


def most_next_time(worker: WorkerState, evidence: Begun) -> dict[int, int]:
    settlements = settlements_of_lost(worker, evidence, "SIGKILL")[QUEUE]
    return {each.delivery.fence: each.most for each in settlements if isinstance(each, Suspect)}


def test_what_ran_in_one_call_runs_again_with_half_of_it() -> None:
    batch = tuple(range(10, 19))

    assert most_next_time(a_batch(*batch), begun(running=(10,), last=10)) == dict.fromkeys(batch, 8)
    assert most_next_time(a_batch(4, 5), begun(running=(4,), last=4)) == {4: 1, 5: 1}


def test_a_batch_of_one_is_judged_like_any_other_delivery() -> None:
    assert judged(a_batch(4), begun(running=(4,), last=4)) == {4: Crash}


def test_a_batch_whose_first_one_was_taken_back_is_found_by_the_one_that_began_it() -> None:
    worker = a_batch(4, 5, 6)
    worker.drop(QUEUE, 4)

    assert most_next_time(worker, begun(running=(5,), last=5)) == {5: 1, 6: 1}


def test_a_batch_that_waited_behind_another_is_under_no_suspicion() -> None:
    worker = a_batch(4, 5, 6, worker=a_batch(1, 2, 3))

    assert judged(worker, begun(running=(1,), last=1)) == dict.fromkeys((1, 2, 3), Suspect) | dict.fromkeys(
        (4, 5, 6), Release
    )


def test_a_batch_that_ran_too_long_has_failed_row_by_row() -> None:
    verdicts = judged(a_batch(1, 2), begun(running=(1,), last=1), "hard time-out (SIGKILL)")

    assert verdicts == {1: RetryAt, 2: RetryAt}


def test_a_batch_takes_one_thread_and_one_place_on_the_event_loop() -> None:
    worker = a_batch(1, 2, 3, worker=a_worker(threads=2))
    assert (worker.is_idle, worker.followers) == (True, 2)
    worker.concurrency = 2
    for fence in (7, 8, 9):
        flight = Flight(QUEUE, record_with(), 1.0, is_alone=False, is_async=True)
        flight.together, flight.is_follower = 7, fence != 7
        worker.take(fence, flight)
    assert (worker.asynchronous, worker.followers) == (1, 4)

    worker.drop_several(QUEUE, [8, 7, 2, 9, 1, 3])

    assert (worker.asynchronous, worker.followers, worker.alone, worker.busy_ms) == (0, 0, 0, 0.0)
