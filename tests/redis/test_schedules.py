"""Schedules on a real server: published by an app, fired by brokers by hand."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest

from mqworker import App
from mqworker.errors import ConfigurationError, InvalidArgument
from mqworker.tasks.schedules.schedule import publish_schedules
from tests.support.deadline import wait_until
from tests.support.hand_broker import HandBroker
from tests.support.hand_worker import HandWorker
from tests.support.real_server import RealServer

LONG_AGO_MS = 3_600_000
TICK_MS = 100


def fired_ids(app: App) -> list[str]:
    return [delivery.id for delivery in app.work_queue().claim(1_000)]


def ticks(ids: list[str]) -> list[int]:
    return [int(each.partition("@")[2]) for each in ids]


def fall_behind(server: RealServer, app: App, name: str, by_ms: int) -> None:
    """Let the last tick be that long ago, as if nobody had run since then."""
    field = f"{app.name}/{name}"
    with server.client() as client:
        revision, owner, _, rest = client.hget("mqw:schedules", field).split(b" ", 3)
        now_ms = int(time.time() * 1000)
        client.hset("mqw:schedules", field, b" ".join([revision, owner, b"1", rest]))
        client.hset("mqw:{default}:ticks", field, now_ms - now_ms % TICK_MS - by_ms)


def test_a_scheduled_function_is_a_task_and_each_tick_runs_once_whoever_fires(app: App) -> None:
    ran: list[str] = []

    @app.schedule(every=TICK_MS / 1000, name="tick", args=("a",))
    def note(text: str) -> None:
        ran.append(text)

    brokers, worker = [HandBroker(app), HandBroker(app)], HandWorker(app)
    assert publish_schedules(app) == 1

    def has_fired() -> bool:
        for broker in brokers:
            broker.round()
        return app.work_queue().counts().ready >= 3

    wait_until(has_fired, "three ticks were fired")
    note("by hand")
    ids = fired_ids(app)

    assert ran == ["by hand"]
    assert [each.partition("@")[0] for each in ids] == ["shop/tick"] * len(ids)
    assert ticks(ids) == list(range(ticks(ids)[0], ticks(ids)[-1] + 1, TICK_MS))
    assert worker.runner.is_async(note.name) is False


@pytest.mark.parametrize(("catch_up", "least", "most"), [("skip", 0, 130), ("one", 1, 1), ("all", 100, 100)])
def test_missed_ticks_are_caught_up_as_asked(
    app: App, server: RealServer, catch_up: str, least: int, most: int
) -> None:
    app.schedule(every=TICK_MS / 1000, name="tick", catch_up=catch_up)(  # type: ignore[arg-type] # a parameter
        app.task(name="t")(lambda: None)
    )
    publish_schedules(app)
    fall_behind(server, app, "tick", by_ms=LONG_AGO_MS)

    HandBroker(app).broker.turn(0)

    assert least <= len(fired_ids(app)) <= most


def test_a_tick_is_not_stored_again_however_late_it_is_fired_again(app: App, server: RealServer) -> None:
    app.schedule(every=TICK_MS / 1000, name="tick", catch_up="all")(app.task(name="t")(lambda: None))
    publish_schedules(app)
    fall_behind(server, app, "tick", by_ms=1_000)
    HandBroker(app).broker.turn(0)
    with server.client() as client:
        client.delete("mqw:{default}:guards")  # whatever window there was is over
        noted = client.hget("mqw:{default}:ticks", "shop/tick")

    late = HandBroker(app)
    with server.client() as client:
        assert client.hget("mqw:{default}:ticks", "shop/tick") == noted
    late.broker.turn(0)
    all_ticks = ticks(fired_ids(app))

    assert len(all_ticks) == len(set(all_ticks)) >= 10


def test_publishing_replaces_the_set_and_keeps_what_stays_as_it_was(app: App, server: RealServer) -> None:
    app.schedule("*/5 * * * *", name="stays")(app.task(name="t")(lambda: None))
    app.schedule("0 3 * * *", name="goes", timezone="Europe/Berlin")(app.task(name="u")(lambda: None))
    publish_schedules(app)
    with server.client() as client:
        revision, owner, since, rest = client.hget("mqw:schedules", "shop/stays").split(b" ", 3)
        older = b"9" + since[1:]
        client.hset("mqw:schedules", "shop/stays", b" ".join([revision, owner, older, rest]))

    del app.schedules.declared["goes"]
    assert publish_schedules(app) == 1
    with server.client() as client:
        assert client.hkeys("mqw:schedules") == [b"shop/stays"]
        assert client.hget("mqw:schedules", "shop/stays").split(b" ")[2] == older

        app.schedules.declared.clear()
        assert publish_schedules(app) == 0
        assert client.hlen("mqw:schedules") == 0


def test_a_unique_task_is_not_scheduled_beside_itself(app: App, server: RealServer) -> None:
    app.schedule(every=TICK_MS / 1000, name="tick", catch_up="all")(
        app.task(name="t", unique=True)(lambda: None)
    )
    publish_schedules(app)
    fall_behind(server, app, "tick", by_ms=1_000)

    HandBroker(app).broker.turn(0)

    assert len(fired_ids(app)) == 1


def test_jitter_puts_a_tick_off_but_not_for_long(app: App, server: RealServer) -> None:
    app.schedule(every=TICK_MS / 1000, name="tick", jitter=timedelta(hours=1), catch_up="all")(
        app.task(name="t")(lambda: None)
    )
    publish_schedules(app)
    fall_behind(server, app, "tick", by_ms=1_000)

    HandBroker(app).broker.turn(0)

    assert app.work_queue().counts().delayed >= 9


def test_a_bad_schedule_is_refused_where_it_is_written(app: App) -> None:
    task = app.task(name="t")(lambda: None)

    with pytest.raises(InvalidArgument, match="field 1, minute, is '61'"):
        app.schedule("61 * * * *")
    with pytest.raises(InvalidArgument, match="accepted are five fields"):
        app.schedule("* * *")
    with pytest.raises(InvalidArgument, match="Europe/Berlin"):
        app.schedule("* * * * *", timezone="Europe/Nowhere")
    with pytest.raises(InvalidArgument, match="one of them"):
        app.schedule()
    with pytest.raises(InvalidArgument, match="every"):
        app.schedule(every=-1)
    with pytest.raises(InvalidArgument, match="catch_up"):
        app.schedule(every=1, catch_up="some")  # type: ignore[arg-type] # wrong on purpose
    with pytest.raises(InvalidArgument, match="too many positional"):
        app.schedule(every=1, args=(1,))(task)
    app.schedule(every=1, name="n")(task)
    with pytest.raises(ConfigurationError, match="two schedules"):
        app.schedule(every=1, name="n")(app.task(name="u")(lambda: None))


def test_foreign_bytes_among_the_schedules_harm_nobody(app: App, server: RealServer) -> None:
    app.schedule(every=TICK_MS / 1000, name="tick", catch_up="all")(app.task(name="t")(lambda: None))
    publish_schedules(app)
    fall_behind(server, app, "tick", by_ms=1_000)
    with server.client() as client:
        client.hset("mqw:schedules", mapping={"a": "{", "b": '1 data 1 x q {"version": 3}', "c": b"\xff"})

    HandBroker(app).broker.turn(0)

    assert len(fired_ids(app)) >= 10
