"""Sending again: pauses grow, stay bounded, and end with the budget."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from mqworker.store.link.retrying import pause_before_retry_ms


@given(
    st.integers(0, 10_000), st.integers(0, 20_000), st.integers(1, 10_000), st.randoms(use_true_random=False)
)
def test_a_pause_is_short_and_never_beyond_the_budget(
    tries: int, waited_ms: int, budget_ms: int, chance: random.Random
) -> None:
    pause_ms = pause_before_retry_ms(tries, waited_ms, budget_ms, chance)

    if waited_ms >= budget_ms:
        assert pause_ms is None
    else:
        assert pause_ms is not None
        assert 1 <= pause_ms <= min(1_000, budget_ms - waited_ms)


@given(st.randoms(use_true_random=False))
def test_the_first_pause_is_of_milliseconds(chance: random.Random) -> None:
    pause_ms = pause_before_retry_ms(0, 0, 10_000, chance)

    assert pause_ms is not None
    assert pause_ms <= 20


def test_without_a_budget_nothing_is_sent_again() -> None:
    assert pause_before_retry_ms(0, 0, 0, random.SystemRandom()) is None
