"""Tasks that take batches on a bench: what is in line runs together, and each is settled by itself."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from mqworker import App, Batch, BatchContext, Rsmq, chain, group
from mqworker.errors import BatchFailed, ConfigurationError, InvalidArgument, NotSupported, TaskFailed
from mqworker.testing import Bench


@dataclass
class Row:
    tenant: str
    number: int


def test_what_waits_runs_in_one_call_and_each_job_has_its_own_result() -> None:
    app, called = App("shop"), []

    @app.task(batch=Batch(size=3))
    def double(numbers: list[int]) -> list[int]:
        called.append(numbers)
        return [2 * number for number in numbers]

    with Bench(app) as bench:
        jobs = double.map(range(7))
        summary = bench.run_all()

        assert [job.result() for job in jobs] == [0, 2, 4, 6, 8, 10, 12]
        assert (summary.ran, summary.succeeded) == (7, 7)
    assert called == [[0, 1, 2], [3, 4, 5], [6]]


async def _adouble(numbers: list[int]) -> list[int]:
    return [2 * number + len(numbers) for number in numbers]


def test_coroutine_functions_take_batches_too() -> None:
    app = App("shop")
    task = app.task(batch=Batch(size=10))(_adouble)

    with Bench(app) as bench:
        jobs = task.map(range(3))
        bench.run_all()

        assert [job.result() for job in jobs] == [3, 5, 7]


def test_rows_are_rebuilt_and_only_those_with_the_same_key_run_together() -> None:
    app, called = App("shop"), []

    @app.task(batch=Batch(size=10, by="{tenant}"))
    def load(rows: list[Row]) -> None:
        called.append(rows)

    with Bench(app) as bench:
        jobs = load.map([Row("a", 1), Row("a", 2), Row("b", 3), Row("a", 4)])
        bench.run_all()

        assert [job.result() for job in jobs] == [None] * 4
    assert called == [[Row("a", 1), Row("a", 2)], [Row("b", 3)], [Row("a", 4)]]


def test_a_batch_knows_each_of_its_calls() -> None:
    app, seen = App("shop"), []

    @app.task(batch=Batch(size=10), retry=2)
    def load(ctx: BatchContext, rows: list[int]) -> None:
        seen.append([(each.id, each.attempt) for each in ctx.members])
        if ctx.members[0].attempt == 1:
            raise BatchFailed({row: ValueError("again") for row in range(1, len(rows))})

    with Bench(app) as bench:
        jobs = load.map(range(3))
        summary = bench.run_to_end()

        assert [job.result() for job in jobs] == [None] * 3
    assert seen[0] == [(job.id, 1) for job in jobs]
    assert sorted(each for batch in seen[1:] for each in batch) == sorted((job.id, 2) for job in jobs[1:])
    assert (summary.succeeded, summary.retried) == (3, 2)


def test_another_error_is_the_error_of_every_row() -> None:
    app = App("shop")

    @app.task(batch=Batch(size=10), retry=0)
    def load(rows: list[int]) -> None:
        raise LookupError(f"no table for {len(rows)}")

    with Bench(app) as bench:
        jobs = load.map(range(3))
        bench.run_all()

        for job in jobs:
            with pytest.raises(TaskFailed, match="no table for 3"):
                job.result()
        assert len(bench.dead_letters(load)) == 3


def test_a_crash_halves_the_batch_until_the_guilty_row_is_alone() -> None:
    app, called = App("shop"), []

    @app.task(batch=Batch(size=10), max_crashes=2)
    def load(rows: list[int]) -> None:
        called.append(rows)

    with Bench(app) as bench:
        jobs = load.map(range(10))
        for _ in range(5):
            bench.crash_next(load)
        bench.run_all()

        ended = [job.status() for job in jobs]
    # 10 die, 8 die, 4 die, 2 die, 1 dies once, and then nobody does.
    assert called[0] == [0]
    assert {len(rows) for rows in called} <= {1, 2, 4, 8}
    assert {str(status) for status in ended} == {"succeeded"}


def wrong_count(rows: list[int]) -> list[int]:
    return rows[1:]


def wrong_type(rows: list[int]) -> list[int]:
    return len(rows)  # type: ignore[return-value]


def wrong_row(rows: list[int]) -> None:
    raise BatchFailed({0: ValueError(), len(rows): ValueError("too far")})


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (wrong_count, "a batch of 3 returned 2 results; accepted are a list with one for each row, or None"),
        (wrong_type, "a batch of 3 returned 3; accepted are a list with one for each row, or None"),
        (wrong_row, "a batch of 3 raised BatchFailed with row 3; accepted are rows from 0 to 2"),
    ],
)
def test_what_cannot_be_assigned_to_rows_buries_them_and_says_why(function: object, told: str) -> None:
    app = App("shop")
    task = app.task(batch=Batch(size=10))(function)  # type: ignore[call-overload]

    with Bench(app) as bench:
        task.map(range(3))
        bench.run_all()

        letters = bench.dead_letters(task)
    assert {(letter.reason, letter.error_message) for letter in letters} == {("result_not_accepted", told)}
    assert len(letters) == 3


def test_called_like_a_function_it_takes_a_list() -> None:
    app = App("shop")

    @app.task(batch=Batch(size=2))
    def count(ctx: BatchContext, rows: list[str]) -> list[str]:
        return [f"{row} of {len(ctx.members)}" for row in rows]

    assert count(["a", "b", "c"]) == ["a of 3", "b of 3", "c of 3"]


def takes_a_row(row: Row) -> None: ...
def takes_two(rows: list[Row], tenant: str) -> None: ...
def takes_any_number(*rows: Row) -> None: ...
def returns_one(rows: list[Row]) -> str: ...  # type: ignore[empty-body]
def takes_a_context(ctx: BatchContext, row: str) -> None: ...


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (takes_a_row, "test_bench_batches.Row; accepted is a function with one parameter that is a list"),
        (takes_two, "the parameters rows, tenant; accepted is a function with one parameter"),
        (takes_any_number, "the parameters rows; accepted is a function with one parameter"),
        (returns_one, "is annotated to return <class 'str'>; accepted is a list"),
    ],
)
def test_a_function_that_cannot_take_batches_is_refused_where_it_is_declared(
    function: object, told: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        App("shop").task(batch=Batch(size=2))(function)  # type: ignore[call-overload]

    assert told in str(refused.value)


def test_a_batch_context_belongs_to_a_task_that_takes_batches() -> None:
    with pytest.raises(ConfigurationError, match="accepted is Context, or batch=Batch"):
        App("shop").task(takes_a_context)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"size": 0}, "size is 0; accepted"),
        ({"size": True}, "size is True; accepted"),
        ({"size": 10_001}, "accepted"),
        ({"size": 5, "wait": -1}, "wait is -1; accepted are seconds from 0 to 60"),
        ({"size": 5, "wait": float("nan")}, "wait is nan; accepted are seconds from 0 to 60"),
        ({"size": 5, "wait": 61}, "accepted are seconds from 0 to 60"),
        ({"size": 5, "by": "tenant"}, "accepted is a template that names arguments"),
    ],
)
def test_numbers_that_make_no_batch_are_refused(options: dict[str, object], told: str) -> None:
    with pytest.raises(InvalidArgument, match=told):
        Batch(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"delivery": "at_most_once"}, 'accepted is "at_least_once" with it'),
        ({"max_running": 2}, "accepted is a size up to max_running"),
    ],
)
def test_options_that_a_batch_cannot_keep_are_refused(options: dict[str, object], told: str) -> None:
    with pytest.raises(InvalidArgument, match=told):
        App("shop").task(batch=Batch(size=3), **options)  # type: ignore[call-overload]


def test_a_key_that_no_row_has_is_refused() -> None:
    def load(rows: list[Row]) -> None: ...
    def load_any(rows: list[dict[str, int]]) -> None: ...

    with pytest.raises(
        ConfigurationError, match=r"the key '\{region\}' names region; accepted are its parameter"
    ):
        App("shop").task(batch=Batch(size=3, by="{region}"))(load)
    task = App("shop").task(batch=Batch(size=3, by="{region}"))(load_any)
    with Bench(App("other")), pytest.raises(InvalidArgument, match="has no region"):
        task.definition.options.batch.key_of(task.definition.arguments_for_keys([{"tenant": 1}], {}))  # type: ignore[union-attr]


def test_the_time_out_of_one_call_is_refused() -> None:
    app = App("shop")

    @app.task(batch=Batch(size=3), timeout=5)
    def load(rows: list[int]) -> None: ...

    with Bench(app), pytest.raises(InvalidArgument, match="accepted is the timeout of the task"):
        load.using(timeout=3).enqueue(1)


@pytest.mark.parametrize(
    "errors", [{}, {-1: ValueError()}, {True: ValueError()}, {"0": ValueError()}, {0: "no"}, [ValueError()]]
)
def test_failures_that_say_nothing_of_rows_are_refused(errors: object) -> None:
    with pytest.raises(InvalidArgument, match="accepted"):
        BatchFailed(errors)  # type: ignore[arg-type]


def test_rows_are_members_of_workflows_but_not_by_a_key_of_what_is_not_known_yet() -> None:
    app = App("shop")

    @app.task(batch=Batch(size=10))
    def double(numbers: list[int]) -> list[int]:
        return [2 * number for number in numbers]

    @app.task(batch=Batch(size=10, by="{tenant}"))
    def load(rows: list[dict[str, str]]) -> None: ...

    with Bench(app) as bench:
        job = (group(double.s(each) for each in (1, 2, 3)) | app.task(name="sum")(sum).s()).enqueue()
        bench.run_to_end()

        assert job.result() == 12
        with pytest.raises(InvalidArgument, match="its input, not known yet"):
            chain(double.s(1), load.s()).enqueue()


def test_queues_of_other_models_have_no_place_for_batches() -> None:
    app = App("shop")
    app.queue("old", model=Rsmq())

    with pytest.raises(NotSupported, match="batch has no place in queue old"):
        app.task(queue="old", batch=Batch(size=3), retry=0)(wrong_count)
