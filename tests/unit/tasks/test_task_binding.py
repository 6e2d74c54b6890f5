"""Arguments are bound when enqueued; the context is the worker's business; names and options are checked."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from mqworker import App, Context, Rate, Retry, Unique
from mqworker.errors import ConfigurationError, InvalidArgument
from mqworker.model.instant import After, At
from mqworker.model.names import TaskName
from mqworker.tasks.binding import Binding
from mqworker.tasks.context import local_context
from mqworker.tasks.options import Wishes, plan_of, plan_with, task_options

CONTEXT = local_context(TaskName("t"))


def plain(a: int, b: int = 2) -> None: ...
def keywords(a: int, *, b: int) -> None: ...
def anything(*args: int, **kwargs: int) -> None: ...
def positional(a: int, /, b: int) -> None: ...
def first(ctx: Context, a: int) -> None: ...
def last(a: int, ctx: Context) -> None: ...
def named(a: int, *, ctx: Context | None = None) -> None: ...


@pytest.mark.parametrize(
    ("function", "args", "kwargs"),
    [
        (plain, (1,), {}),
        (plain, (1, 2), {}),
        (plain, (), {"a": 1, "b": 2}),
        (keywords, (1,), {"b": 2}),
        (anything, (1, 2, 3), {"x": 1}),
        (positional, (1,), {"b": 2}),
        (first, (1,), {}),
        (last, (), {"a": 1}),
    ],
)
def test_a_call_that_fits_is_accepted(
    function: Callable[..., None], args: tuple[int, ...], kwargs: dict[str, int]
) -> None:
    Binding("t", function).check(args, kwargs)


@pytest.mark.parametrize(
    ("function", "args", "kwargs", "words"),
    [
        (plain, (), {}, r"t\(a.*missing a required argument: 'a'"),
        (plain, (1, 2, 3), {}, "too many positional arguments"),
        (plain, (1,), {"a": 1}, "multiple values for argument 'a'"),
        (plain, (1,), {"c": 1}, "unexpected keyword argument 'c'"),
        (keywords, (1, 2), {}, "too many positional arguments"),
        (positional, (), {"a": 1, "b": 2}, "positional.only"),
        (first, (CONTEXT, 1), {}, "too many positional arguments"),
        (last, (1,), {"ctx": CONTEXT}, "unexpected keyword argument 'ctx'"),
    ],
)
def test_a_call_that_does_not_fit_fails_before_it_is_sent(
    function: Callable[..., None], args: tuple[object, ...], kwargs: dict[str, object], words: str
) -> None:
    with pytest.raises(InvalidArgument, match=words):
        Binding("t", function).check(args, kwargs)


@pytest.mark.parametrize(
    ("function", "args", "kwargs", "called"),
    [
        (first, [1], {}, ([CONTEXT, 1], {})),
        (first, [], {"a": 1}, ([CONTEXT], {"a": 1})),
        (last, [1], {}, ([1, CONTEXT], {})),
        (last, [], {"a": 1}, ([], {"a": 1, "ctx": CONTEXT})),
        (named, [1], {}, ([1], {"ctx": CONTEXT})),
        (plain, [1], {}, ([1], {})),
    ],
)
def test_the_context_is_put_where_the_function_expects_it(
    function: Callable[..., None],
    args: list[object],
    kwargs: dict[str, object],
    called: tuple[list[object], dict[str, object]],
) -> None:
    Binding("t", function).inject(args, kwargs, CONTEXT)

    assert (args, kwargs) == called


def test_a_plain_call_runs_here_with_a_context_of_its_own() -> None:
    app = App("shop")

    @app.task
    def which(ctx: Context, text: str) -> str:
        return f"{ctx.task} {ctx.attempt} {text}"

    assert which("hi") == f"{which.name} 1 hi"


def test_a_task_is_named_after_its_module_and_function_unless_it_is_named() -> None:
    app = App("shop")

    task, other = app.task(plain), app.task(name="mail.send")(plain)

    assert task.name.endswith("test_task_binding.plain")
    assert other.name == "mail.send"
    assert [definition.name for definition in app.registry] == [task.name, "mail.send"]


def test_two_tasks_of_one_name_are_refused() -> None:
    app = App("shop")
    app.task(name="t")(plain)

    with pytest.raises(ConfigurationError, match="two tasks are named t"):
        app.task(name="t")(keywords)


def test_a_key_that_names_no_parameter_is_refused_when_the_task_is_defined() -> None:
    app = App("shop")

    with pytest.raises(ConfigurationError, match=r"names tenant; accepted are its parameters a, b"):
        app.task(rate=Rate("5/m", key="{tenant}"))(plain)
    with pytest.raises(ConfigurationError, match="names user"):
        app.task(unique="{user}")(plain)


@pytest.mark.parametrize(
    "option",
    [
        {"queue": "a\nb"},
        {"retry": -1},
        {"timeout": 0},
        {"timeout": float("nan")},
        {"timeout": True},
        {"hard_timeout": -1},
        {"rate": "fast"},
        {"deadline": 10**12},
        {"delivery": "exactly_once"},
        {"unique": 5},
        {"priority": 10},
        {"priority": True},
        {"result_ttl": "1e9"},
        {"max_crashes": 0},
        {"max_losses": 0},
        {"max_losses": 26},
        {"max_losses": True},
        {"max_losses": 2.0},
    ],
    ids=str,
)
def test_an_option_outside_its_bounds_is_refused(option: dict[str, object]) -> None:
    with pytest.raises(InvalidArgument, match="accepted"):
        task_options(**option)  # type: ignore[arg-type] # wrong on purpose


def test_options_are_kept_in_milliseconds() -> None:
    options = task_options(timeout=30, deadline=timedelta(hours=1), result_ttl=0, retry=5, unique="{a}")

    assert (options.timeout_ms, options.hard_timeout_ms, options.deadline_ms) == (30_000, 40_000, 3_600_000)
    assert (options.result_ttl_ms, options.retry.max, options.unique) == (0, 5, Unique("{a}"))


def test_at_most_once_is_not_retried_unless_asked_for() -> None:
    assert task_options(delivery="at_most_once").retry.max == 0
    assert task_options(delivery="at_most_once", retry=Retry(max=2)).retry.max == 2


def test_a_call_may_wish_for_another_time_place_and_order() -> None:
    moment = datetime(2030, 1, 1, tzinfo=UTC)
    wishes = Wishes(delay=moment, deadline=60, priority=9, queue="mail", id="order-7", headers={"a": "b"})

    plan = plan_with(plan_of(task_options(queue="other", deadline=5)), wishes)

    assert (plan.due, plan.deadline) == (At(round(moment.timestamp() * 1000)), After(60_000))
    assert (plan.priority, plan.queue, plan.id) == (9, "mail", "order-7")
    assert plan.extra is not None
    assert plan.extra.headers == {"a": "b"}


@pytest.mark.parametrize(
    "wish",
    [
        {"delay": -1},
        {"delay": datetime(2030, 1, 1)},  # noqa: DTZ001 - on purpose
        {"delay": 2**63},
        {"deadline": float("inf")},
        {"priority": -1},
        {"id": ""},
        {"id": "x" * 10_000},
        {"queue": "a\n"},
        {"headers": {"a": 1}},
        {"timeout": -1},
    ],
    ids=lambda wish: next(iter(wish)),
)
def test_a_wish_outside_its_bounds_is_refused(wish: dict[str, object]) -> None:
    with pytest.raises(InvalidArgument, match="accepted"):
        plan_with(plan_of(task_options()), Wishes(**wish))  # type: ignore[arg-type] # wrong on purpose
