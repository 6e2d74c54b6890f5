"""While the server is away: pauses grow, stay bounded and end with the budget; the last error tells all."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqworker.errors import StoreFull, StoreUnavailable
from mqworker.model.clock import ManualClock
from mqworker.store.outage import Tries, pause_before_retry_ms


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


def test_a_call_is_given_up_when_its_budget_is_used_up() -> None:
    clock = ManualClock()
    tries = Tries(1_000, clock, random.SystemRandom())
    away = StoreUnavailable("away", maybe_executed=False)

    first_ms = tries.pause_ms(away)
    had_failed_once = tries.has_failed_once
    tries.pause_ms(away)
    clock.advance(ms=1_000)

    assert 1 <= first_ms <= 20
    assert (had_failed_once, tries.has_failed_once) == (True, False)
    with pytest.raises(StoreUnavailable, match="away"):
        tries.pause_ms(away)


def test_a_refusal_after_a_try_that_may_have_been_carried_out_is_no_certainty() -> None:
    tries = Tries(1_000, ManualClock(), random.SystemRandom())
    full = StoreFull("full")

    alone = tries.final(full)
    tries.pause_ms(StoreUnavailable("no answer"))
    after_doubt = tries.final(full)

    assert alone is full
    assert isinstance(after_doubt, StoreUnavailable)
    assert after_doubt.maybe_executed
    assert str(after_doubt) == "full; before that: no answer"
