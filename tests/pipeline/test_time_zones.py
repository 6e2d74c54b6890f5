"""Days and hours by the clock on the wall: summer time begins and ends, half hours, weeks."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pytest

from mqworker.errors import InvalidArgument
from mqworker_services.pipeline.report.figures import Cell, Histogram, bucket_of
from mqworker_services.pipeline.report.question import Window, window
from mqworker_services.pipeline.report.time_zones import check_zone, floored, floors, next_step
from mqworker_services.pipeline.report.trends import (
    Day,
    Kept,
    Storm,
    by_weekday_and_hour,
    forecast,
    parse_slo,
    storms,
)

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
BERLIN, KOLKATA = "Europe/Berlin", "Asia/Kolkata"


def at(*when: int) -> int:
    return int(datetime(*when, tzinfo=UTC).timestamp() * 1000)  # type: ignore[arg-type, misc]


def test_a_day_begins_at_midnight_there_and_has_23_to_25_hours() -> None:
    spring, autumn = at(2026, 3, 29, 12), at(2026, 10, 25, 12)

    assert floored(spring, DAY_MS, BERLIN) == at(2026, 3, 28, 23)
    assert next_step(at(2026, 3, 28, 23), DAY_MS, BERLIN) - at(2026, 3, 28, 23) == 23 * HOUR_MS
    assert floored(autumn, DAY_MS, BERLIN) == at(2026, 10, 24, 22)
    assert next_step(at(2026, 10, 24, 22), DAY_MS, BERLIN) - at(2026, 10, 24, 22) == 25 * HOUR_MS


def test_an_hour_that_the_clock_shows_twice_is_two_hours() -> None:
    first, second = at(2026, 10, 25, 0, 30), at(2026, 10, 25, 1, 30)  # both 02:30 there

    assert floored(first, HOUR_MS, BERLIN) == at(2026, 10, 25, 0)
    assert floored(second, HOUR_MS, BERLIN) == at(2026, 10, 25, 1)


def test_an_hour_begins_on_the_half_where_clocks_are_half_an_hour_off() -> None:
    assert floored(at(2026, 1, 1, 10, 15), HOUR_MS, KOLKATA) == at(2026, 1, 1, 9, 30)


@pytest.mark.parametrize("zone", ["UTC", BERLIN, KOLKATA, "America/St_Johns"])
@pytest.mark.parametrize("width_ms", [HOUR_MS, DAY_MS, 7 * DAY_MS])
def test_a_column_is_floored_as_each_of_its_instants(zone: str, width_ms: int) -> None:
    instants = np.arange(at(2026, 10, 20), at(2026, 11, 3), 7 * 60_000 + 13)

    found = floors(instants, width_ms, zone).tolist()

    assert found == [floored(each, width_ms, zone) for each in instants.tolist()]


def test_a_date_without_an_offset_is_one_of_the_zone() -> None:
    assert window("2026-07-01", "2026-07-02", at(2026, 8, 1), BERLIN) == Window(
        at(2026, 6, 30, 22), at(2026, 7, 1, 22)
    )
    for wrong in ("Europe/Belrin", "", "../etc/passwd"):
        with pytest.raises(InvalidArgument, match=r"--tz is .*; accepted is the name of a time zone"):
            check_zone(wrong)


def test_the_window_before_is_as_long_and_ends_where_it_begins() -> None:
    assert Window(70, 100).before() == Window(40, 70)
    with pytest.raises(InvalidArgument, match="--compare is given without --since"):
        Window(None, 100).before()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("charge: 99% < 2s", ("charge", 99.0, 2_000.0)),
        (" shop.charge:99.9 %<250 ms", ("shop.charge", 99.9, 250.0)),
        ("a:b: 50% < 1.5min", ("a:b", 50.0, 90_000.0)),
    ],
)
def test_a_promise_is_read(text: str, expected: tuple[str, float, float]) -> None:
    slo = parse_slo(text)

    assert (slo.task, slo.percent, slo.limit_ms) == expected


@pytest.mark.parametrize(
    "text", ["", "charge", "charge: 101% < 2s", "charge: 0% < 2s", "charge: 9.9.9% < 2s", "c: 99% < 0s"]
)
def test_what_is_no_promise_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match=r"--slo is .*; accepted is such as 'charge: 99% < 2s'"):
        parse_slo(text)


def test_a_promise_tells_how_much_of_its_budget_is_burned() -> None:
    half = Kept(parse_slo("charge: 90% < 2s"), good=95, late=3, dead=2)
    none = Kept(parse_slo("charge: 100% < 2s"), good=0, late=0, dead=0)

    assert (half.share, round(half.burned or 0, 9)) == (95.0, 0.5)
    assert (none.share, none.burned) == (None, None)
    assert half.slo.is_about("shop.charge")
    assert not half.slo.is_about("shop.recharge")


def cell(at_ms: int, event: str, count: int) -> Cell:
    return Cell(str(at_ms), "mail", event, "TimeoutError", None, count, 0.0, 0.0)


def test_a_storm_has_many_retries_and_fewer_successes() -> None:
    calm = [cell(0, "retried", 19), cell(1, "retried", 30), cell(1, "succeeded", 31)]

    assert storms(calm) == []
    assert storms([*calm, cell(2, "retried", 30), cell(2, "succeeded", 29)]) == [Storm(2, "mail", 30, 29)]


def test_waits_are_put_together_by_hour_of_the_week() -> None:
    monday, next_monday = at(2026, 3, 2, 9), at(2026, 3, 9, 9)
    waits = {each: Histogram({bucket_of(5.0): 2}, 5.0) for each in (monday, next_monday)}

    ((place, found),) = by_weekday_and_hour(waits, BERLIN).items()

    assert (place, found.total) == ((0, 10), 4)


def test_a_forecast_follows_the_trend_of_whole_days() -> None:
    steady, growing = (
        [Day(100, 3_600_000.0)] * 14,
        [Day(100 + 10 * n, (100 + 10 * n) * 1000.0) for n in range(5)],
    )

    assert forecast(steady[:2], 0.0) is None
    found = forecast(steady, 7_200_000.0)
    assert found is not None
    assert (found.enqueued_per_day, found.busy_hours_per_day, found.growth_per_week) == (100.0, 1.0, 0.0)
    assert found.peak_workers == 2.0
    more = forecast(growing, 0.0)
    assert more is not None
    assert more.growth_per_week == pytest.approx(70 / 120)
