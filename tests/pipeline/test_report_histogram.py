"""Percentiles from a histogram are within one percent of the exact ones, whatever the times are."""

import math

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from mqworker_services.pipeline.report.figures import (
    GROWTH,
    Histogram,
    bucket_of,
    buckets_of,
    merged,
    middle_of,
)

TIMES = st.lists(st.floats(min_value=0.002, max_value=1e9), min_size=1, max_size=200)


def histogram_of(times: list[float]) -> Histogram:
    histogram = Histogram()
    for ms in times:
        histogram.add(bucket_of(ms), 1, ms)
    return histogram


def exact(times: list[float], percent: int) -> float:
    return sorted(times)[max(0, math.ceil(len(times) * percent / 100) - 1)]


@given(TIMES, st.sampled_from([1, 50, 95, 99, 100]))
def test_a_percentile_is_within_one_percent_of_the_exact_one(times: list[float], percent: int) -> None:
    told = histogram_of(times).percentile(percent)

    assert told is not None
    assert math.isclose(told, exact(times, percent), rel_tol=0.01)


@given(TIMES)
def test_no_percentile_is_beyond_the_longest_time(times: list[float]) -> None:
    assert (histogram_of(times).percentile(99) or 0) <= max(times)


@given(TIMES, TIMES)
def test_merged_histograms_are_the_histogram_of_all(some: list[float], others: list[float]) -> None:
    assert merged([histogram_of(some), histogram_of(others)]) == histogram_of(some + others)


@given(TIMES, st.integers(1, 20))
def test_the_floor_of_the_longest_lets_as_many_pass(times: list[float], most: int) -> None:
    floor = histogram_of(times).floor_of_longest(most)

    assert sum(ms >= floor for ms in times) >= min(most, len(times))


@settings(deadline=None)  # Arrow and numpy load some of their code when first asked
@given(TIMES)
def test_a_column_of_times_falls_into_the_buckets_around_them(times: list[float]) -> None:
    found = buckets_of(pa.array(times)).to_pylist()

    for ms, bucket in zip(times, found, strict=True):
        assert GROWTH**bucket <= ms * (1 + 1e-9)
        assert ms < GROWTH ** (bucket + 1) * (1 + 1e-9)


def test_no_time_has_no_bucket_and_strange_times_do_no_harm() -> None:
    found = buckets_of(pa.array([None, 1.0, float("nan"), float("inf"), -3.0])).to_pylist()

    assert found[:3] == [None, 0, None]
    assert found[3] > bucket_of(1e12)
    assert found[4] == bucket_of(-3.0)


def test_no_times_have_no_percentile() -> None:
    assert Histogram().percentile(50) is None


def test_a_wait_of_nothing_or_less_is_told_as_nothing() -> None:
    assert [middle_of(bucket_of(ms)) for ms in (0.0, -5.0)] == [0.0, 0.0]
