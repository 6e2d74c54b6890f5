"""Whether a child's main loop turns: one ping at a time, and what silence leads to."""

import pytest

from mqworker.supervisor.liveness import (
    ChildAction,
    LivenessLimits,
    Vitals,
    check_process,
    check_server,
    check_worker,
)

LIMITS = LivenessLimits()


@pytest.mark.parametrize("check", [check_process, check_worker, check_server])
def test_a_ready_child_is_pinged_at_once_and_a_second_after_each_answer(check: object) -> None:
    assert callable(check)

    assert check(Vitals(0, ready_at_ms=10), LIMITS, 10) is ChildAction.PING
    answered = Vitals(0, ready_at_ms=10, ponged_at_ms=20, pings=1)
    assert check(answered, LIMITS, 1_019) is ChildAction.FINE
    assert check(answered, LIMITS, 1_020) is ChildAction.PING


@pytest.mark.parametrize("check", [check_process, check_worker, check_server])
def test_no_second_ping_is_sent_while_one_is_unanswered(check: object) -> None:
    assert callable(check)

    assert check(Vitals(0, ready_at_ms=10, pinged_at_ms=20, pings=1), LIMITS, 4_000) is ChildAction.FINE


def test_silence_ends_a_process() -> None:
    silent = Vitals(0, ready_at_ms=10, pinged_at_ms=1_000, pings=1)
    assert check_process(silent, LIMITS, 6_000) is ChildAction.ABORT

    silent.aborted_at_ms = 6_000
    assert check_process(silent, LIMITS, 7_999) is ChildAction.FINE
    assert check_process(silent, LIMITS, 8_000) is ChildAction.KILL


def test_a_process_that_waited_for_a_cpu_has_that_time_on_top() -> None:
    starved = Vitals(0, ready_at_ms=10, pinged_at_ms=1_000, pings=1, starved_ms=4_000)

    assert check_process(starved, LIMITS, 9_999) is ChildAction.FINE
    assert check_process(starved, LIMITS, 10_000) is ChildAction.ABORT
    assert check_process(Vitals(0, starved_ms=4_000), LIMITS, 13_999) is ChildAction.FINE
    assert check_worker(Vitals(0, starved_ms=4_000), LIMITS, 123_999) is ChildAction.FINE


def test_silence_does_not_end_a_worker_or_a_server_that_loads() -> None:
    silent = Vitals(0, ready_at_ms=10, pinged_at_ms=1_000, pings=1)

    assert check_worker(silent, LIMITS, 10_000_000) is ChildAction.FINE
    assert check_server(silent, LIMITS, 10_000_000) is ChildAction.FINE


def test_a_child_must_be_ready_in_time_but_imports_may_take_longer() -> None:
    assert check_process(Vitals(0), LIMITS, 10_000) is ChildAction.ABORT
    assert check_worker(Vitals(0), LIMITS, 10_000) is ChildAction.FINE
    assert check_worker(Vitals(0), LIMITS, 120_000) is ChildAction.ABORT
    assert check_server(Vitals(0), LIMITS, 10_000_000) is ChildAction.FINE
