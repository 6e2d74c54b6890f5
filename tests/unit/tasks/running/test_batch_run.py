"""What the end of a batch says of each of its rows."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mqworker.errors import BatchFailed
from mqworker.tasks.running.batch_run import Returned, ends_after, ends_of
from mqworker.tasks.running.result import ResultRefused

SIZES = st.integers(1, 60)


@given(results=st.lists(st.integers(), min_size=1, max_size=60))
def test_each_row_has_the_result_of_its_place(results: list[int]) -> None:
    assert ends_of(results, len(results)) == [Returned(each) for each in results]


@given(size=SIZES, results=st.none() | st.lists(st.integers(), max_size=70))
def test_there_is_one_end_for_each_row_whatever_is_returned(size: int, results: list[int] | None) -> None:
    ends = ends_of(results, size)

    assert len(ends) == size
    is_good = results is None or len(results) == size
    assert all(isinstance(each, Returned if is_good else ResultRefused) for each in ends)


@given(data=st.data(), size=SIZES)
def test_exactly_the_rows_that_failed_fail_and_the_others_succeed(data: st.DataObject, size: int) -> None:
    failed = data.draw(st.sets(st.integers(0, size - 1), min_size=1))
    results = data.draw(st.none() | st.just([f"of {row}" for row in range(size)]))
    errors = {row: ValueError(str(row)) for row in failed}

    ends = ends_after(BatchFailed(errors, results), size)

    for row, end in enumerate(ends):
        expected = errors.get(row) or Returned(None if results is None else f"of {row}")
        assert end == expected
    assert len(ends) == size


@given(size=SIZES, beyond=st.integers(0, 1_000))
def test_a_row_that_is_not_there_leaves_none_of_them_succeeded(size: int, beyond: int) -> None:
    ends = ends_after(BatchFailed({size + beyond: ValueError()}), size)

    assert [type(each) for each in ends] == [ResultRefused] * size


@given(size=SIZES)
def test_any_other_error_is_that_of_every_row(size: int) -> None:
    error = LookupError("no table")

    assert ends_after(error, size) == [error] * size
