"""What becomes of a delivery whose worker died with it."""

from mqworker.actors.dispatcher.verdicts import HARD_TIMEOUT, verdict_on_lost_flight
from mqworker.model.instant import After
from mqworker.model.settlement import Bury, Crash, Release, Retry


def a_record(*, failures: int = 0, crashes: int = 0, max_crashes: str = "3") -> bytes:
    return b"17000000000000--%b000%03d%02did7 shop.resize body" % (max_crashes.encode(), failures, crashes)


def test_what_was_not_begun_goes_back_uncounted() -> None:
    verdict = verdict_on_lost_flight(7, a_record(), {}, "SIGKILL", was_running=False)

    assert isinstance(verdict, Release)
    assert verdict.delivery.fence == 7


def test_what_was_running_is_counted_as_a_crash() -> None:
    verdict = verdict_on_lost_flight(7, a_record(crashes=1), {}, "SIGSEGV", was_running=True)

    assert isinstance(verdict, Crash)


def test_the_last_crash_buries_with_the_evidence() -> None:
    verdict = verdict_on_lost_flight(7, a_record(crashes=2), {}, "SIGSEGV", was_running=True)

    assert isinstance(verdict, Bury)
    assert verdict.reason == "crashed"
    assert verdict.evidence == {"cause": "SIGSEGV"}


def test_without_a_limit_a_message_may_crash_for_ever() -> None:
    verdict = verdict_on_lost_flight(
        7, a_record(crashes=98, max_crashes="-"), {}, "SIGKILL", was_running=True
    )

    assert isinstance(verdict, Crash)


def test_a_hard_time_out_is_a_failure_and_is_retried_later_each_time() -> None:
    task = {"retries": 3}

    pauses = [
        verdict_on_lost_flight(7, a_record(failures=failures), task, HARD_TIMEOUT, was_running=True)
        for failures in range(3)
    ]

    assert [pause.due for pause in pauses if isinstance(pause, Retry)] == [
        After(1_000),
        After(2_000),
        After(4_000),
    ]


def test_a_hard_time_out_after_the_last_retry_buries() -> None:
    verdict = verdict_on_lost_flight(7, a_record(failures=3), {"retries": 3}, HARD_TIMEOUT, was_running=True)

    assert isinstance(verdict, Bury)
    assert verdict.reason == "timed out"


def test_bytes_that_are_no_record_are_buried() -> None:
    verdict = verdict_on_lost_flight(7, b"garbage", {}, "SIGKILL", was_running=True)

    assert isinstance(verdict, Bury)
    assert verdict.reason == "undecodable"
