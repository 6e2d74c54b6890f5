"""When a child that died starts again, and when it is parked."""

from hypothesis import given
from hypothesis import strategies as st

from mqworker.supervisor.restart_policy import (
    Death,
    Decision,
    Fault,
    Park,
    RestartHistory,
    RestartIn,
    RestartLimits,
    after_death,
)

LIMITS = RestartLimits()


def test_the_first_death_is_answered_at_once() -> None:
    assert _decisions([_death(at_ms=1_000)], chance=1.0) == [RestartIn(0)]


def test_further_deaths_wait_twice_as_long_each_up_to_the_longest_pause() -> None:
    far_apart = [_death(at_ms=number * LIMITS.within_ms) for number in range(12)]

    decisions = _decisions(far_apart, chance=1.0)

    pauses = [0, 100, 200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 30_000, 30_000]
    assert decisions == [RestartIn(pause_ms) for pause_ms in pauses]


def test_chance_takes_anything_off_the_pause() -> None:
    deaths = [_death(at_ms=1), _death(at_ms=2)]

    assert _decisions(deaths, chance=0.0)[-1] == RestartIn(0)
    assert _decisions(deaths, chance=0.5)[-1] == RestartIn(50)


def test_a_long_healthy_life_begins_anew() -> None:
    deaths = [_death(at_ms=number * 40_000) for number in range(4)]
    old = Death(at_ms=400_000, lived_ms=LIMITS.healthy_after_ms, fault=Fault.COUNTED)

    assert _decisions([*deaths, old], chance=1.0)[-1] == RestartIn(0)


def test_after_the_sixth_death_within_the_time_it_is_parked_for_pauses_that_grow() -> None:
    decisions = _decisions([_death(at_ms=number * 5_000) for number in range(12)], chance=1.0)

    assert all(isinstance(decision, RestartIn) for decision in decisions[:5])
    assert decisions[5:] == [Park(ms) for ms in (5_000, 10_000, 20_000, 40_000, 60_000, 60_000, 60_000)]


def test_one_that_was_parked_has_a_single_try_each_time_however_late() -> None:
    deaths = [_death(at_ms=number) for number in range(6)]

    assert isinstance(_decisions([*deaths, _death(at_ms=10_000_000)], chance=0.0)[-1], Park)


def test_one_that_was_parked_and_then_healthy_for_long_begins_anew() -> None:
    deaths = [_death(at_ms=number) for number in range(6)]
    old = Death(at_ms=400_000, lived_ms=LIMITS.healthy_after_ms, fault=Fault.COUNTED)

    assert _decisions([*deaths, old], chance=1.0)[-1] == RestartIn(0)


def test_deaths_long_ago_do_not_count() -> None:
    decisions = _decisions([_death(at_ms=number * 6_000) for number in range(100)], chance=0.0)

    assert set(decisions) == {RestartIn(0)}


def test_spared_deaths_lead_to_nothing_but_a_restart() -> None:
    spared = [Death(at_ms=number, lived_ms=5_000, fault=Fault.SPARED) for number in range(1_000)]

    assert set(_decisions(spared, chance=1.0)) == {RestartIn(0)}


def test_spared_deaths_right_after_the_start_pause_a_little() -> None:
    spared = Death(at_ms=1, lived_ms=3, fault=Fault.SPARED)

    assert _decisions([spared], chance=1.0) == [RestartIn(LIMITS.spared_pause_ms)]


@given(
    gaps_ms=st.lists(st.integers(0, 60_000), max_size=40),
    chance=st.floats(0, 1),
)
def test_whatever_happens_the_pause_stays_in_bounds_and_memory_too(gaps_ms: list[int], chance: float) -> None:
    history, now_ms = RestartHistory(), 0
    for gap_ms in gaps_ms:
        now_ms += gap_ms
        history, decision = after_death(history, _death(at_ms=now_ms), LIMITS, chance)
        assert 0 <= decision.pause_ms <= max(LIMITS.longest_pause_ms, LIMITS.longest_park_ms)
        assert len(history.deaths_at_ms) <= LIMITS.most_deaths


def _death(at_ms: int) -> Death:
    return Death(at_ms=at_ms, lived_ms=10, fault=Fault.COUNTED)


def _decisions(deaths: list[Death], chance: float) -> list[Decision]:
    history, decisions = RestartHistory(), []
    for death in deaths:
        history, decision = after_death(history, death, LIMITS, chance)
        decisions.append(decision)
    return decisions
