"""When a client of SKMQ has taken too long."""

from __future__ import annotations

import pytest

from mqworker_services.gateways.skmq.connection import LONGEST_FRAME_S, Timeouts

NOW_S = 1_000.0


def have_passed(
    *,
    joined_s: float = 500,
    silent_s: float = 0,
    begun_s: float | None = None,
    is_stranger: bool = False,
    is_waiting_for_us: bool = False,
    idle_s: float = 300,
) -> bool:
    """How many seconds ago each happened."""
    return Timeouts(handshake_s=5, idle_s=idle_s).have_passed(
        NOW_S,
        joined_at_s=NOW_S - joined_s,
        heard_at_s=NOW_S - silent_s,
        begun_at_s=None if begun_s is None else NOW_S - begun_s,
        is_stranger=is_stranger,
        is_waiting_for_us=is_waiting_for_us,
    )


def test_who_speaks_now_and_then_may_stay() -> None:
    assert not have_passed(silent_s=299)
    assert not have_passed(silent_s=100_000, idle_s=0)


def test_who_is_silent_is_closed_unless_it_waits_for_us() -> None:
    assert have_passed(silent_s=301)
    assert not have_passed(silent_s=301, is_waiting_for_us=True)


@pytest.mark.parametrize("is_waiting_for_us", [True, False])
def test_a_byte_each_second_does_not_keep_a_frame_open(*, is_waiting_for_us: bool) -> None:
    assert not have_passed(begun_s=LONGEST_FRAME_S - 1)
    assert have_passed(silent_s=0, begun_s=LONGEST_FRAME_S + 1, is_waiting_for_us=is_waiting_for_us)


def test_a_stranger_has_little_time_to_show_its_token() -> None:
    assert not have_passed(joined_s=4, is_stranger=True)
    assert have_passed(joined_s=6, is_stranger=True)
