"""Clock: the host's time, and a time that tests move."""

import pytest

from mqworker.errors import InvalidArgument
from mqworker.model.clock import ManualClock, SystemClock


def test_a_manual_clock_stands_still_until_it_is_advanced() -> None:
    clock = ManualClock(now_ms=1_000)

    clock.advance(ms=250)

    assert (clock.now_ms(), clock.monotonic_ms()) == (1_250, 250)


def test_a_manual_clock_refuses_to_go_back() -> None:
    clock = ManualClock()

    with pytest.raises(InvalidArgument, match="ms: got -1"):
        clock.advance(ms=-1)


def test_the_system_clock_never_goes_back() -> None:
    clock = SystemClock()

    readings = [clock.monotonic_ms() for _ in range(100)]

    assert readings == sorted(readings)


def test_the_system_clock_tells_the_wall_time_in_milliseconds() -> None:
    year_2020_ms, year_2100_ms = 1_577_836_800_000, 4_102_444_800_000

    assert year_2020_ms < SystemClock().now_ms() < year_2100_ms
