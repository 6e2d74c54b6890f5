"""The bench does what brokers do: schedules tick by its clock, events reach subscribers, workflows go on."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from mqworker import App, Context, JobStatus, MemberFailure, Unique, chain, chord, graph, group
from mqworker.errors import MqworkerError, TaskFailed
from mqworker.settings import Settings
from mqworker.testing import Bench, JobNotEnded

NOW = datetime(2026, 3, 1, 12, 0, 30, tzinfo=UTC)


@pytest.fixture
def app() -> App:
    """An app that could reach no server."""
    return App("shop", settings=Settings(redis_url="redis://127.0.0.1:1"))


@pytest.fixture
def bench(app: App) -> Iterator[Bench]:
    """The app on a bench."""
    with Bench(app, now=NOW) as opened:
        yield opened


def test_a_schedule_ticks_as_the_clock_moves_and_its_task_runs_when_the_test_says_so(
    app: App, bench: Bench
) -> None:
    ticks: list[str] = []

    @app.schedule("*/5 * * * *", args=("report",))
    @app.task(name="tick")
    def tick(what: str) -> None:
        ticks.append(what)

    bench.advance(minutes=4)
    nothing = bench.run_all()
    bench.advance(minutes=16)  # 12:05, 12:10, 12:15, 12:20
    before = len(ticks)
    summary = bench.run_all()

    assert (nothing.ran, before, summary.succeeded, ticks) == (0, 0, 4, ["report"] * 4)
    assert len(bench.enqueued(tick)) == 4
    assert bench.run_all().ran == 0


def test_an_interval_that_was_declared_before_the_bench_ticks_too(app: App) -> None:
    ran: list[int] = []
    app.schedule(every=60)(app.task(name="t")(lambda: ran.append(1)))

    with Bench(app, now=NOW) as bench:
        bench.advance(hours=1)
        bench.run_all()

    assert len(ran) == 60


@pytest.mark.parametrize(("catch_up", "made_up"), [("skip", 0), ("one", 1), ("all", 3)])
def test_ticks_that_no_node_saw_are_made_up_for_as_the_schedule_says(
    app: App, bench: Bench, catch_up: str, made_up: int
) -> None:
    app.schedule("0 * * * *", catch_up=catch_up)(app.task(name="t")(lambda: None))  # type: ignore[arg-type] # one of the three

    bench.pass_over(hours=3, minutes=10)  # it is 15:10

    assert bench.run_all().ran == made_up


def test_a_unique_task_keeps_the_next_tick_out(app: App, bench: Bench) -> None:
    app.schedule(every=60)(app.task(name="t", unique=Unique())(lambda: None))

    bench.advance(minutes=10)

    assert bench.run_all().ran == 1


def test_so_many_ticks_that_it_must_be_a_mistake_are_refused_and_no_time_passes(
    app: App, bench: Bench
) -> None:
    app.schedule(every=60)(app.task(name="t")(lambda: None))

    with pytest.raises(MqworkerError, match=r"more than 1,000 ticks .* bench\.pass_over"):
        bench.advance(days=30)

    assert bench.now == NOW
    bench.pass_over(days=30)
    assert bench.run_all().ran == 0


def test_an_event_reaches_every_subscriber_once(app: App, bench: Bench) -> None:
    got: list[tuple[str, object]] = []
    app.subscribe("user.created")(app.task(name="welcome")(lambda event: got.append(("welcome", event))))
    app.publish("user.created", {"id": 6})  # the bench heard of nobody yet: it is kept
    bench.run_all()
    app.subscribe("user.created", "user.left")(
        app.task(name="count")(lambda event: got.append(("count", event)))
    )

    bench.run_all()
    app.publish("user.created", {"id": 7})
    app.publish("user.left", {"id": 8})
    summary = bench.run_all()

    assert got[0] == ("welcome", {"id": 6})
    assert sorted(got[1:], key=str) == [
        ("count", {"id": 7}),
        ("count", {"id": 8}),
        ("welcome", {"id": 7}),
    ]
    assert summary.succeeded == 3


def test_workflows_go_on_and_their_results_are_there(app: App, bench: Bench) -> None:
    @app.task
    def double(number: int) -> int:
        return 2 * number

    @app.task(retry=0)
    def fail(number: int) -> int:
        raise ValueError(number)

    @app.task
    def total(numbers: list[int | MemberFailure]) -> int:
        return sum(number for number in numbers if isinstance(number, int))

    chained = chain(double.s(1), double.s(), double.s()).enqueue()
    collected = chord(group([double.s(1), fail.s(2), double.s(3)], on_failure="collect"), total.s()).enqueue()
    failed = chain(fail.s(1), double.s()).enqueue()
    with pytest.raises(JobNotEnded, match="run_all"):
        chained.result()
    bench.run_all()

    assert (chained.result(), collected.result()) == (8, 8)
    with pytest.raises(TaskFailed, match="ValueError: 1"):
        failed.result()


def test_schedules_as_data_tick_by_the_clock_of_the_bench(app: App, bench: Bench) -> None:
    ran: list[str] = []
    task = app.task(name="t")(ran.append)
    app.schedules.put("acme/hourly", task.s("acme"), cron="0 * * * *")
    app.schedules.put("zoo/hourly", task.s("zoo"), every=3600)

    bench.advance(hours=2)
    bench.run_all()
    app.schedules.pause("zoo/hourly")
    bench.advance(hours=1)
    app.schedules.delete("acme/hourly")
    app.schedules.resume("zoo/hourly")
    app.schedules.run_now("zoo/hourly")
    bench.advance(hours=1)
    bench.run_all()

    assert sorted(ran) == ["acme"] * 3 + ["zoo"] * 4
    assert [each.kind for each in app.schedules.history("zoo/hourly")] == [
        "fired",
        "run_now",
        "fired",
        "fired",
    ]


def test_a_flood_of_ticks_of_data_is_refused(app: App, bench: Bench) -> None:
    app.schedules.put("acme/often", app.task(name="t")(lambda: None).s(), every=1)

    with pytest.raises(MqworkerError, match="more than 1,000 ticks"):
        bench.advance(hours=1)


def test_graphs_and_children_of_tasks_go_on_too(app: App, bench: Bench) -> None:
    handled: list[str] = []

    @app.task(name="sum_up")
    def sum_up(first: int, second: int) -> int:
        return first + second

    @app.task(name="burst", retry=0)
    def burst() -> None:
        raise ValueError("burst")

    @app.task(name="tell")
    def tell(failure: MemberFailure) -> None:
        handled.append(failure.message)

    @app.task(name="collect")
    def collect(sums: list[int]) -> None:
        handled.append(f"collected {sums}")

    @app.task(name="fan_out")
    def fan_out(ctx: Context) -> None:
        ctx.spawn_many([sum_up.s(number, 1) for number in range(3)], then=collect.s())

    whole = graph()
    whole.step(sum_up.s(), after=[whole.step(sum_up.s(1, 1)), whole.step(sum_up.s(2, 2))])
    done, failed, parent = whole.enqueue(), burst.s().on_error(tell.s()).enqueue(), fan_out.enqueue()
    bench.run_all()

    assert (done.result(timeout=0), failed.status()) == (6, JobStatus.FAILED)
    assert handled == ["burst", "collected [1, 2, 3]"]
    assert app.workflow(parent.id).status() is JobStatus.SUCCEEDED
