"""Cron lines where clocks are set: twenty zones, each change of seven years, against cronsim and zoneinfo."""

from __future__ import annotations

import itertools
from datetime import UTC, date, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import given
from hypothesis import strategies as st

from mqworker.model.schedule import Cron

ZONES = (
    *("Europe/Berlin", "Europe/London", "Europe/Lisbon", "Europe/Helsinki", "Europe/Chisinau"),
    *("America/New_York", "America/Chicago", "America/Denver", "America/Los_Angeles", "America/St_Johns"),
    *("America/Havana", "America/Santiago", "America/Nuuk", "America/Asuncion", "Atlantic/Azores"),
    *("Australia/Sydney", "Australia/Lord_Howe", "Pacific/Auckland", "Pacific/Chatham", "Africa/Cairo"),
)
DAY_MS = 86_400_000
QUARTER_MS = 900_000
FIXED = ("30 2 * * *", "0 0 * * *", "15 1 * * *", "45 23 * * *", "59 2 * * *")
AS_TIME_PASSES = ("*/15 * * * *", "0 * * * *")


@cache
def changes(zone: str) -> tuple[int, ...]:
    """Every instant from 2022 to 2028 at which clocks are set, to the quarter of an hour, in ms."""
    first, last = (round(datetime(year, 1, 1, tzinfo=UTC).timestamp()) * 1000 for year in (2022, 2029))
    days = range(first, last, DAY_MS)
    found = [day for day in days if offset(zone, day) != offset(zone, day + DAY_MS)]
    return tuple(
        next(
            ms
            for ms in range(day, day + DAY_MS, QUARTER_MS)
            if offset(zone, ms) != offset(zone, ms + QUARTER_MS)
        )
        + QUARTER_MS
        for day in found
    )


def offset(zone: str, at_ms: int) -> timedelta | None:
    return local(zone, at_ms).utcoffset()


def local(zone: str, at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms / 1000, ZoneInfo(zone))


def ticks(cron: Cron, after_ms: int, until_ms: int) -> list[int]:
    return list(itertools.takewhile(lambda tick_ms: tick_ms <= until_ms, cron.ticks_after(after_ms)))


@pytest.mark.parametrize("zone", ZONES)
def test_every_zone_of_the_list_sets_its_clocks(zone: str) -> None:
    assert len(changes(zone)) >= 2


@pytest.mark.parametrize("line", FIXED)
@pytest.mark.parametrize("zone", ZONES)
def test_a_daily_tick_comes_once_a_day_at_its_time_or_when_the_gap_is_over(zone: str, line: str) -> None:
    minute, hour = map(int, line.split()[:2])
    for change in changes(zone):
        found = ticks(Cron(line, zone), change - 3 * DAY_MS, change + 3 * DAY_MS)

        days = [day_of(zone, tick, hour, minute) for tick in found]
        assert all(later - sooner == timedelta(days=1) for sooner, later in itertools.pairwise(days))


def day_of(zone: str, tick_ms: int, hour: int, minute: int) -> date:
    """For which day a tick stands: its own, or that on which clocks passed over its time a moment before."""
    at = local(zone, tick_ms)
    if (at.hour, at.minute) == (hour, minute):
        return at.date()
    for meant in (
        at.replace(hour=hour, minute=minute),
        at.replace(hour=hour, minute=minute) - timedelta(days=1),
    ):
        there_and_back = meant.astimezone(UTC).astimezone(ZoneInfo(zone))
        if there_and_back.replace(tzinfo=None, fold=0) != meant.replace(tzinfo=None, fold=0):
            return meant.date()
    raise AssertionError(f"{at} is no time at which {hour}:{minute:02} may come")


@pytest.mark.parametrize("line", AS_TIME_PASSES)
@pytest.mark.parametrize("zone", ZONES)
def test_ticks_that_come_all_day_come_as_time_passes(zone: str, line: str) -> None:
    step_ms = QUARTER_MS if line.startswith("*/15") else 4 * QUARTER_MS
    for change in changes(zone):
        found = ticks(Cron(line, zone), change - DAY_MS // 2, change + DAY_MS // 2)

        gaps = {later - sooner for sooner, later in itertools.pairwise(found)}
        if step_ms == QUARTER_MS:  # no zone is set by less
            assert gaps == {QUARTER_MS}
        else:  # Lord Howe is set by half an hour
            assert gaps <= {step_ms, step_ms // 2, step_ms * 3 // 2}
            assert all(local(zone, tick).minute == 0 for tick in found)


@pytest.mark.parametrize("line", [*FIXED, *AS_TIME_PASSES, "30 1,2 * * SUN", "0 */6 1,15 * *"])
@pytest.mark.parametrize("zone", ZONES)
def test_ticks_are_those_of_cronsim(zone: str, line: str) -> None:
    for change in changes(zone):
        start = change - 5 * DAY_MS
        simulated = CronSim(line, local(zone, start))
        expected = [round(tick.timestamp() * 1000) for tick in itertools.islice(simulated, 40)]

        assert list(itertools.islice(Cron(line, zone).ticks_after(start), 40)) == [
            tick for tick in expected if tick > start
        ]


@given(
    st.sampled_from(ZONES),
    st.sampled_from([*FIXED, *AS_TIME_PASSES, "30 1,2 * * *", "5 * * * *", "*/20 1-3 * * *"]),
    st.integers(0, 6),
    st.integers(-26 * 3600, 26 * 3600),
)
def test_wherever_one_begins_to_look_the_ticks_are_the_same(
    zone: str, line: str, which: int, seconds: int
) -> None:
    """A broker works out the next tick from any instant: from a note, a claim, a clock that was set."""
    change = changes(zone)[which % len(changes(zone))]
    cron, until = Cron(line, zone), change + 2 * DAY_MS
    whole = ticks(cron, change - 2 * DAY_MS, until)
    begin = change + seconds * 1000

    assert ticks(cron, begin, until) == [tick for tick in whole if tick > begin]
