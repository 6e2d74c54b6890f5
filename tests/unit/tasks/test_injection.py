"""Injection, middleware and lifespans on a bench: what is opened, in which order, and that it is closed."""
# ruff: noqa: ARG001 - what is injected need not be used
# ruff: noqa: PT012 - a bench raises where it runs, and needs something to run

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any

import pytest

from mqworker import App, Context, Depends, OutgoingCall, Task, chain
from mqworker.errors import ConfigurationError, DidNotYield, InvalidArgument, LifespanFailed, MqworkerError
from mqworker.testing import Bench

LOG: list[str] = []


@pytest.fixture(autouse=True)
def _empty_log() -> None:
    LOG.clear()


def pool() -> Iterator[str]:
    LOG.append("open pool")
    yield "pool"
    LOG.append("close pool")


def session(opened: Annotated[str, Depends(pool, scope="worker")], ctx: Context) -> Iterator[str]:
    LOG.append("open session")
    try:
        yield f"session of {ctx.task} in {opened}"
    except BaseException as error:
        LOG.append(f"session sees {type(error).__name__}")
        raise
    finally:
        LOG.append("close session")


def user(of: Annotated[str, Depends(session)]) -> str:
    LOG.append("user")
    return f"user by {of}"


async def asession() -> AsyncIterator[str]:
    await asyncio.sleep(0)
    LOG.append("open asession")
    try:
        yield "asession"
    finally:
        await asyncio.sleep(0)
        LOG.append("close asession")


async def aworker() -> AsyncIterator[asyncio.AbstractEventLoop]:
    LOG.append("open aworker")
    yield asyncio.get_running_loop()
    LOG.append("close aworker")


Sessions = Annotated[str, Depends(session)]


def test_what_is_injected_is_opened_once_per_run_or_worker_and_closed_in_reverse() -> None:
    app = App("shop")

    @app.task(name="t")
    def t(number: int, one: Sessions, two: Annotated[str, Depends(user)], ctx: Context, more: int = 1) -> str:
        LOG.append(f"run {number} {more} {ctx.attempt} {one == two[8:]}")
        return one

    with Bench(app) as bench:
        jobs = [t.enqueue(1), t.enqueue(2, more=3), t.enqueue(3, 4)]
        bench.run_all()
        assert [job.result() for job in jobs] == ["session of t in pool"] * 3

    runs = [f"open session|user|run {call} 1 True|close session".split("|") for call in ("1 1", "2 3", "3 4")]
    first, *others = runs
    assert ["open pool", *first, *others[0], *others[1], "close pool"] == LOG


def test_an_injected_parameter_is_no_part_of_the_call() -> None:
    app = App("shop")

    @app.task(name="t")
    def t(number: int, one: Sessions, two: str = Depends(user)) -> None: ...

    assert t.definition.binding.parameters == ("number",)
    with pytest.raises(InvalidArgument, match=r"t\(number: 'int'\)"):
        t.s(1, "mine", "two", "three")
    with pytest.raises(InvalidArgument, match="unexpected keyword argument 'one'"):
        t.si(1, one="mine")  # type: ignore[call-arg]


def test_async_tasks_and_sync_tasks_take_providers_of_either_kind() -> None:
    app = App("shop")

    @app.task(name="a")
    async def a(one: Sessions, two: Annotated[str, Depends(asession)]) -> str:
        return f"{one}, {two}"

    @app.task(name="s")
    def s(one: Sessions, two: Annotated[str, Depends(asession)]) -> str:
        return f"{one}, {two}"

    with Bench(app) as bench:
        jobs = [a.enqueue(), s.enqueue()]
        bench.run_all()
        results = [job.result() for job in jobs]

    assert results == ["session of a in pool, asession", "session of s in pool, asession"]
    once = ["open session", "open asession", "close asession", "close session"]
    assert ["open pool", *once, *once, "close pool"] == LOG


async def _on_the_tests_loop(app: App, a: Task[[], bool]) -> list[bool]:
    async with Bench(app) as bench:
        jobs = [a.enqueue(), a.enqueue()]
        await bench.arun_all()
        return [await job.aresult() for job in jobs]


