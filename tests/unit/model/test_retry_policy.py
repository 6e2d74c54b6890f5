"""When a failed message is tried again: counts, pauses and exception types."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from mqworker.errors import InvalidArgument
from mqworker.model.retry_policy import USUAL_POLICY, GiveUp, Retry, RetryIn, decide, decide_by_names

CHANCE = random.Random(7)  # noqa: S311 - a fixed seed, for a test


def steady(**fields: object) -> Retry:
    return Retry(**({"jitter": 0} | fields))  # type: ignore[arg-type] # fields of Retry


def test_the_pause_doubles_from_the_first_up_to_the_cap() -> None:
    policy = steady(max=5, first=1, backoff=2, cap=6)

    decisions = [decide(policy, failures, ValueError(), CHANCE) for failures in range(6)]

    assert decisions[:5] == [RetryIn(1000), RetryIn(2000), RetryIn(4000), RetryIn(6000), RetryIn(6000)]
    assert decisions[5] == GiveUp("retries_exhausted")


def test_without_a_policy_there_are_three_retries_of_about_one_two_and_four_seconds() -> None:
    decisions = [decide(USUAL_POLICY, failures, ValueError(), CHANCE) for failures in range(4)]

    for decision, seconds in zip(decisions, (1, 2, 4), strict=False):
        assert isinstance(decision, RetryIn)
        assert 800 * seconds <= decision.ms <= 1000 * seconds
    assert decisions[3] == GiveUp("retries_exhausted")


def test_no_retries_means_the_first_failure_is_the_last() -> None:
    assert decide(Retry(max=0), 0, ValueError(), CHANCE) == GiveUp("failed")


def test_only_the_listed_types_and_what_derives_from_them_are_retried() -> None:
    policy = steady(on=(OSError,))

    assert decide(policy, 0, ConnectionResetError(), CHANCE) == RetryIn(1000)
    assert decide(policy, 0, ValueError(), CHANCE) == GiveUp("not_retried")


def test_never_wins_over_on() -> None:
    policy = steady(on=(OSError,), never=(FileNotFoundError,))

    assert decide(policy, 0, FileNotFoundError(), CHANCE) == GiveUp("not_retried")
    assert decide(policy, 0, PermissionError(), CHANCE) == RetryIn(1000)


def test_types_may_be_given_by_name_where_importing_them_would_cost_too_much() -> None:
    policy = steady(on=("ConnectionError", "socket.gaierror"))

    assert decide_by_names(policy, 0, ["gaierror", "socket.gaierror"], CHANCE) == RetryIn(1000)
    assert decide(policy, 0, BrokenPipeError(), CHANCE) == RetryIn(1000)


def test_a_raised_retry_says_when_and_respects_the_limit_of_the_policy() -> None:
    policy = steady(max=2, on=(OSError,))

    assert decide(policy, 0, Retry(in_=90), CHANCE) == RetryIn(90_000)
    assert decide(policy, 1, Retry(), CHANCE) == RetryIn(2000)
    assert decide(policy, 2, Retry(in_=90), CHANCE) == GiveUp("retries_exhausted")


def test_a_retry_can_be_raised_and_cannot_be_changed() -> None:
    with pytest.raises(Retry, match="rate limited") as raised:
        raise Retry("rate limited", in_=5)

    assert raised.value.in_ == 5
    with pytest.raises(AttributeError, match="cannot be changed"):
        raised.value.max = 9


@pytest.mark.parametrize(
    "fields",
    [
        {"max": -1},
        {"max": 1000},
        {"max": True},
        {"backoff": 0.5},
        {"backoff": float("nan")},
        {"first": -1},
        {"cap": float("inf")},
        {"jitter": 1.1},
        {"in_": -3},
        {"in_": "1e9"},
        {"on": (int,)},
        {"never": (3,)},
    ],
    ids=str,
)
def test_a_field_outside_its_bounds_is_named(fields: dict[str, object]) -> None:
    with pytest.raises(InvalidArgument, match=next(iter(fields))):
        Retry(**fields)  # type: ignore[arg-type] # wrong on purpose


@given(
    max_retries=some.integers(0, 998),
    backoff=some.floats(1, 100),
    first=some.floats(0, 1000),
    cap=some.floats(0, 10_000),
    jitter=some.floats(0, 1),
    failures=some.integers(0, 999),
    seed=some.integers(),
)
@settings(deadline=None)
def test_a_pause_is_never_negative_and_never_above_the_cap(
    *, max_retries: int, backoff: float, first: float, cap: float, jitter: float, failures: int, seed: int
) -> None:
    policy = Retry(max=max_retries, backoff=backoff, first=first, cap=cap, jitter=jitter)

    decision = decide(policy, failures, ValueError(), random.Random(seed))  # noqa: S311 - for a test

    assert isinstance(decision, GiveUp) == (failures >= max_retries)
    if isinstance(decision, RetryIn):
        assert 0 <= decision.ms <= round(cap * 1000)
