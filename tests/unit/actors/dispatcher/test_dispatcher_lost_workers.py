"""What becomes of the deliveries of a worker that died."""

from __future__ import annotations

import pytest

from mqworker.actors.dispatcher.lost_workers import (
    HARD_TIMEOUT,
    PIPE_BROKE,
    release,
    settlements_of_drained,
    settlements_of_lost,
)
from mqworker.actors.dispatcher.workers import Flight, Hand
from mqworker.actors.frame import NO_MAIL
from mqworker.actors.run_slot import Begun, mark_of
from mqworker.model.instant import After
from mqworker.model.settlement import Bury, Crash, Release, Retry, Settlement, Suspect

QUEUE = "default"


def a_record(*, failures: int = 0, crashes: int = 0, max_crashes: str = "3") -> bytes:
    return b"17000000000000--%b000%03d0%did7 shop.resize body" % (max_crashes.encode(), failures, crashes)


def a_hand(*fences: int, threads: int = 1, beside: tuple[int, ...] = (), **facts: int | str) -> Hand:
    """A worker with deliveries, the async ones among them as `beside`."""
    hand = Hand("worker:0", threads=threads, tasks={"shop.resize": {"retries": 3}})
    for fence in (*fences, *beside):
        is_async = fence in beside
        hand.take(fence, Flight(QUEUE, a_record(**facts), 1.0, is_alone=False, is_async=is_async))
    return hand


def begun(running: tuple[int, ...] = (), ended: tuple[int, ...] = (), last: int | None = None) -> Begun:
    mark = mark_of(QUEUE)
    return Begun(
        frozenset((mark, fence) for fence in running),
        frozenset((mark, fence) for fence in ended),
        None if last is None else (mark, last),
    )


def judged(hand: Hand, evidence: Begun, cause: str = "SIGKILL") -> dict[int, type[Settlement]]:
    settlements = settlements_of_lost(hand, evidence, cause).get(QUEUE, [])
    return {each.delivery.fence: type(each) for each in settlements}


def only(hand: Hand, evidence: Begun, cause: str = "SIGKILL") -> Settlement:
    (settlement,) = settlements_of_lost(hand, evidence, cause)[QUEUE]
    return settlement


def test_what_was_not_begun_goes_back_uncounted() -> None:
    assert judged(a_hand(1, 2, beside=(3,)), begun()) == {1: Release, 2: Release, 3: Release}


def test_of_a_batch_that_runs_in_order_only_the_one_that_ran_counts() -> None:
    assert judged(a_hand(1, 2, 3), begun(running=(2,), last=2)) == {1: Release, 2: Crash, 3: Release}


def test_what_ran_beside_others_is_under_suspicion_and_what_had_not_begun_is_not() -> None:
    verdicts = judged(a_hand(beside=(1, 2, 3)), begun(running=(1, 3)))

    assert verdicts == {1: Suspect, 2: Release, 3: Suspect}


def test_what_ran_in_threads_is_judged_alike() -> None:
    verdicts = judged(a_hand(1, 2, 3, threads=2), begun(running=(1, 2)))

    assert verdicts == {1: Suspect, 2: Suspect, 3: Release}


def test_a_task_of_the_main_thread_and_those_of_the_event_loop_suspect_one_another() -> None:
    verdicts = judged(a_hand(1, 2, beside=(7, 8)), begun(running=(1, 7), last=1))

    assert verdicts == {1: Suspect, 2: Release, 7: Suspect, 8: Release}


def test_the_only_one_that_ran_is_counted_though_others_waited_or_had_just_ended() -> None:
    verdicts = judged(a_hand(beside=(1, 2, 3)), begun(running=(2,), ended=(1,)))

    assert verdicts == {1: Release, 2: Crash, 3: Release}


def test_traces_of_what_was_reported_long_ago_accuse_nobody() -> None:
    verdicts = judged(a_hand(5, beside=(6,)), begun(running=(6,), ended=(1, 2, 3), last=3))

    assert verdicts == {5: Release, 6: Crash}


def test_a_worker_that_dies_between_two_tasks_died_of_what_it_had_not_reported_yet() -> None:
    assert judged(a_hand(1, 2), begun(ended=(1,), last=1)) == {1: Crash, 2: Release}
    assert judged(a_hand(1, 2, 3), begun(ended=(2,), last=2)) == {1: Suspect, 2: Suspect, 3: Release}


@pytest.mark.parametrize("cause", [f"{PIPE_BROKE} (SIGKILL)", f"{NO_MAIL} (SIGKILL)"])
def test_garbage_in_a_pipe_may_be_of_any_task_whose_report_was_not_read(cause: str) -> None:
    assert judged(a_hand(1, 2, 3), begun(running=(2,), last=2), cause) == {1: Suspect, 2: Suspect, 3: Release}
    assert judged(a_hand(1, 2), begun(ended=(1,), last=1), cause) == {1: Crash, 2: Release}


def test_the_last_crash_buries_with_the_evidence() -> None:
    verdict = only(a_hand(1, crashes=2), begun(running=(1,), last=1), "SIGSEGV")

    assert isinstance(verdict, Bury)
    assert verdict.reason == "crashed"
    assert verdict.evidence == {"cause": "SIGSEGV"}
    assert verdict.failure is not None
    assert verdict.failure.message == "the worker died over it 3 times: SIGSEGV"


def test_a_suspect_is_never_buried_however_often_it_crashed_before() -> None:
    assert judged(a_hand(beside=(1, 2), crashes=2), begun(running=(1, 2))) == {1: Suspect, 2: Suspect}


def test_without_a_limit_a_message_may_crash_for_ever() -> None:
    assert judged(a_hand(1, crashes=9, max_crashes="-"), begun(running=(1,), last=1)) == {1: Crash}


def test_a_hard_time_out_is_a_failure_and_is_retried_later_each_time() -> None:
    evidence = begun(running=(1,), last=1)

    pauses = [only(a_hand(1, failures=failures), evidence, HARD_TIMEOUT) for failures in range(3)]

    assert [pause.due for pause in pauses if isinstance(pause, Retry)] == [
        After(1_000),
        After(2_000),
        After(4_000),
    ]


def test_a_hard_time_out_after_the_last_retry_buries() -> None:
    verdict = only(a_hand(1, failures=3), begun(running=(1,), last=1), HARD_TIMEOUT)

    assert isinstance(verdict, Bury)
    assert verdict.reason == "timed out"


def test_a_hard_time_out_is_nothing_to_those_beside_it() -> None:
    verdicts = judged(a_hand(1, 2, beside=(7,)), begun(running=(1, 7), last=1), f"{HARD_TIMEOUT} (SIGKILL)")

    assert verdicts == {1: Retry, 2: Release, 7: Release}


def test_of_a_worker_that_was_ended_by_a_drain_nothing_is_counted() -> None:
    (settlements,) = settlements_of_drained(a_hand(1, beside=(2,))).values()

    assert [type(each) for each in settlements] == [Release, Release]


def test_bytes_that_are_no_record_are_buried() -> None:
    verdict = release(7, b"garbage")

    assert isinstance(verdict, Bury)
    assert verdict.reason == "undecodable"


def test_a_worker_that_went_on_after_its_pipe_broke_is_looked_at_twice() -> None:
    evidence = begun(running=(1,), last=1).later(begun(running=(2,), ended=(1,), last=2))

    assert judged(a_hand(1, 2, 3), evidence, PIPE_BROKE) == {1: Suspect, 2: Suspect, 3: Release}