def test_what_is_async_and_lives_as_long_as_the_worker_begins_and_ends_on_its_loop() -> None:
    app = App("shop")

    @app.task(name="a")
    async def a(loop: Annotated[asyncio.AbstractEventLoop, Depends(aworker, scope="worker")]) -> bool:
        return loop is asyncio.get_running_loop()

    assert asyncio.run(_on_the_tests_loop(app, a)) == [True, True]
    assert LOG == ["open aworker", "close aworker"]

    with Bench(app) as bench:
        job = a.enqueue()
        bench.run_all()
        assert job.result() is True
    assert LOG == ["open aworker", "close aworker"] * 2


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_after_a_soft_time_out_everything_is_closed(is_async: bool) -> None:  # noqa: FBT001
    app = App("shop")

    if is_async:

        @app.task(name="t", timeout=0.05, retry=0)
        async def t(one: Sessions, two: Annotated[str, Depends(asession)]) -> None:
            await asyncio.sleep(30)
    else:

        @app.task(name="t", timeout=0.05, retry=0)
        def t(one: Sessions, two: Annotated[str, Depends(asession)]) -> None:
            asyncio.run(asyncio.sleep(30))

    with Bench(app) as bench:
        t.enqueue()
        assert bench.run_all().dead == 1
        letter = bench.dead_letters()[0]

    assert letter.error == "TaskTimeout"
    assert [
        *("open pool", "open session", "open asession", "close asession"),
        *("session sees TaskTimeout", "close session", "close pool"),
    ] == LOG


def test_an_error_while_opening_closes_what_was_opened_before() -> None:
    app = App("shop")

    def broken(_of: Annotated[str, Depends(session)]) -> str:
        raise OSError("no route")

    globals()["broken"] = broken

    @app.task(name="t", retry=0)
    def t(one: Annotated[str, Depends(broken)]) -> None: ...

    with Bench(app) as bench:
        t.enqueue()
        bench.run_all()
        letter = bench.dead_letters()[0]

    assert letter.error_message == "no route"
    assert LOG == ["open pool", "open session", "session sees OSError", "close session", "close pool"]


def test_a_clean_up_that_fails_fails_the_run_and_the_others_are_closed() -> None:
    app = App("shop")

    def commits(_of: Annotated[str, Depends(session)]) -> Iterator[int]:
        yield 1
        raise OSError("commit failed")

    globals()["commits"] = commits

    @app.task(name="t", retry=0)
    def t(one: Annotated[int, Depends(commits)]) -> None: ...

    with Bench(app) as bench:
        t.enqueue()
        bench.run_all()
        letter = bench.dead_letters()[0]

    assert letter.error_message == "commit failed"
    assert LOG[2:4] == ["session sees OSError", "close session"]


def test_a_provider_cannot_hide_that_a_task_failed() -> None:
    app = App("shop")

    def swallows() -> Iterator[None]:
        try:
            yield
        except ValueError:
            LOG.append("swallowed")

    globals()["swallows"] = swallows

    @app.task(name="t", retry=0)
    def t(one: Annotated[None, Depends(swallows)]) -> None:
        raise ValueError("bad")

    with Bench(app) as bench:
        t.enqueue()
        assert bench.run_all().dead == 1
    assert LOG == ["swallowed"]


def test_providers_are_overridden_for_a_test_nested_ones_too() -> None:
    app = App("shop")

    @app.task(name="t")
    def t(one: Annotated[str, Depends(user)]) -> str:
        return one

    def fake() -> Iterator[str]:
        LOG.append("open fake")
        yield "fake"
        LOG.append("close fake")

    with Bench(app) as bench:
        with app.override(session, fake):
            first = t.enqueue()
            bench.run_all()
        with app.override(session, value="value"):
            second = t.enqueue()
            bench.run_all()
        assert [first.result(), second.result()] == ["user by fake", "user by value"]
        assert LOG == ["open fake", "user", "close fake", "user"]
        third = t.enqueue()
        bench.run_all()
        assert third.result() == "user by session of t in pool"


def test_a_direct_call_is_injected_and_takes_a_double_by_name() -> None:
    app = App("shop")

    @app.task(name="t")
    def t(number: int, one: str = Depends(session)) -> str:
        return f"{number} {one}"

    @app.task(name="a")
    async def a(one: str = Depends(asession)) -> str:
        return one

    assert t(1) == "1 session of t in pool"
    assert t(1, one="double") == "1 double"
    assert asyncio.run(a()) == "asession"
    assert [
        *("open pool", "open session", "close session", "close pool"),
        *("open asession", "close asession"),
    ] == LOG


