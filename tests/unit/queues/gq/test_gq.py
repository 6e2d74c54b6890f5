"""The rules of gq: life and death, partitions, and the table of what becomes of a message."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqworker.errors import InvalidArgument
from mqworker.queues.gq import rules as gq
from mqworker.queues.gq.rules import (
    GqConsumerRecord,
    GqLiveness,
    GqStatus,
    GqTerms,
    GqView,
    Guarantee,
)

AT_MOST_ONCE = GqTerms(Guarantee.AT_MOST_ONCE)
AT_LEAST_ONCE = GqTerms(Guarantee.AT_LEAST_ONCE)
NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("silent_ms", "is_dead"), [(0, False), (5_999, False), (6_000, True), (60_000, True), (-9_999, False)]
)
def test_more_than_d_missed_heartbeats_are_death(silent_ms: int, *, is_dead: bool) -> None:
    assert GqLiveness().is_dead(NOW_MS - silent_ms, NOW_MS) is is_dead


@given(st.integers(1, 10_000), st.integers(0, 20), st.integers(-100_000, 1_000_000))
def test_the_silence_that_means_death_says_the_same(interval_ms: int, missed: int, silent_ms: int) -> None:
    liveness = GqLiveness(interval_ms, missed)

    assert liveness.is_dead(NOW_MS - silent_ms, NOW_MS) is (silent_ms >= liveness.dead_after_ms)


@given(st.integers(1, 20), st.integers(1, 10_000))
def test_every_message_is_in_exactly_one_partition(count: int, message: int) -> None:
    assert sum(GqView(index, count).has(message) for index in range(count)) == 1


def test_the_view_counts_only_the_living_in_the_order_of_birth() -> None:
    dead = NOW_MS - GqLiveness().dead_after_ms
    consumers = [GqConsumerRecord("a", dead), GqConsumerRecord("b", NOW_MS), GqConsumerRecord("c", NOW_MS)]

    views = [gq.view_of(consumers, uuid, GqLiveness(), NOW_MS) for uuid in ("a", "b", "c", "d")]

    assert views == [None, GqView(0, 2), GqView(1, 2), None]


@pytest.mark.parametrize(
    ("terms", "deadline", "expected"),
    [
        (AT_MOST_ONCE, None, GqStatus.QUEUED),
        (AT_MOST_ONCE, NOW_MS + 1, GqStatus.QUEUED),
        (AT_MOST_ONCE, NOW_MS, GqStatus.FAILED),
        (AT_LEAST_ONCE, None, GqStatus.QUEUED),
        (AT_LEAST_ONCE, NOW_MS, GqStatus.QUEUED),
        (GqTerms(fail_expired=True), NOW_MS, GqStatus.FAILED),
        (GqTerms(max_retries=0), None, GqStatus.FAILED),
    ],
)
def test_what_an_error_makes_of_a_message(terms: GqTerms, deadline: int | None, expected: GqStatus) -> None:
    assert gq.status_after_error(deadline, 1, terms, NOW_MS)[0] is expected


@pytest.mark.parametrize(
    ("status", "terms", "expected"),
    [
        (GqStatus.QUEUED, AT_MOST_ONCE, GqStatus.FAILED),
        (GqStatus.CONSUMED, AT_MOST_ONCE, GqStatus.FAILED),
        (GqStatus.QUEUED, AT_LEAST_ONCE, GqStatus.QUEUED),
        (GqStatus.CONSUMED, AT_LEAST_ONCE, GqStatus.QUEUED),
        (GqStatus.PROCESSED, AT_MOST_ONCE, GqStatus.PROCESSED),
    ],
)
def test_what_the_deadline_makes_of_a_message(status: GqStatus, terms: GqTerms, expected: GqStatus) -> None:
    assert gq.status_after_deadline(status, 1, terms)[0] is expected


def test_what_a_death_makes_of_a_message() -> None:
    reclaiming = GqTerms(reclaim_dead=True, max_retries=1)

    fates = [
        gq.status_after_death(1, AT_LEAST_ONCE)[0],
        gq.status_after_death(1, reclaiming)[0],
        gq.status_after_death(2, reclaiming)[0],
    ]

    assert fates == [GqStatus.CONSUMED, GqStatus.QUEUED, GqStatus.FAILED]


@pytest.mark.parametrize(
    ("created", "deadline", "expected"),
    [
        (NOW_MS, None, None),
        (NOW_MS, NOW_MS + 1, NOW_MS + 1),
        (NOW_MS - 5_000, NOW_MS, NOW_MS + 5_000),
        (NOW_MS - 10, NOW_MS, NOW_MS + 1_000),
        (NOW_MS, NOW_MS - 5_000, NOW_MS + 1_000),
    ],
)
def test_how_long_a_claim_is_left_alone(created: int, deadline: int | None, expected: int | None) -> None:
    assert gq.lease_ends_at_ms(created, deadline, NOW_MS) == expected


def test_reclaiming_from_the_dead_contradicts_at_most_once() -> None:
    with pytest.raises(InvalidArgument):
        GqTerms(Guarantee.AT_MOST_ONCE, reclaim_dead=True)
