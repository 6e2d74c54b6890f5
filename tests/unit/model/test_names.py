"""Names and numbers from outside: everything that is not plainly right is refused, with a short text."""

from __future__ import annotations

import pytest

from mqworker.errors import InvalidArgument
from mqworker.model.names import (
    consumer_name,
    message_id,
    queue_name,
    shown,
    task_name,
    whole_number,
)

INJECTION = 'q"] redis.call("FLUSHALL") --'
NO_NAMES = [
    "",
    "x" * 129,
    "a\n",
    "a b",
    "a:b",
    "{x}",
    "*",
    "../x",
    "%00",
    "a\x00",
    "quеuе",  # noqa: RUF001 - Cyrillic on purpose
    "queue:lease",
    "-dash",
    ".dot",
    "é",
    "a\r\nPUSH other x",
    INJECTION,
]


@pytest.mark.parametrize("check", [task_name, consumer_name])  # those of queues: test_queue_names.py
@pytest.mark.parametrize("value", [*NO_NAMES, None, 1, b"bytes", ["list"], True])
def test_what_is_no_name_is_refused(check: type, value: object) -> None:
    with pytest.raises(InvalidArgument):
        check(value)


@pytest.mark.parametrize("check", [queue_name, task_name, consumer_name, message_id])
@pytest.mark.parametrize("value", ["a", "A-b_c.d", "0", "_", "x" * 128])
def test_names_come_back_as_they_were(check: type, value: str) -> None:
    assert check(value) == value


@pytest.mark.parametrize("value", ["a:b", "user@host", "1-1", "a/b", "x+y=z~", "1700000000000-12"])
def test_ids_may_hold_more_than_names(value: str) -> None:
    assert message_id(value) == value


@pytest.mark.parametrize("value", ["", "x" * 10_240, "a b", "a\n", "ключ", INJECTION, None, 7, b"x"])
def test_what_is_no_id_is_refused(value: object) -> None:
    with pytest.raises(InvalidArgument):
        message_id(value)


@pytest.mark.parametrize(
    "value", [-1, 11, 2**63, 1.0, float("nan"), float("inf"), True, False, "1e9", "5", None]
)
def test_what_is_no_whole_number_within_bounds_is_refused(value: object) -> None:
    with pytest.raises(InvalidArgument, match=r"count is .*; accepted is a whole number from 0 to 10"):
        whole_number("count", value, least=0, most=10)


@pytest.mark.parametrize("value", [0, 5, 10])
def test_whole_numbers_come_back(value: int) -> None:
    assert whole_number("count", value, least=0, most=10) == value


def test_an_error_shows_at_most_a_little_of_what_was_given() -> None:
    text = shown("\x1b[2J\r\nFAKE LOG " + "x" * 1_000_000)

    assert len(text) < 100
    assert text.isascii()
    assert "\x1b" not in text
    assert "\n" not in text
