"""Schedules from outside: seen, paused, resumed and run now, by library, action and command."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from mqworker import App
from mqworker.errors import MqworkerError
from mqworker.operate.actions import Request, act, command_of, preview
from mqworker.operate.audit import read_audit
from mqworker.operate.schedules import (
    pause_schedule,
    read_schedule,
    read_schedules,
    resume_schedule,
    run_schedule_now,
)
from mqworker.operate.system import System
from mqworker.tasks.published_tasks import publish_tasks
from mqworker.tasks.schedules.schedule import publish_schedules
from tests.support.command_line import CommandLine
from tests.support.deadline import wait_until
from tests.support.hand_broker import HandBroker
from tests.support.real_server import RealServer

TICK_MS = 100


@pytest.fixture
def app(system: System) -> Iterator[App]:
    made = App("shop", settings=system.settings)
    yield made
    made.close()


def publish(app: App, name: str = "tick", **options: object) -> None:
    app.schedule(every=TICK_MS / 1000, name=name, **options)(app.task(name=f"t.{name}")(lambda: None))  # type: ignore[call-overload]
    publish_schedules(app)


def ticks_of(app: App) -> list[int]:
    ids = [delivery.id for delivery in app.work_queue().claim(1_000)]
    return [int(each.partition("@")[2]) for each in ids if "@" in each]


def fire_until(app: App, count: int) -> None:
    broker = HandBroker(app)

    def has_fired() -> bool:
        broker.round()
        return app.work_queue().counts().ready >= count

    wait_until(has_fired, "ticks were fired")


def test_a_schedule_is_shown_with_its_last_tick_and_the_next(app: App, system: System) -> None:
    app.schedule("30 4 * * 1", name="weekly", timezone="Europe/Berlin", catch_up="one")(
        app.task(name="t.weekly")(lambda: None)
    )
    publish(app)
    fire_until(app, 1)

    found = read_schedules(system)

    tick, weekly = found.schedules
    assert (tick.name, tick.timing, tick.task, tick.queue) == (
        "shop/tick",
        "every 100 ms",
        "t.tick",
        "default",
    )
    assert tick.last_at_ms is not None
    assert tick.last_job == f"shop/tick@{tick.last_at_ms}"
    assert system.open_queue("default").find(tick.last_job).state == "ready"  # type: ignore[arg-type]
    assert len(tick.next_at_ms) == 5
    assert all(
        later - earlier == TICK_MS
        for earlier, later in zip(tick.next_at_ms, tick.next_at_ms[1:], strict=False)
    )
    assert (weekly.catch_up, weekly.timezone, weekly.last_at_ms) == ("one", "Europe/Berlin", None)
    assert "Monday" in weekly.words


@pytest.mark.parametrize("catch_up", ["skip", "one", "all"])
def test_no_tick_that_came_due_in_a_pause_is_ever_fired(app: App, system: System, catch_up: str) -> None:
    publish(app, catch_up=catch_up)
    fire_until(app, 2)
    assert pause_schedule(system, "shop/tick")
    paused_at_ms = read_schedule(system, "shop/tick")[1].paused_at_ms
    assert paused_at_ms is not None
    before = ticks_of(app)
    broker = HandBroker(app)

    wait_until(lambda: system.now_ms() - paused_at_ms > 5 * TICK_MS, "ticks came due")
    broker.round()
    assert not pause_schedule(system, "shop/tick")  # it is already
    assert all(tick <= paused_at_ms for tick in [*before, *ticks_of(app)])
    assert resume_schedule(system, "shop/tick")
    resumed_at_ms = system.now_ms()
    fire_until(app, 3)

    after = ticks_of(app)
    assert min(after) > resumed_at_ms - TICK_MS
    assert not resume_schedule(system, "shop/tick")


def test_a_pause_survives_that_the_app_is_published_again(app: App, system: System) -> None:
    publish(app)
    pause_schedule(system, "shop/tick")

    publish_schedules(app)
    HandBroker(app).round()

    assert read_schedule(system, "shop/tick")[1].paused_at_ms is not None
    assert ticks_of(app) == []


def test_what_a_foreign_hand_wrote_pauses_nothing(app: App, system: System, server: RealServer) -> None:
    publish(app)
    with server.client() as client:
        client.hset("mqw:{default}:ticks", "pause:shop/tick", "for ever")

    fire_until(app, 1)

    assert read_schedule(system, "shop/tick")[1].paused_at_ms is None


def test_run_now_makes_one_call_beside_the_ticks_also_in_a_pause(app: App, system: System) -> None:
    publish(app)
    pause_schedule(system, "shop/tick")

    message, is_new = run_schedule_now(system, "tick")  # its app need not be said where only one has it

    assert is_new
    assert [delivery.id for delivery in app.work_queue().claim(10)] == [message]
    assert read_schedule(system, "shop/tick")[1].last_at_ms is None


def test_run_now_of_a_unique_task_is_refused_while_one_waits(app: App, system: System) -> None:
    app.schedule("0 3 * * *", name="report")(app.task(name="t", unique=True)(lambda: None))
    publish_schedules(app)
    first, _ = run_schedule_now(system, "shop/report")

    outcome = act(system, Request("run-schedule", "default", "shop/report"), "ann")

    assert f"was not run: its task is unique, and {first} is there already" in outcome
    assert app.work_queue().counts().ready == 1


@pytest.mark.parametrize(
    "action", ["pause-schedule", "resume-schedule", "run-schedule", "delete-schedule", "backfill-schedule"]
)
def test_each_action_has_a_preview_a_command_that_does_the_same_and_a_line_in_the_audit(
    app: App, system: System, server: RealServer, action: str
) -> None:
    task = app.task(name="t.tick")(lambda: None)
    app.schedules.put("shop/tick", task.s(), every=60)
    times = " 2026-03-01T00:00Z 2026-03-01T01:00Z" if action == "backfill-schedule" else ""
    asked = Request(action, "default", f"shop/tick{times}")
    line = CommandLine(server)

    assert "shop/tick" in preview(system, asked).effect
    act(system, asked, "ann")
    app.schedules.put("shop/tick", task.s(), every=60)
    result = line.type(*command_of(asked).split()[1:])
    line.store.close()

    assert result.exit_code == 0, result.output
    assert [noted.deed.action for noted in read_audit(system)] == [action, action]


def test_the_commands_list_and_show(app: App, server: RealServer) -> None:
    publish(app)
    fire_until(app, 1)
    line = CommandLine(server)

    listed, shown = line.type("schedule", "list"), line.type("schedule", "show", "shop/tick")
    as_json = json.loads(line.type("schedule", "list", "--json").output)
    unknown = line.type("schedule", "show", "shop/tock")
    line.store.close()

    assert "every 100 ms" in listed.output
    assert "shop/tick@" in shown.output
    assert max(map(len, [*listed.output.splitlines(), *shown.output.splitlines()])) <= 80
    assert as_json["schedules"][0]["name"] == "shop/tick"
    assert (unknown.exit_code, "did you mean shop/tick?" in unknown.output) == (1, True)


def test_an_unreadable_entry_is_counted_and_the_others_are_there(
    app: App, system: System, server: RealServer
) -> None:
    publish(app)
    with server.client() as client:
        client.hset("mqw:schedules", "other", "{}")
    HandBroker(app).round()  # brokers take up what another program put beside the index

    found = read_schedules(system)

    assert (len(found.schedules), found.unreadable) == (1, 1)


def test_an_unknown_schedule_is_told_with_what_comes_close(system: System) -> None:
    with pytest.raises(MqworkerError, match="there is no schedule"):
        pause_schedule(system, "nobody/nothing")


def test_data_is_put_listed_and_deleted_by_commands(app: App, system: System, server: RealServer) -> None:
    app.task(name="t.report")(lambda tenant: tenant)
    publish_tasks(app)
    publish(app)
    line = CommandLine(server)
    options = (
        "--task",
        "t.report",
        "--cron",
        "0 3 * * *",
        "--timezone",
        "Europe/Berlin",
        "--catch-up",
        "one",
    )

    put = line.type("schedule", "put", "acme/nightly", *options, "--args", '["acme"]')
    taken = line.type("schedule", "put", "shop/tick", *options, "--args", '["acme"]')
    bad = [
        line.type("schedule", "put", "acme/x", "--task", "nobody", "--every", "5"),
        line.type("schedule", "put", "acme/x", *options),  # its argument is missing
        line.type("schedule", "put", "acme/x", *options, "--args", "[1"),
        line.type("schedule", "put", "acme/x", *options, "--every", "5", "--args", '["acme"]'),
        line.type("schedule", "backfill", "acme/nightly", "yesterday", "2026-03-01"),
        line.type("schedule", "delete", "shop/tick"),
    ]
    shown = json.loads(line.type("schedule", "show", "acme/nightly", "--json").output)
    listed = json.loads(line.type("schedule", "list", "--prefix", "acme/", "--json").output)
    ran = line.type("schedule", "run-now", "acme/nightly", "--json")
    history = line.type("schedule", "history", "acme/nightly")
    gone = line.type("schedule", "delete", "acme/nightly")
    of_code = line.type("schedule", "delete", "shop/tick", "--of-code")
    line.store.close()

    assert put.exit_code == 0, put.output
    assert [each.exit_code for each in bad] == [1, *[2] * (len(bad) - 1)], [each.output for each in bad]
    assert "belongs to the code of app shop" in " ".join(taken.output.split())
    assert (shown["owner"], shown["timezone"], shown["catch_up"]) == ("data", "Europe/Berlin", "one")
    assert ([each["name"] for each in listed["schedules"]], listed["total"]) == (["acme/nightly"], 2)
    assert "is job acme/nightly@+" in json.loads(ran.output)["outcome"]
    assert "run by hand" in history.output
    assert (gone.exit_code, of_code.exit_code, read_schedules(system).total) == (0, 0, 0)


def test_no_more_than_a_page_of_very_many_is_read(app: App, system: System) -> None:
    task = app.task(name="t")(lambda: None)
    for number in range(250):
        app.schedules.put(f"tenant{number % 2}/s{number:03}", task.s(), every=60 + number)
    HandBroker(app).round()

    first = read_schedules(system, limit=100)
    last = read_schedules(system, offset=200, limit=100)
    of_one = read_schedules(system, prefix="tenant1/", limit=100)
    rest = read_schedules(system, prefix="tenant1/", after=of_one.after or "", limit=100)

    assert (len(first.schedules), first.left_out, first.total) == (100, 150, 250)
    assert (len(last.schedules), last.left_out) == (50, 0)
    assert (len(of_one.schedules), len(rest.schedules), rest.after) == (100, 25, None)
    assert len({each.name for each in [*of_one.schedules, *rest.schedules]}) == 125
