"""Rates and drain estimates from the counters of a queue."""

import pytest

from mqworker.model.throughput import Sample, Throughput

NOW_MS = 1_700_000_100_000


def a_sample(ago_ms: int, entered: int = 0, left: int = 0, buried: int = 0) -> Sample:
    return Sample(NOW_MS - ago_ms, entered, left, buried)


def test_two_samples_give_messages_per_second() -> None:
    pace = Throughput.between(a_sample(2_000, 100, 50), a_sample(0, 140, 110))

    assert pace == Throughput(in_per_s=20.0, out_per_s=30.0, buried=0, span_ms=2_000)


def test_two_samples_too_close_to_one_another_give_nothing() -> None:
    assert Throughput.between(a_sample(100, 0), a_sample(0, 5)) is None


def test_counters_that_began_anew_give_nothing() -> None:
    assert Throughput.between(a_sample(1_000, 100), a_sample(0, 5)) is None


def test_the_rate_is_that_of_the_last_ten_seconds() -> None:
    samples = [a_sample(1_000 * ago, entered=1_000 - 10 * ago) for ago in range(30)]

    pace = Throughput.over(samples, a_sample(0, entered=1_000))

    assert pace is not None
    assert (pace.in_per_s, pace.span_ms) == (10.0, 10_000)


def test_a_queue_that_stood_still_until_now_counts_from_where_it_stood() -> None:
    pace = Throughput.over([a_sample(500, 50), a_sample(9_000, 0), a_sample(19_000, 0)], a_sample(0, 50))

    assert pace is not None
    assert pace.in_per_s == 5.0


def test_what_happened_while_nobody_took_samples_is_not_crammed_into_ten_seconds() -> None:
    pace = Throughput.over([a_sample(2_000, 1_000_000), a_sample(3_600_000, 0)], a_sample(0, 1_000_010))

    assert pace is not None
    assert pace.in_per_s == 5.0


@pytest.mark.parametrize("samples", [[], [a_sample(60_000, 3)]])
def test_without_recent_samples_no_rate_is_known(samples: list[Sample]) -> None:
    assert Throughput.over(samples, a_sample(0, 9)) is None


@pytest.mark.parametrize(
    ("ready", "in_per_s", "out_per_s", "drain_s"),
    [(100, 10.0, 30.0, 5.0), (0, 10.0, 0.0, 0.0), (100, 30.0, 30.0, None), (100, 0.0, 0.0, None)],
)
def test_the_drain_estimate_goes_by_what_leaves_more_than_enters(
    ready: int, in_per_s: float, out_per_s: float, drain_s: float | None
) -> None:
    pace = Throughput(in_per_s, out_per_s, buried=0, span_ms=10_000)

    assert pace.drain_s(ready) == drain_s


def test_a_sample_adds_up_all_ways_in_and_out() -> None:
    totals = {
        "enqueued": 10,
        "revived": 1,
        "succeeded": 4,
        "buried": 2,
        "cancelled": 1,
        "expired": 1,
        "retried": 9,
    }

    assert Sample.of(NOW_MS, totals) == Sample(NOW_MS, entered=11, left=8, buried=2)
