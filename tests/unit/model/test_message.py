"""Messages, guards, instants and lanes: checked where they are made, so that nothing wrong gets further."""

from __future__ import annotations

import os
from typing import Any, TypeAlias

import pytest

from mqworker.errors import InvalidArgument
from mqworker.model.guard import Guard, GuardMode, unique_guard
from mqworker.model.instant import After, At, as_argument
from mqworker.model.message import LARGEST_BODY_BYTES, Message
from mqworker.store.exchange import LanePool

Foreign: TypeAlias = Any
"""A value that no type checker would let pass: callers have none."""

NO_NUMBERS = [-1, 2**63, float("nan"), float("inf"), 1.5, True, "1e9"]


@pytest.mark.parametrize("priority", [*NO_NUMBERS, 10, 0.0])
def test_a_priority_is_a_digit(priority: Foreign) -> None:
    with pytest.raises(InvalidArgument):
        Message("m", b"", priority=priority)


@pytest.mark.parametrize("max_crashes", [*NO_NUMBERS, 0, 36, 3.0])
def test_a_limit_of_crashes_is_a_small_number(max_crashes: Foreign) -> None:
    with pytest.raises(InvalidArgument):
        Message("m", b"", max_crashes=max_crashes)


@pytest.mark.parametrize("instant", [After, At])
@pytest.mark.parametrize("value", NO_NUMBERS)
def test_an_instant_is_a_whole_number_of_milliseconds(instant: Foreign, value: Foreign) -> None:
    with pytest.raises(InvalidArgument):
        instant(value)


def test_a_delay_of_years_is_a_unit_mixed_up() -> None:
    with pytest.raises(InvalidArgument):
        After(1_000 * 366 * 24 * 3600 * 1000)


@pytest.mark.parametrize("body", ["text", None, 5, bytearray(b"x"), memoryview(b"x")])
def test_a_body_is_bytes(body: Foreign) -> None:
    with pytest.raises(InvalidArgument):
        Message("m", body)


def test_a_body_of_a_mebibyte_is_the_largest() -> None:
    Message("m", b"x" * LARGEST_BODY_BYTES)

    with pytest.raises(InvalidArgument, match="1,048,577 bytes"):
        Message("m", b"x" * (LARGEST_BODY_BYTES + 1))


@pytest.mark.parametrize("message", ["", "a b", 'q"] redis.call("FLUSHALL") --', "x" * 10_240, None])
def test_an_id_is_checked(message: Foreign) -> None:
    with pytest.raises(InvalidArgument):
        Message(message, b"")


@pytest.mark.parametrize("task", ["", "a b", "os.system('x')", "builtins eval"])
def test_a_task_is_checked(task: Foreign) -> None:
    with pytest.raises(InvalidArgument):
        Message("m", b"", task)


@pytest.mark.parametrize("key", ["", "x" * 4097, None, 5])
def test_a_unique_key_is_a_text_of_some_length(key: Foreign) -> None:
    with pytest.raises(InvalidArgument):
        unique_guard(key, GuardMode.UNTIL_SETTLED)


@pytest.mark.parametrize("ttl_ms", [*NO_NUMBERS, 0])
def test_a_guard_for_a_time_needs_the_time(ttl_ms: Foreign) -> None:
    with pytest.raises(InvalidArgument):
        unique_guard("k", GuardMode.FOR_A_TIME, ttl_ms=ttl_ms)


def test_a_guard_with_a_space_would_break_the_record() -> None:
    with pytest.raises(InvalidArgument):
        Guard(GuardMode.UNTIL_SETTLED, "a b")


def test_keys_that_differ_are_stored_differently() -> None:
    keys = ["a b", "a  b", "a", "#a", "A", "ключ"]

    stored = {unique_guard(key, GuardMode.UNTIL_SETTLED).key for key in keys}

    assert len(stored) == len(keys)


def test_instants_as_scripts_read_them() -> None:
    assert [as_argument(None), as_argument(After(5)), as_argument(At(7))] == ["", "+5", "7"]


def test_a_lane_in_use_is_never_handed_out_again() -> None:
    lanes = LanePool()
    first, second = lanes.take(), lanes.take()
    lanes.give_back(second)

    third = lanes.take()

    assert third is second
    assert first.name != second.name
    assert second.next_call() == (second.name, 1)
    assert third.next_call() == (second.name, 2)


def test_a_forked_child_leaves_the_lanes_of_its_parent_alone() -> None:
    lanes = LanePool()
    mine = lanes.take()
    lanes.give_back(mine)
    reading, writing = os.pipe()

    child = os.fork()
    if child == 0:
        os.write(writing, lanes.take().name.encode())
        os._exit(0)
    os.waitpid(child, 0)
    theirs = os.read(reading, 100).decode()
    os.close(reading)
    os.close(writing)

    assert theirs != mine.name
    assert lanes.take() is mine
