"""Limits as tasks speak of them: closed keys, `RateLimited`, breakers, and what a call cost in truth."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, TypeAlias

import pytest

from mqworker import App, Breaker, Context, Rate
from mqworker.errors import ConfigurationError, InvalidArgument, RateLimited
from mqworker.settings import Settings
from mqworker.testing import Bench

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
Bad: TypeAlias = Any
"""What no type checker would let through."""


@pytest.fixture
def app() -> App:
    """An app that could reach no server."""
    return App("shop", settings=Settings(redis_url="redis://127.0.0.1:1"))


@pytest.fixture
def bench(app: App) -> Iterator[Bench]:
    """The app on a bench."""
    with Bench(app, now=NOW) as opened:
        yield opened


def test_rate_limited_closes_the_key_and_the_message_comes_first_again_uncounted(
    app: App, bench: Bench
) -> None:
    seen: list[tuple[str, int]] = []

    @app.task(name="ask", max_running={"{tenant}": 1}, retry=0)
    def ask(ctx: Context, tenant: str, number: int) -> int:
        seen.append((tenant, number))
        if tenant == "ann" and ctx.attempt == 1 and number == 0:
            raise RateLimited(retry_after=30)
        return number

    jobs = [ask.enqueue("ann", 0), ask.enqueue("ann", 1), ask.enqueue("ben", 2)]
    bench.run_all()
    assert seen == [("ann", 0), ("ben", 2)]

    bench.advance(seconds=31)
    bench.run_all()

    assert [job.result() for job in jobs] == [0, 1, 2]
    assert seen[2:] == [("ann", 0), ("ann", 1)]


def test_rate_limited_without_limits_delays_the_message_alone(app: App, bench: Bench) -> None:
    @app.task(name="ask", retry=0)
    def ask(ctx: Context, number: int) -> int:
        if ctx.attempt == 1 and number == 0:
            raise RateLimited(retry_after=30)
        return ctx.failures

    jobs = [ask.enqueue(0), ask.enqueue(1)]
    bench.run_all()
    assert jobs[1].result() == 0

    bench.advance(seconds=31)
    bench.run_all()
    assert jobs[0].result() == 0


def test_close_names_a_key_of_the_limits_and_others_go_on(app: App, bench: Bench) -> None:
    seen: list[str] = []

    @app.task(name="ask", max_running=[5, {"{tenant}": 5}])
    def ask(ctx: Context, tenant: str) -> None:
        seen.append(tenant)
        if len(seen) == 1:
            ctx.close("{tenant}", for_=30)

    ask.enqueue_many([("ann",)])
    bench.run_all()
    ask.enqueue_many([("ann",), ("ben",)])
    bench.run_all()
    assert seen == ["ann", "ben"]
    bench.advance(seconds=31)
    bench.run_all()

    assert seen == ["ann", "ben", "ann"]


def test_a_key_that_no_limit_has_is_an_error_that_names_those_they_have(app: App, bench: Bench) -> None:
    problems: list[str] = []

    @app.task(name="ask", rate=Rate("100/s", key="{tenant}"), retry=0)
    def ask(ctx: Context, tenant: str, region: str) -> None:  # noqa: ARG001 - keys
        try:
            ctx.close("{region}", for_=30)
        except InvalidArgument as problem:
            problems.append(str(problem))

    ask.enqueue("ann", "eu")
    bench.run_all()

    assert problems == ["key is '{region}'; accepted are keys of the limits of ask: '{tenant}'"]


def test_a_breaker_closes_the_key_of_calls_that_fail(app: App, bench: Bench) -> None:
    seen: list[str] = []

    @app.task(name="ask", breaker=Breaker("{tenant}", failures=2, within=60, close_for=30), retry=0)
    def ask(tenant: str, *, is_good: bool) -> None:
        seen.append(tenant)
        if not is_good:
            raise ValueError(tenant)

    for _ in range(2):
        ask.enqueue("ann", is_good=False)
    bench.run_all()
    ask.enqueue("ann", is_good=True)
    ask.enqueue("ben", is_good=True)
    bench.run_all()
    assert seen == ["ann", "ann", "ben"]
    bench.advance(seconds=31)
    bench.run_all()

    assert seen == ["ann", "ann", "ben", "ann"]


def test_the_true_cost_replaces_the_assumed_one(app: App, bench: Bench) -> None:
    seen: list[int] = []

    @app.task(name="ask", rate=Rate("100/m", cost="{tokens}"))
    def ask(ctx: Context, tokens: int) -> None:
        seen.append(tokens)
        ctx.spent(10)

    ask.enqueue_many([(90,), (90,), (90,)])
    bench.run_all()

    assert seen == [90, 90]  # 10 + 10 of 100 are spent: 90 more wait for ten of them
    bench.advance(seconds=30)
    bench.run_all()
    assert seen == [90, 90, 90]


@pytest.mark.parametrize("bad", [-1, float("nan"), float("inf"), "7", None, True])
def test_a_weight_that_is_none_is_refused_where_the_call_is_made(app: App, bench: Bench, bad: Bad) -> None:
    del bench

    @app.task(name="ask", rate=Rate("100/m", cost="{tokens}"))
    def ask(tokens: int) -> None: ...

    with pytest.raises(InvalidArgument, match=r"tokens.*accepted (is a number|are finite)"):
        ask.enqueue(bad)


@pytest.mark.parametrize("bad", ["tokens", "{a}{b}", "{a.b}", "", 7, "{}"])
def test_a_cost_that_names_no_single_argument_is_refused(bad: Bad) -> None:
    with pytest.raises(InvalidArgument, match=r"cost is .*accepted"):
        Rate("1/s", cost=bad)


def test_a_cost_that_names_no_parameter_is_refused(app: App) -> None:
    with pytest.raises(ConfigurationError, match="accepted are its parameters"):

        @app.task(rate=Rate("100/m", cost="{tokens}"))
        def ask(number: int) -> None: ...


@pytest.mark.parametrize(
    "bad", [{"failures": 0}, {"failures": 1.5}, {"within": 0}, {"close_for": float("nan")}, {"key": "x"}]
)
def test_a_breaker_is_checked_where_it_is_made(bad: Bad) -> None:
    with pytest.raises(InvalidArgument, match="accepted"):
        Breaker(**bad)
