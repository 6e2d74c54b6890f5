"""Rate limits as users write them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from mqworker.errors import InvalidArgument
from mqworker.model.rate import Rate, argument_names


@pytest.mark.parametrize(
    ("text", "count", "period_ms"),
    [
        ("100/s", 100, 1_000),
        ("5/m", 5, 60_000),
        ("1/h", 1, 3_600_000),
        ("9/d", 9, 86_400_000),
        ("3/10s", 3, 10_000),
    ],
)
def test_a_rate_is_a_count_per_period(text: str, count: int, period_ms: int) -> None:
    rate = Rate(text)

    assert (rate.count, rate.period_ms, rate.key, rate.burst) == (count, period_ms, None, count)


def test_a_key_limits_each_value_of_an_argument_apart() -> None:
    rate = Rate("5/m", key="{region}-{tenant}", burst=1)

    assert argument_names(rate.key) == ("region", "tenant")
    assert rate.burst == 1
    assert rate == Rate("5/m", key="{region}-{tenant}", burst=1)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "100",
        "100/",
        "/s",
        "0/s",
        "-1/s",
        "1/0s",
        "1.5/s",
        "1e3/s",
        "100/s\n",
        "1/w",
        "१/s",
        "1/999d",
        None,
        5,
    ],
)
def test_anything_else_is_refused_with_what_is_accepted(text: str) -> None:
    with pytest.raises(InvalidArgument, match=r"rate is .* accepted is"):
        Rate(text)


@pytest.mark.parametrize("key", ["", "tenant", "{}", "{0}", "{a.b}", "{a[0]}", "{a!r}", "{a:>9}", "{", 5])
def test_a_key_names_arguments_and_reaches_no_further(key: str) -> None:
    with pytest.raises(InvalidArgument, match="key is"):
        Rate("1/s", key=key)


@given(some.text())
@settings(deadline=None)
def test_any_text_is_a_rate_or_is_refused_by_one_error(text: str) -> None:
    try:
        rate = Rate(text)
    except InvalidArgument:
        return

    assert rate.count >= 1
    assert rate.period_ms >= 1000
