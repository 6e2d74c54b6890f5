"""The bench for users' tests: the states of production, in memory, under a clock that the test moves."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from mqworker import App, Context, JobStatus, Rate, Retry, Unique
from mqworker.errors import (
    InvalidArgument,
    MqworkerError,
    QueueFull,
    ResultNotKept,
    ResultTimeout,
    StoreRefused,
    TaskExpired,
    TaskFailed,
    UnknownTask,
)
from mqworker.settings import Settings
from mqworker.testing import Bench, JobNotEnded, Summary

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


@dataclass
class Order:
    id: int


@pytest.fixture
def app() -> App:
    """An app that could reach no server."""
    return App("shop", settings=Settings(redis_url="redis://127.0.0.1:1"))


@pytest.fixture
def bench(app: App) -> Iterator[Bench]:
    """The app on a bench."""
    with Bench(app, now=NOW) as opened:
        yield opened


def test_a_task_runs_when_the_bench_says_so_and_its_result_is_kept(app: App, bench: Bench) -> None:
    @app.task
    def add(a: int, b: int) -> int:
        return a + b

    job = add.delay(1, 2)
    before = job.status()
    summary = bench.run_all()

    assert before is JobStatus.WAITING
    assert summary == Summary(ran=1, succeeded=1)
    assert job.result() == 3


def test_async_tasks_run_without_a_loop_and_on_that_of_the_test(app: App, bench: Bench) -> None:
    @app.task
    async def double(number: int) -> int:
        await asyncio.sleep(0)
        return 2 * number

    async def use() -> int:
        job = await double.aenqueue(4)
        with pytest.raises(MqworkerError, match="arun_all"):
            bench.run_all()
        assert (await bench.arun_all()).succeeded == 1
        return await job.aresult()

    job = double.delay(2)
    bench.run_all()

    assert job.result() == 4
    assert asyncio.run(use()) == 8


def test_time_stands_still_until_it_is_advanced(app: App, bench: Bench) -> None:
    @app.task
    def note() -> None: ...

    job = note.using(delay=3600).enqueue()
    later = note.using(delay=NOW + timedelta(days=1)).enqueue()

    assert bench.run_all() == Summary()
    assert job.status() is JobStatus.DELAYED
    bench.advance(minutes=59, seconds=59.999)
    assert bench.run_all().ran == 0
    bench.advance(seconds=0.001)
    assert bench.run_all().ran == 1
    assert later.status() is JobStatus.DELAYED
    assert bench.now == NOW + timedelta(hours=1)


def test_a_failure_is_retried_after_its_pause_and_dead_in_the_end(app: App, bench: Bench) -> None:
    @app.task(retry=Retry(max=2, first=10, backoff=2.0, jitter=0))
    def fail(ctx: Context) -> None:
        raise ValueError(f"attempt {ctx.attempt}")

    job = fail.delay()
    first = bench.run_all()
    bench.advance(seconds=10)
    second = bench.run_all()
    bench.advance(seconds=20)
    third = bench.run_all()

    assert first == Summary(ran=1, failed=1, retried=1, errors=("ValueError: attempt 1",))
    assert second == Summary(ran=1, failed=1, retried=1, errors=("ValueError: attempt 2",))
    assert third == Summary(ran=1, failed=1, dead=1, errors=("ValueError: attempt 3",))
    assert [letter.reason for letter in bench.dead_letters(fail)] == ["retries_exhausted"]
    with pytest.raises(TaskFailed, match="attempt 3"):
        job.result()


def test_the_bench_can_go_through_all_pauses_to_the_end(app: App, bench: Bench) -> None:
    @app.task(retry=Retry(max=5, first=60))
    def third_time_lucky(ctx: Context) -> int:
        if ctx.attempt < 3:
            raise ConnectionError("not yet")
        return ctx.attempt

    @app.task(rate=Rate("1/m"))
    def slow(number: int) -> None: ...

    job = third_time_lucky.delay()
    slow.map(range(4))
    summary = bench.run_to_end()

    assert job.result() == 3
    assert (summary.ran, summary.succeeded, summary.retried) == (7, 5, 2)
    assert bench.now >= NOW + timedelta(minutes=3)


def test_rate_limits_let_through_as_many_as_the_time_allows(app: App, bench: Bench) -> None:
    @app.task(rate=Rate("2/s", burst=2))
    def send(number: int) -> None: ...

    send.map(range(5))

    assert bench.run_all().ran == 2
    assert bench.run_all().ran == 0
    bench.advance(seconds=0.5)
    assert bench.run_all().ran == 1
    bench.advance(seconds=5)
    assert bench.run_all().ran == 2


def test_a_deadline_that_passed_expires_the_job(app: App, bench: Bench) -> None:
    @app.task
    def late() -> None: ...

    job = late.using(deadline=30).enqueue()
    bench.advance(seconds=31)

    assert bench.run_all() == Summary(expired=1)
    with pytest.raises(TaskExpired):
        job.result()


def test_a_crash_is_counted_and_the_message_delivered_again(app: App, bench: Bench) -> None:
    seen: list[int] = []

    @app.task(name="shop.resize")
    def resize(ctx: Context) -> None:
        seen.append(ctx.attempt)

    resize.delay()
    bench.crash_next("shop.resize")
    summary = bench.run_all()

    assert summary == Summary(ran=2, crashed=1, succeeded=1)
    assert seen == [2]


def test_a_worker_may_die_after_the_work_so_that_it_is_done_twice(app: App, bench: Bench) -> None:
    seen: list[int] = []

    @app.task
    def charge(ctx: Context) -> None:
        seen.append(ctx.attempt)

    charge.delay()
    bench.crash_next(charge, when="after")
    bench.run_all()

    assert seen == [1, 2]


def test_one_crash_too_many_buries_the_message(app: App, bench: Bench) -> None:
    @app.task(max_crashes=2)
    def poison() -> None: ...

    job = poison.delay()
    bench.crash_next(poison)
    bench.crash_next(poison)
    summary = bench.run_all()

    assert summary == Summary(ran=2, crashed=2, dead=1)
    (letter,) = bench.dead_letters()
    assert (letter.reason, letter.error) == ("crashed", "WorkerCrashed")
    assert job.status() is JobStatus.FAILED


def test_an_at_most_once_task_is_not_run_again_after_a_crash(app: App, bench: Bench) -> None:
    @app.task(delivery="at_most_once")
    def beep() -> None: ...

    beep.delay()
    bench.crash_next(beep)

    assert bench.run_all() == Summary(ran=1, crashed=1)


def test_what_was_enqueued_is_shown_with_its_arguments_whatever_became_of_it(app: App, bench: Bench) -> None:
    @app.task
    def mail(to: str, order: Order | None = None) -> None: ...

    @app.task
    def buy(order: Order) -> None:
        mail.using(priority=3, headers={"trace": "7"}).enqueue("ann", order=order)

    buy.delay(Order(1))
    mail.using(delay=60, queue="other").enqueue("bob").cancel()
    bench.run_all()

    assert [(call.args, call.kwargs) for call in bench.enqueued(mail)] == [
        (("bob",), {}),
        (("ann",), {"order": Order(1)}),
    ]
    assert [call.queue for call in bench.enqueued(mail)] == ["other", "default"]
    assert bench.enqueued(mail)[1].headers == {"trace": "7"}
    assert [job.status().value for job in bench.jobs] == ["succeeded", "cancelled", "succeeded"]
    assert len(bench.enqueued()) == 3


def test_a_call_that_was_turned_away_was_not_enqueued(app: App, bench: Bench) -> None:
    @app.task(unique=Unique())
    def refresh(page: int) -> None: ...

    refresh.delay(1)
    refresh.delay(1)

    assert len(bench.enqueued(refresh)) == 1


def test_waiting_for_what_has_not_run_ends_at_once_and_says_what_to_do(app: App, bench: Bench) -> None:
    @app.task
    def slow() -> None: ...

    job = slow.using(delay=60).enqueue()
    bench.run_all()

    with pytest.raises(JobNotEnded, match=r"it is delayed; .* bench.run_all\(\)"):
        job.result()
    with pytest.raises(ResultTimeout):
        job.result(timeout=3600)
    with pytest.raises(ResultTimeout):
        job.result(timeout=0)
    with pytest.raises(JobNotEnded):
        asyncio.run(job.aresult())


def test_results_are_dropped_when_their_time_has_passed(app: App, bench: Bench) -> None:
    @app.task(result_ttl=60)
    def give() -> int:
        return 7

    job = give.delay()
    bench.run_all()
    for _ in range(2):
        bench.advance(hours=1)
        bench.run_all()

    with pytest.raises(ResultNotKept):
        job.result()


def test_a_lease_ends_and_a_silent_consumer_is_released_as_time_passes(app: App, bench: Bench) -> None:
    @app.task
    def note() -> None: ...

    note.delay()
    note.delay()
    queue = app.work_queue()
    queue.claim(1, lease_ms=30_000)
    queue.claim(1, consumer="elsewhere")

    assert bench.run_all().ran == 0
    bench.advance(seconds=31)
    assert bench.run_all().succeeded == 2


def test_a_running_task_sees_that_it_was_cancelled_and_tells_its_progress(app: App, bench: Bench) -> None:
    @app.task
    def work(ctx: Context) -> None:
        ctx.progress(1, 4)
        ctx.progress(2, 4)
        assert not ctx.is_cancelled
        app.job(ctx.id).cancel()
        ctx.stop_if_cancelled()

    job = work.delay()
    summary = bench.run_all()

    assert summary == Summary(ran=1, cancelled=1)
    progress = job.progress()
    assert progress is not None
    assert progress.done == 2
    bench.advance(hours=2)
    assert job.progress() is None


def test_a_run_that_lost_its_lease_knows_and_the_message_runs_again(app: App, bench: Bench) -> None:
    seen: list[tuple[int, bool]] = []

    @app.task(retry=0)
    def work(ctx: Context) -> str:
        seen.append((ctx.attempt, ctx.is_mine()))
        ctx.stop_if_lost()
        return "charged"

    bench.lose_next(work)
    job = work.delay()
    bench.run_all()

    assert seen == [(1, False), (2, True)]
    assert job.result(timeout=0) == "charged"
    assert bench.dead_letters() == []


def test_what_an_overtaken_run_returns_is_refused(app: App, bench: Bench) -> None:
    @app.task
    def work(ctx: Context) -> int:
        return ctx.attempt

    bench.lose_next(work)
    job = work.delay()
    bench.run_all()

    assert job.result(timeout=0) == 2


def test_an_async_run_that_lost_its_lease_knows(app: App, bench: Bench) -> None:
    seen: list[bool] = []

    @app.task
    async def work(ctx: Context) -> None:
        seen.append(await ctx.ais_mine())
        await ctx.astop_if_lost()

    bench.lose_next(work)
    work.delay()
    asyncio.run(bench.arun_all())

    assert seen == [False, True]


def test_a_lease_that_nobody_else_can_have_is_never_lost(app: App, bench: Bench) -> None:
    seen: list[bool] = []

    @app.task(delivery="at_most_once")
    def once(ctx: Context) -> None:
        seen.append(ctx.is_mine())
        ctx.stop_if_lost()

    once.delay()
    once()  # like a function

    assert bench.run_all().succeeded == 1
    assert seen == [True, True]


def test_a_length_limit_holds(app: App, bench: Bench) -> None:
    app.queue("small", limit=1)

    @app.task(queue="small")
    def note() -> None: ...

    note.delay()

    with pytest.raises(QueueFull):
        note.delay()
    bench.run_all()
    assert note.delay().is_new


def test_a_task_that_enqueues_itself_is_stopped_by_the_limit(app: App, bench: Bench) -> None:
    @app.task
    def again() -> None:
        again.delay()

    again.delay()

    with pytest.raises(MqworkerError, match="20 deliveries ran and more are due"):
        bench.run_all(limit=20)


def test_one_is_run_at_a_time_where_that_is_wanted(app: App, bench: Bench) -> None:
    @app.task
    def note() -> None: ...

    note.enqueue_many([()] * 2)

    assert [bench.run_one().ran for _ in range(3)] == [1, 1, 0]
    note.delay()
    assert asyncio.run(bench.arun_one()).ran == 1


def test_the_app_has_its_own_server_again_when_the_bench_is_closed(app: App) -> None:
    @app.task
    def note() -> None: ...

    own = vars(app.connections).copy()
    with Bench(app) as bench:
        note.delay()
        app.close()
        note.delay()
        assert len(bench.jobs) == 2

    assert vars(app.connections) == own


def test_two_benches_share_nothing(app: App) -> None:
    other = App("other", settings=Settings())
    note = other.task(name="note")(lambda: None)

    with Bench(app, now=NOW) as one, Bench(other, now=NOW + timedelta(days=1)) as two:
        note.delay()

        assert one.run_all().ran == 0
        assert two.run_all().ran == 1


def test_typos_are_errors(app: App, bench: Bench) -> None:
    with pytest.raises(UnknownTask, match="resise"):
        bench.crash_next("shop.resise")
    with pytest.raises(InvalidArgument, match="aware"):
        Bench(app, now=datetime(2026, 1, 1))  # noqa: DTZ001 - the point
    with pytest.raises(InvalidArgument):
        bench.advance(seconds=-1)
    with pytest.raises(StoreRefused, match="no channels"):
        app.connections.store.connection.subscribe(["a"])