def test_what_cannot_be_provided_is_refused_with_names() -> None:
    app = App("shop")

    def left(of: Annotated[str, Depends(lambda: right)]) -> str:
        return of

    def right(of: Annotated[str, Depends(left)]) -> str:
        return of

    globals().update(left=left, right=right)
    left.__annotations__["of"] = Annotated[str, Depends(right)]

    def needs(what: int) -> None: ...

    def too_long(_of: Annotated[str, Depends(session)]) -> None: ...

    globals().update(needs=needs, too_long=too_long)
    cases = {
        "providers ask for each other": Depends(left),
        "takes what, which nobody gives it": Depends(needs),
        "ends with a run": Depends(too_long, scope="worker"),
    }
    for text, dependency in cases.items():
        with pytest.raises(ConfigurationError, match=text):
            app.injection.plan_of(dependency)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="given by name"):

        @app.task(name="t")
        def t(one: Sessions, /) -> None: ...

    with pytest.raises(InvalidArgument, match="scope is 'request'"):
        Depends(session, scope="request")  # type: ignore[call-overload]


def test_a_provider_that_does_not_yield_or_yields_twice_is_said_so() -> None:
    app = App("shop")

    def never() -> Iterator[int]:
        if LOG == ["never"]:
            yield 1

    def twice() -> Iterator[int]:
        yield 1
        yield 2

    globals().update(never=never, twice=twice)

    @app.task(name="n", retry=0)
    def n(one: Annotated[int, Depends(never)]) -> None: ...

    @app.task(name="w", retry=0)
    def w(one: Annotated[int, Depends(twice)]) -> None: ...

    with Bench(app) as bench:
        n.enqueue()
        w.enqueue()
        bench.run_all()
        letters = bench.dead_letters()
    assert [(each.error, each.error_message.split(";")[0]) for each in letters] == [
        (DidNotYield.__name__, f"{__name__}.{never.__qualname__} came to its end without a yield"),
        ("RuntimeError", "a generator yields twice"),
    ]


def test_text_that_somebody_published_is_never_evaluated() -> None:
    app = App("shop")
    hostile = "Annotated[LOG.append('run') or int, Depends(session)]"

    def stand_in(*_args: object) -> None: ...

    parameter = inspect.Parameter("one", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=hostile)
    stand_in.__signature__ = inspect.Signature([parameter])  # type: ignore[attr-defined]
    task = app.task(name="t")(stand_in)

    assert LOG == []
    assert task.definition.binding.parameters == ()  # nobody but a worker fills it in
    with pytest.raises((ConfigurationError, KeyError)):
        _ = task.definition.dependencies
    assert LOG == []


def test_middleware_is_around_each_run_the_first_outermost() -> None:
    app = App("shop")

    @app.middleware
    def outer(ctx: Context, opened: Annotated[str, Depends(pool, scope="worker")]) -> Iterator[None]:
        LOG.append(f"outer {ctx.task} {opened}")
        try:
            result = yield
            LOG.append(f"outer got {result}")
        except ValueError:
            LOG.append("outer saw ValueError")
            raise

    @app.middleware
    async def inner() -> AsyncIterator[None]:
        LOG.append("inner")
        yield
        LOG.append("inner ends")

    @app.task(name="s")
    def s() -> int:
        return 7

    @app.task(name="a", retry=0)
    async def a() -> None:
        raise ValueError

    with Bench(app) as bench:
        s.enqueue()
        bench.run_all()
        a.enqueue()
        bench.run_all()

    assert [
        *("open pool", "outer s pool", "inner", "inner ends", "outer got 7"),
        *("outer a pool", "inner", "outer saw ValueError", "close pool"),
    ] == LOG


def test_a_middleware_that_does_not_yield_skips_the_task() -> None:
    app = App("shop")

    @app.middleware
    def switch(ctx: Context) -> Iterator[None]:
        if ctx.task == "off":
            return "skipped"  # type: ignore[return-value]
        yield

    @app.task(name="off")
    def off() -> str:
        LOG.append("ran")
        return "ran"

    @app.task(name="on")
    def on() -> str:
        return "ran"

    with Bench(app) as bench:
        jobs = [off.enqueue(), on.enqueue()]
        bench.run_all()
        assert [job.result() for job in jobs] == ["skipped", "ran"]
    assert LOG == []


