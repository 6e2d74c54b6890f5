"""When schedules come: ticks, catching up, changes of the clock, and jitter."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqworker.errors import InvalidArgument
from mqworker.model.schedule import (
    MISSED_AFTER_MS,
    MOST_CAUGHT_UP,
    CatchUp,
    Cron,
    Every,
    jitter_of,
    last_tick_ms,
    next_tick_ms,
    skipped_ticks,
    ticks_to_fire,
)

NOW_MS = 1_800_000_000_000
DAY_MS = 86_400_000
BERLIN = ZoneInfo("Europe/Berlin")


def ms(*moment: int, zone: ZoneInfo | None = None) -> int:
    return round(datetime(*moment, tzinfo=zone or UTC).timestamp() * 1000)  # type: ignore[arg-type,misc]


def test_ticks_of_an_interval_are_its_multiples() -> None:
    assert list(islice(Every(5_000).ticks_after(12_345), 3)) == [15_000, 20_000, 25_000]
    assert next_tick_ms(Every(5_000), 15_000) == 20_000


def test_a_cron_line_goes_by_the_time_of_its_zone() -> None:
    assert next_tick_ms(Cron("0 3 * * *", "Europe/Berlin"), ms(2026, 1, 5)) == ms(2026, 1, 5, 3, zone=BERLIN)
    assert next_tick_ms(Cron("0 3 * * *"), ms(2026, 1, 5)) == ms(2026, 1, 5, 3)


def test_a_daily_tick_comes_once_when_clocks_are_set_forward_and_back() -> None:
    line = Cron("30 2 * * *", "Europe/Berlin")

    spring = list(islice(line.ticks_after(ms(2026, 3, 27, 12)), 3))
    autumn = list(islice(line.ticks_after(ms(2026, 10, 23, 12)), 3))

    assert [datetime.fromtimestamp(tick / 1000, BERLIN).day for tick in spring] == [28, 29, 30]
    assert [datetime.fromtimestamp(tick / 1000, BERLIN).day for tick in autumn] == [24, 25, 26]


@pytest.mark.parametrize(
    ("catch_up", "expected"),
    [
        ("skip", []),
        ("one", [NOW_MS - 60_000]),
        ("all", [NOW_MS - 180_000, NOW_MS - 120_000, NOW_MS - 60_000]),
    ],
)
def test_missed_ticks(catch_up: CatchUp, expected: list[int]) -> None:
    now_ms = NOW_MS - MISSED_AFTER_MS - 1

    assert ticks_to_fire(Every(60_000), NOW_MS - 240_000, now_ms, catch_up) == expected


@pytest.mark.parametrize("catch_up", ["skip", "one", "all"])
def test_a_tick_that_is_a_little_late_is_fired_in_any_case(catch_up: CatchUp) -> None:
    last_ms = NOW_MS - 2_000

    assert ticks_to_fire(Every(1_000), last_ms, NOW_MS, catch_up) == [NOW_MS - 1_000, NOW_MS]


@pytest.mark.parametrize("timing", [Every(100), Cron("* * * * *")])
def test_however_much_was_missed_only_the_newest_hundred_are_made_up_for(timing: Every | Cron) -> None:
    ticks = ticks_to_fire(timing, NOW_MS - 300 * DAY_MS, NOW_MS, "all")

    assert len(ticks) == MOST_CAUGHT_UP
    assert ticks[-1] == NOW_MS


@pytest.mark.parametrize(
    ("timing", "last_ms", "skipped"),
    [
        (Every(60_000), NOW_MS - DAY_MS, 24 * 60 - 100),
        (Every(60_000), NOW_MS - 100 * 60_000, 0),
        (Cron("* * * * *"), NOW_MS - DAY_MS, 24 * 60 - 100),
        (Cron("* * * * *"), NOW_MS - 300 * DAY_MS, 10_000),
        (Cron("0 0 * * *"), NOW_MS - 10 * DAY_MS, 0),
    ],
)
def test_what_is_not_made_up_for_is_counted(timing: Every | Cron, last_ms: int, skipped: int) -> None:
    fired = ticks_to_fire(timing, last_ms, NOW_MS, "all")

    assert skipped_ticks(timing, last_ms, fired) == skipped


@pytest.mark.parametrize(
    ("since_ms", "noted_ms", "last_ms"),
    [
        (NOW_MS - 5, 0, NOW_MS - 5),
        (NOW_MS - 9, NOW_MS - 5, NOW_MS - 5),
        (
            NOW_MS - 9,
            NOW_MS + 2_000,
            NOW_MS + 2_000,
        ),  # a small step: the clock catches up, nothing fires twice
        (NOW_MS - 9, NOW_MS + DAY_MS, None),
        (NOW_MS + DAY_MS, 0, None),
        (NOW_MS + DAY_MS, NOW_MS - 5, NOW_MS - 5),
    ],
)
def test_a_last_tick_in_the_future_was_fired_by_another_clock(
    since_ms: int, noted_ms: int, last_ms: int | None
) -> None:
    assert last_tick_ms(since_ms, noted_ms, NOW_MS) == last_ms


def test_a_rare_tick_is_found_however_long_ago_it_was() -> None:
    assert ticks_to_fire(Cron("0 0 1 1 *"), ms(2025, 6, 1), ms(2026, 11, 1), "one") == [ms(2026, 1, 1)]


@given(st.integers(0, 2**42), st.integers(0, 3_600_000))
def test_jitter_is_the_same_everywhere_and_within_its_bounds(tick_ms: int, jitter_ms: int) -> None:
    put_off = jitter_of("app/name", tick_ms, jitter_ms)

    assert 0 <= put_off <= jitter_ms
    assert put_off == jitter_of("app/name", tick_ms, jitter_ms)


@pytest.mark.parametrize(
    ("line", "place"),
    [
        ("61 * * * *", "field 1, minute, is '61'"),
        ("* 24 * * *", "field 2, hour, is '24'"),
        ("* * 0 * *", "field 3, day-of-month, is '0'"),
        ("* * * 13 *", "field 4, month, is '13'"),
        ("* * * * MONDAY", "field 5, day-of-week, is 'MONDAY'"),
        ("* 61 * * * *", "field 2, minute, is '61'"),
        ("", "accepted are five fields"),
        ("@daily", "accepted are five fields"),
        ("0 0 31 2 *", "31"),
    ],
)
def test_a_cron_line_with_an_error_is_refused_with_the_place(line: str, place: str) -> None:
    with pytest.raises(InvalidArgument, match=place):
        Cron(line)
