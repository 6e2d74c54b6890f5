"""Rates, waits and percentiles of the benchmarks, and the board they come from."""

from pathlib import Path

import pytest

from benchmarks.figures import apart, never_ran, percentile, ran_twice, steady_rate, waits_ms
from benchmarks.peers.bench_board import Board
from benchmarks.rounds import Series

SECOND_NS = 1_000_000_000


def test_a_steady_rate_leaves_out_the_first_and_the_last_tenth() -> None:
    slow_start = [1 * SECOND_NS]
    steady = [10 * SECOND_NS + number * SECOND_NS // 100 for number in range(18)]
    slow_end = [90 * SECOND_NS]

    assert steady_rate([*slow_start, *steady, *slow_end]) == pytest.approx(100, rel=0.2)


def test_a_steady_rate_knows_no_order_and_no_tasks_that_did_not_run() -> None:
    instants = [number * SECOND_NS // 10 for number in range(1, 21)]

    assert steady_rate([0, *reversed(instants), 0]) == pytest.approx(10)


@pytest.mark.parametrize("instants", [[], [0, 0], [5], [7, 7, 7]])
def test_too_few_instants_have_no_rate(instants: list[int]) -> None:
    assert steady_rate(instants) == 0


def test_waits_are_in_milliseconds_and_in_order() -> None:
    assert waits_ms([1_000_000, 2_000_000, 3_000_000], [6_000_000, 0, 5_000_000]) == [2, 5]


@pytest.mark.parametrize(("percent", "expected"), [(0, 1), (50, 50), (95, 95), (99, 99), (100, 100)])
def test_a_percentile_is_a_value_that_occurred(percent: float, expected: float) -> None:
    assert percentile([float(number) for number in range(1, 101)], percent) == expected


def test_a_percentile_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="percentile: got no values"):
        percentile([], 50)


def test_runs_are_counted_by_task() -> None:
    assert (never_ran(bytes([0, 1, 2, 0, 3])), ran_twice(bytes([0, 1, 2, 0, 3]))) == (2, 2)


def test_names_that_would_cover_each_other_are_moved_apart() -> None:
    upper, lower, far_away = apart([100, 90, 10], gap=2)

    assert upper == pytest.approx(2 * lower)
    assert upper * lower == pytest.approx(100 * 90), "as much up as down"
    assert far_away == pytest.approx(10)


def test_a_ratio_is_taken_within_each_round() -> None:
    drifting_ours = Series("ours", (100, 50, 10))
    drifting_theirs = Series("theirs", (10, 5, 1))

    assert drifting_ours.ratio_to(drifting_theirs) == 10


def test_a_board_counts_every_task_exactly(tmp_path: Path) -> None:
    board = Board.create(tmp_path / "board", capacity=10)
    for index in (0, 1, 1, 3):
        board.note_run(index)

    assert board.runs(0, 5) == bytes([1, 2, 0, 1, 0])
    assert board.done(0, 5) == 3
    assert board.first_missing(0, 5) == 2
    assert board.first_missing(0, 2) == 2


def test_a_board_keeps_the_time_of_the_first_run(tmp_path: Path) -> None:
    board = Board.create(tmp_path / "board", capacity=4)
    board.note_sent(2)
    board.note_run(2)
    first = board.ran_at(2, 3)
    board.note_run(2)

    assert board.ran_at(2, 3) == first
    assert board.ran_at(0, 2) == (0, 0)
    assert board.sent_at(2, 3) <= first


def test_two_processes_see_one_board(tmp_path: Path) -> None:
    ours = Board.create(tmp_path / "board", capacity=4)
    theirs = Board(tmp_path / "board")

    theirs.note_run(3)

    assert (ours.capacity, ours.done(0, 4)) == (theirs.capacity, 1)
