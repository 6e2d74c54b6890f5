"""`--since` and `--until` say what they mean, and the steps of a chart fit the page."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqworker.errors import InvalidArgument
from mqworker_services.pipeline.report.question import MOST_STEPS, Window, parse_instant, step_ms, window

NOW_MS = 1_772_452_800_000  # 2026-03-02T12:00Z
HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("text", "at_ms"),
    [
        ("90m", NOW_MS - 90 * 60_000),
        ("24h", NOW_MS - 24 * HOUR_MS),
        ("7d", NOW_MS - 168 * HOUR_MS),
        ("2w", NOW_MS - 336 * HOUR_MS),
        ("999999w", 0),
        ("2026-03-02", NOW_MS - 12 * HOUR_MS),
        ("2026-03-02T11:00", NOW_MS - HOUR_MS),
        ("2026-03-02T11:00+01:00", NOW_MS - 2 * HOUR_MS),
        ("2026-03-02T11:00Z", NOW_MS - HOUR_MS),
    ],
)
def test_an_instant_is_a_time_ago_a_date_or_a_moment(text: str, at_ms: int) -> None:
    assert parse_instant("--since", text, NOW_MS) == at_ms


@pytest.mark.parametrize("text", ["", "yesterday", "7 d", "-7d", "7y", "2026-13-01", "1e3s", "0001-01-01x"])
def test_anything_else_is_refused_with_what_is_accepted(text: str) -> None:
    with pytest.raises(InvalidArgument, match=r"--since is .* accepted is .*7d"):
        parse_instant("--since", text, NOW_MS)


def test_a_window_that_ends_before_it_begins_is_refused() -> None:
    with pytest.raises(InvalidArgument, match=r"--since is '1h', which is not before --until \('2h'\)"):
        window("1h", "2h", NOW_MS)


def test_a_window_from_the_future_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="not in the past"):
        window("2030-01-01", None, NOW_MS)


def test_a_window_knows_the_days_it_touches() -> None:
    assert window("1d", None, NOW_MS).dates == ("2026-03-01", "2026-03-02")
    assert window(None, "2026-03-02", NOW_MS).dates == (None, "2026-03-01")
    assert Window(None, NOW_MS).dates == (None, "2026-03-02")


@given(st.integers(0, 10**13))
def test_no_span_has_more_steps_than_a_page_can_show(span_ms: int) -> None:
    assert span_ms <= step_ms(span_ms) * MOST_STEPS