def test_enqueue_middleware_is_around_the_storing_of_each_call() -> None:
    app = App("shop")

    @app.enqueue_middleware
    def tenant(call: OutgoingCall) -> Iterator[None]:
        call.headers["tenant"] = str(call.args[0])
        yield
        LOG.append(f"{call.task} {call.args} {call.id is not None}")

    @app.task(name="t")
    def t(number: int, ctx: Context) -> str:
        return ctx.headers["tenant"]

    async def more() -> list[str]:
        jobs = [await t.aenqueue(4), *await t.aenqueue_many([(5,), t.si(6)])]
        await bench.arun_all()
        return [await job.aresult() for job in jobs]

    with Bench(app) as bench:
        jobs = [t.enqueue(1), *t.enqueue_many([(2,), t.si(3)])]
        bench.run_all()
        assert [job.result() for job in jobs] == ["1", "2", "3"]
        assert asyncio.run(more()) == ["4", "5", "6"]
    assert sorted(LOG) == [f"t ({number},) True" for number in range(1, 7)]


def test_enqueue_middleware_is_around_calls_of_workflows_and_buffers_too() -> None:
    app = App("shop")

    @app.enqueue_middleware
    def tenant(call: OutgoingCall) -> Iterator[None]:
        call.headers["tenant"] = "acme"
        yield
        LOG.append(f"{call.task} {call.id is not None}")

    @app.task(name="t")
    def t(number: int, ctx: Context) -> int:
        assert ctx.headers["tenant"] == "acme"
        return number + 1

    with Bench(app) as bench:
        job = chain(t.s(1), t.s()).enqueue()
        with app.producer() as producer:
            other = producer.enqueue(t, 7)
        bench.run_all()
        assert (job.result(), other.result()) == (3, 8)
    assert LOG == ["t True"] * 3


def test_lifespans_surround_a_worker_and_fill_its_state() -> None:
    app = App("shop")

    @app.lifespan
    def first(given: App) -> Iterator[dict[str, Any]]:
        LOG.append(f"first of {given.name}")
        yield {"engine": "engine"}
        LOG.append("first ends")

    @app.lifespan
    async def second() -> AsyncIterator[None]:
        LOG.append("second")
        yield
        LOG.append("second ends")

    app.hooks.on_worker_start(lambda: LOG.append("hook"))
    app.hooks.on_worker_stop(lambda: LOG.append("stop hook"))

    @app.task(name="t")
    def t(ctx: Context) -> str:
        return str(ctx.state.engine)

    with Bench(app) as bench:
        assert LOG == []  # the first run starts the worker
        jobs = [t.enqueue(), t.enqueue()]
        bench.run_all()
        assert [job.result() for job in jobs] == ["engine", "engine"]
    assert LOG == ["first of shop", "second", "hook", "stop hook", "second ends", "first ends"]

    with (
        app.override(first, lambda: iter([{"engine": "fake"}])),
        pytest.raises(LifespanFailed, match="generator"),
        Bench(app) as bench,
    ):
        t.enqueue()
        bench.run_all()

    def fake() -> Iterator[dict[str, Any]]:
        yield {"engine": "fake"}

    with app.override(first, fake), Bench(app) as bench:
        job = t.enqueue()
        bench.run_all()
        assert job.result() == "fake"


def test_a_lifespan_that_fails_says_which_and_why() -> None:
    app = App("shop")

    @app.lifespan
    def broken() -> Iterator[None]:
        raise OSError("no database")
        yield

    @app.task(name="t")
    def t() -> None: ...

    with (
        pytest.raises(LifespanFailed, match="broken failed at its start: OSError: no database"),
        Bench(app) as bench,
    ):
        t.enqueue()
        bench.run_all()
    with pytest.raises(InvalidArgument, match="generator function"):
        app.lifespan(lambda: None)


def test_a_bench_on_an_event_loop_says_how_it_is_closed() -> None:
    app = App("shop")

    @app.task(name="a")
    async def a(loop: Annotated[object, Depends(aworker, scope="worker")]) -> None: ...

    async def wrong() -> None:
        with pytest.raises(MqworkerError, match="async with Bench"), Bench(app) as bench:
            a.enqueue()
            await bench.arun_all()
        await bench.aclose()

    asyncio.run(wrong())
    assert LOG == ["open aworker", "close aworker"]


def test_nobody_has_to_remember_names() -> None:
    import mqworker  # noqa: PLC0415

    assert set(mqworker.__all__) <= set(dir(mqworker))
