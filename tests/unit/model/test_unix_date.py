"""Unix dates: as Go and `date` write them, read back exactly, and nothing else accepted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqworker.errors import InvalidArgument
from mqworker.model.unix_date import parse_unix_date, unix_date


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "Thu Jan  1 00:00:00 UTC 1970"),
        (951_782_399, "Mon Feb 28 23:59:59 UTC 2000"),
        (951_782_400, "Tue Feb 29 00:00:00 UTC 2000"),
        (1_794_786_023, "Sun Nov 15 23:40:23 UTC 2026"),
        (4_107_542_400, "Mon Mar  1 00:00:00 UTC 2100"),
    ],
)
def test_a_date_is_written_and_read(seconds: int, text: str) -> None:
    assert unix_date(seconds) == text
    assert parse_unix_date(text) == seconds


@given(st.integers(0, 2**33))
def test_every_second_is_read_back(seconds: int) -> None:
    assert parse_unix_date(unix_date(seconds)) == seconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Fri Jan  1 00:00:00 UTC 1970",
        "Thu Jan 01 00:00:00 UTC 1970",
        "Thu Jan  1 00:00:00 CET 1970",
        "Thu Jan  1 24:00:00 UTC 1970",
        "Wed Feb 30 00:00:00 UTC 2000",
        "Thu Jan  1 00:00:00 UTC 1970\n",
        "Thu Jan  1 00:00:00 UTC 0000",
    ],
)
def test_another_text_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match="accepted is one like"):
        parse_unix_date(text)
