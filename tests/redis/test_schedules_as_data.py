"""Schedules as data on a real server: made, changed and ended while brokers, by hand, fire them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis

from mqworker import App
from mqworker.errors import InvalidArgument, MqworkerError, NotSupported, StaleCall, StoreUnavailable
from mqworker.log import get_logger
from mqworker.model.guard import Guard, GuardMode
from mqworker.model.message import Message
from mqworker.model.names import MessageId, TaskName
from mqworker.model.schedule import Cron
from mqworker.queues.catalogue import Rsmq
from mqworker.queues.work.queue import WorkQueue
from mqworker.settings import Settings
from mqworker.store.store import Store
from mqworker.tasks.schedules.calls import Advance, ScheduleCalls
from mqworker.tasks.schedules.firing import ScheduleFiring
from mqworker.tasks.schedules.schedule import publish_schedules
from mqworker.tasks.task import Task
from tests.support.deadline import wait_until
from tests.support.hand_broker import HandBroker
from tests.support.messages import open_store
from tests.support.real_server import RealServer

TICK_MS = 100
DUE, TICKS = "mqw:{mqw:schedules}:due", "mqw:{default}:ticks"
YESTERDAY = datetime.now(UTC) - timedelta(days=1)


@pytest.fixture
def task(app: App) -> Task[[str], None]:
    """What schedules call."""

    @app.task(name="report")
    def report(tenant: str) -> None:
        """Nothing is done."""

    return report


def fired(app: App, queue: str = "default") -> list[str]:
    return [delivery.id for delivery in app.work_queue(queue).claim(1_000)]


def fire_until(app: App, count: int, queue: str = "default") -> None:
    broker = HandBroker(app)

    def has_fired() -> bool:
        broker.round()
        return app.work_queue(queue).counts().ready >= count

    wait_until(has_fired, f"{count} ticks were fired")


def firing_of(app: App) -> ScheduleFiring:
    """What one broker fires by; it keeps nothing that another one needs."""
    return ScheduleFiring(app.connections.store, "mqw", app.work_queue, get_logger())


def keys_with(client: redis.Redis, word: bytes) -> list[bytes]:
    """Every key in which this stands, as a name, a member, a field or a value."""
    return [key for key in client.scan_iter() if word in key or word in (client.dump(key) or b"")]


def let_two_minutes_pass(client: redis.Redis, name: str) -> None:
    """Since it was deleted from the default queue."""
    client.zincrby("mqw:{mqw:schedules}:forget", -120_001, f"default {name}")
    client.hincrby(TICKS, name, -120_001)


def test_what_was_put_is_there_and_is_fired(app: App, task: Task[[str], None]) -> None:
    put = app.schedules.put("acme/nightly", task.s("acme"), cron="0 3 * * *", timezone="Europe/Berlin")
    app.schedules.put("acme/often", task.s("acme"), every=TICK_MS / 1000, catch_up="all")
    app.schedules.put("zoo/often", task.s("zoo"), every=3600)
    fire_until(app, 2)

    assert (put.owner, put.queue, put.task, put.is_paused) == ("data", "default", "report", False)
    assert put.timing == Cron("0 3 * * *", "Europe/Berlin")
    assert app.schedules.get("acme/nightly") == put
    assert [each.name for each in app.schedules.list("acme/")] == ["acme/nightly", "acme/often"]
    assert [each.name for each in app.schedules.list(after="acme/often")] == ["zoo/often"]
    assert [each.name for each in app.schedules.list(limit=2)] == ["acme/nightly", "acme/often"]
    ticks = [int(each.removeprefix("acme/often@")) for each in fired(app)]
    assert ticks == list(range(ticks[0], ticks[-1] + 1, TICK_MS))
    assert [each.kind for each in app.schedules.history("acme/often")] == ["fired"] * len(ticks)
    assert app.schedules.get("nobody/nothing") is None


def test_the_same_from_an_event_loop(app: App, task: Task[[str], None]) -> None:
    async def live() -> list[object]:
        schedules = app.schedules
        await schedules.aput("acme/a", task.s("acme"), every=60)
        job = await schedules.arun_now("acme/a")
        end = datetime.now(UTC) - timedelta(minutes=1)
        seen: list[object] = [job.id, await schedules.apause("acme/a"), await schedules.aresume("acme/a")]
        filled = await schedules.abackfill("acme/a", end - timedelta(minutes=3), end)
        seen += [len(filled.ids), [each.name for each in await schedules.alist("acme/")]]
        seen += [[each.kind for each in await schedules.ahistory("acme/a")]]
        return [*seen, await schedules.adelete("acme/a"), await schedules.aget("acme/a")]

    job, *rest = asyncio.run(live())

    assert str(job).startswith("acme/a@+")
    assert rest == [True, True, 3, ["acme/a"], ["backfilled", "run_now"], True, None]


def test_a_name_belongs_to_code_or_to_data_and_nobody_takes_the_others(
    app: App, task: Task[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    app.schedule("0 3 * * *", name="nightly", args=("x",))(task)
    publish_schedules(app)
    with pytest.raises(InvalidArgument, match="belongs to the code of app shop"):
        app.schedules.put("shop/nightly", task.s("x"), every=60)
    with pytest.raises(InvalidArgument, match="belongs to the code of app shop"):
        app.schedules.delete("shop/nightly")

    app.schedules.put("shop/weekly", task.s("of data"), every=60)
    app.schedule("0 3 * * 1", name="weekly", args=("of code",))(task)
    count = publish_schedules(app)

    weekly, nightly = app.schedules.get("shop/weekly"), app.schedules.get("shop/nightly")
    assert count == 1
    assert weekly is not None
    assert nightly is not None
    assert (weekly.owner, nightly.owner) == ("data", "shop")
    assert "schedule_refused" in capsys.readouterr().err


def test_a_deployed_app_replaces_only_what_its_own_code_had(
    app: App, task: Task[[str], None], server: RealServer
) -> None:
    app.schedule("0 3 * * *", name="goes", args=("x",))(task)
    app.schedule("0 4 * * *", name="stays", args=("x",))(task)
    publish_schedules(app)
    app.schedules.put("shop/data", task.s("x"), every=60)
    app.schedules.put("acme/data", task.s("x"), every=60)
    other = App("office", settings=Settings(redis_url=server.url))
    other.schedule("0 5 * * *", name="theirs")(other.task(name="t")(lambda: None))
    publish_schedules(other)

    del app.schedules.declared["goes"]
    publish_schedules(app)
    names = [each.name for each in app.schedules.list()]
    app.schedules.declared.clear()
    publish_schedules(app)

    assert names == ["acme/data", "office/theirs", "shop/data", "shop/stays"]
    assert [each.name for each in app.schedules.list()] == ["acme/data", "office/theirs", "shop/data"]
    other.close()


def test_a_change_of_the_call_keeps_the_ticks_and_a_change_of_the_times_begins_anew(
    app: App, task: Task[[str], None]
) -> None:
    first = app.schedules.put("a", task.s("one"), every=60, catch_up="all")
    same_times = app.schedules.put("a", task.s("two"), every=60, catch_up="all")
    other_times = app.schedules.put("a", task.s("two"), every=61, catch_up="all")

    assert same_times.spec.since_ms == first.spec.since_ms
    assert same_times.spec.call != first.spec.call
    assert other_times.spec.since_ms >= first.spec.since_ms
    assert app.schedules.put("a", task.s("two"), every=61, catch_up="all").spec == other_times.spec


def test_no_tick_fires_in_a_pause_or_is_made_up_for_after_it(app: App, task: Task[[str], None]) -> None:
    app.schedules.put("a", task.s("x"), every=TICK_MS / 1000, catch_up="all")
    fire_until(app, 2)
    assert app.schedules.pause("a")
    paused = app.schedules.get("a")
    assert paused is not None
    assert paused.paused_at_ms is not None
    before = [int(each.partition("@")[2]) for each in fired(app)]

    wait_until(lambda: now_ms(app) - paused.paused_at_ms > 5 * TICK_MS, "ticks came due")  # type: ignore[operator] # it is there
    app.schedules.put("a", task.s("y"), every=TICK_MS / 1000, catch_up="all")  # which does not end the pause
    HandBroker(app).round()
    in_the_pause = fired(app)
    resumed_at_ms = now_ms(app)
    assert (app.schedules.pause("a"), app.schedules.resume("a"), app.schedules.resume("a")) == (
        False,
        True,
        False,
    )
    fire_until(app, 2)

    assert in_the_pause == []
    assert max(before) <= paused.paused_at_ms
    assert min(int(each.partition("@")[2]) for each in fired(app)) > resumed_at_ms - TICK_MS


def test_nothing_is_left_of_what_was_deleted(app: App, task: Task[[str], None], server: RealServer) -> None:
    app.schedules.put("gone/one", task.s("x"), every=TICK_MS / 1000)
    fire_until(app, 1)
    app.schedules.pause("gone/one")
    assert app.schedules.delete("gone/one")
    assert not app.schedules.delete("gone/one")
    fired(app)

    with server.client() as client:
        HandBroker(app).round()
        noted = client.hget(TICKS, "gone/one")  # a broker that was stopped may still fire by it
        let_two_minutes_pass(client, "gone/one")
        HandBroker(app).round()

        assert noted is not None
        assert client.hexists(TICKS, "gone/one") == 0
        left = [key for key in keys_with(client, b"gone/one") if b"schedules" in key or b"ticks" in key]
        assert left == []


def test_a_schedule_that_moves_to_another_queue_begins_there_and_leaves_nothing_behind(
    app: App, task: Task[[str], None], server: RealServer
) -> None:
    app.schedules.put("a", task.s("x"), every=TICK_MS / 1000, catch_up="all")
    fire_until(app, 1)

    app.schedules.put("a", task.using(queue="other").s("x"), every=TICK_MS / 1000, catch_up="all")
    moved_at_ms = now_ms(app)
    fire_until(app, 2, "other")

    assert min(int(each.partition("@")[2]) for each in fired(app, "other")) > moved_at_ms - TICK_MS
    with server.client() as client:
        let_two_minutes_pass(client, "a")
        HandBroker(app).round()
        assert client.hkeys(TICKS) == []


def test_a_schedule_that_is_made_again_at_once_is_not_forgotten(
    app: App, task: Task[[str], None], server: RealServer
) -> None:
    app.schedules.put("a", task.s("x"), every=TICK_MS / 1000)
    fire_until(app, 1)
    app.schedules.delete("a")

    app.schedules.put("a", task.s("x"), every=TICK_MS / 1000)

    with server.client() as client:
        assert client.zcard("mqw:{mqw:schedules}:forget") == 0
        assert client.hexists(TICKS, "a")


def test_a_broker_that_was_stopped_for_long_fires_nothing_by_what_it_saw_before(app: App) -> None:
    queue = app.work_queue()
    seen_at_ms = now_ms(app) - 60_001
    guard = Guard(GuardMode.CHOSEN_ID, "id:a@1", tick_until_ms=seen_at_ms + 60_000)

    with pytest.raises(StaleCall):
        queue.enqueue(Message(MessageId(f"a@{seen_at_ms}"), b"", TaskName("t"), guard=guard))

    assert queue.counts().waiting == 0


def test_a_stopped_broker_cannot_fire_again_what_was_fired_and_deleted_since(
    app: App, task: Task[[str], None]
) -> None:
    app.schedules.put("a", task.s("x"), every=TICK_MS / 1000)
    stopped, queue = firing_of(app), app.work_queue()
    look = wait_for_look(app)
    firing_of(app)._deal_with(look)
    app.schedules.delete("a")
    stopped._deal_with(look)

    ids = fired(app)
    assert len(ids) == len(set(ids)) >= 1
    assert queue.counts().waiting == 0


def test_who_is_killed_between_the_firing_and_the_index_leaves_a_tick_that_fires_once(
    app: App, task: Task[[str], None], server: RealServer
) -> None:
    app.schedules.put("a", task.s("x"), every=3600, catch_up="all")
    put_back_ms = 3_600_000
    firing_of(app).fire()
    with server.client() as client:  # its newest tick is due, and nobody fired it
        revision, owner, since, rest = client.hget("mqw:schedules", "a").split(b" ", 3)
        older = b"%d" % (int(since) - put_back_ms)
        client.hset("mqw:schedules", "a", b" ".join([revision, owner, older, rest]))
        client.zadd(DUE, {"a": 0})
    killed = firing_of(app)
    killed._store = KilledBeforeTheIndex(app.connections.store)  # type: ignore[assignment]
    with pytest.raises(StoreUnavailable):
        killed.fire()
    with server.client() as client:
        client.zadd(DUE, {"a": 0})  # its claim ended
    next_in_ms = firing_of(app).fire()

    assert len(fired(app)) == 1
    assert [each.kind for each in app.schedules.history("a")] == ["noted"]
    assert next_in_ms is not None
    assert 0 < next_in_ms <= put_back_ms


def test_what_a_broker_worked_out_before_a_change_is_void(
    app: App, task: Task[[str], None], server: RealServer
) -> None:
    calls, store = ScheduleCalls("mqw"), app.connections.store
    app.schedules.put("a", task.s("x"), every=3600)
    for change in (
        lambda: app.schedules.pause("a"),
        lambda: app.schedules.resume("a"),
        lambda: app.schedules.put("a", task.s("x"), every=60),
        lambda: app.schedules.delete("a"),
    ):
        (name, text, _) = seen(app, "a")
        change()
        with server.client() as client:
            due = client.zscore(DUE, "a")

            late = Advance(name.decode(), text.split(b" ")[0], 9_000_000_000_000, "-1", "F:1:1:1")
            assert store.run(calls.advance([late])) == 0
            assert client.zscore(DUE, "a") == due
    assert app.schedules.history("a") == []


def test_run_now_calls_once_beside_the_ticks_and_history_stays_short(
    app: App, task: Task[[str], None]
) -> None:
    app.schedules.put("a", task.s("x"), cron="0 3 * * *")
    app.schedules.pause("a")

    jobs = [app.schedules.run_now("a").id]
    wait_until(lambda: jobs.append(app.schedules.run_now("a").id) or len(set(jobs)) >= 25, "25 runs")  # type: ignore[func-returns-value]

    assert set(fired(app)) == set(jobs)
    assert len(app.schedules.history("a")) == 20


def test_a_backfill_calls_for_each_tick_of_its_time_and_twice_changes_nothing(
    app: App, task: Task[[str], None]
) -> None:
    app.schedules.put("a", task.s("x"), cron="0 * * * *")
    start = YESTERDAY.replace(hour=1, minute=0, second=0, microsecond=0)

    first = app.schedules.backfill("a", start, start + timedelta(hours=5))
    second = app.schedules.backfill("a", start + timedelta(hours=2), start + timedelta(hours=8))

    hours = [start + timedelta(hours=hour) for hour in range(8)]
    assert (len(first.ids), first.kept_out, len(second.ids), second.kept_out) == (5, 0, 3, 3)
    assert fired(app) == [f"a@={round(hour.timestamp() * 1000)}" for hour in hours]
    assert [(each.kind, each.count) for each in app.schedules.history("a")] == [
        ("backfilled", 3),
        ("backfilled", 5),
    ]


@pytest.mark.parametrize(
    ("start", "end", "refusal"),
    [
        (
            YESTERDAY - timedelta(days=30),
            YESTERDAY,
            "43,200 ticks of a lie in that time; accepted are up to 10,000",
        ),
        (YESTERDAY, YESTERDAY, "accepted is a time that has passed"),
        (YESTERDAY, YESTERDAY + timedelta(days=2), "accepted is a time that has passed"),
        (YESTERDAY.replace(tzinfo=None), YESTERDAY, "start is .*time zone"),
    ],
)
def test_a_backfill_that_is_too_much_is_refused_with_the_number(
    app: App, task: Task[[str], None], start: datetime, end: datetime, refusal: str
) -> None:
    app.schedules.put("a", task.s("x"), cron="* * * * *")

    with pytest.raises(InvalidArgument, match=refusal):
        app.schedules.backfill("a", start, end)

    assert app.work_queue().counts().waiting == 0


@pytest.mark.parametrize(
    ("name", "options", "refusal"),
    [
        ("a", {}, "one of them"),
        ("a", {"cron": "* * * * *", "every": 5}, "one of them"),
        ("a", {"cron": "0 0 31 2 *"}, "31"),
        ("a", {"cron": "61 * * * *"}, "field 1, minute"),
        ("a", {"cron": "* * * * *", "timezone": "Europe/Nowhere"}, "Europe/Berlin"),
        ("a", {"every": 0}, "every"),
        ("a", {"every": float("nan")}, "every"),
        ("a", {"every": 5, "catch_up": "some"}, "catch_up"),
        ("a", {"every": 5, "jitter": -1}, "jitter"),
        *[
            (name, {"every": 5}, "accepted are 1 to 100 characters")
            for name in ("", "a b", "ä", "a@1", "a:b", "a~b")
        ],
        ("a" * 101, {"every": 5}, "accepted are 1 to 100 characters"),
        ("/a", {"every": 5}, "beginning with a letter"),
    ],
)
def test_bad_input_is_refused_in_the_producer_and_nothing_is_stored(
    app: App, task: Task[[str], None], name: str, options: dict[str, Any], refusal: str
) -> None:
    with pytest.raises(InvalidArgument, match=refusal):
        app.schedules.put(name, task.s("x"), **options)

    assert app.schedules.list() == []


def test_a_call_that_cannot_be_kept_is_refused(app: App, task: Task[[str], None]) -> None:
    app.queue("legacy", model=Rsmq())
    old = app.task(name="old", queue="legacy")(lambda: None)

    with pytest.raises(NotSupported, match="needs a work queue; queue legacy is"):
        app.schedules.put("a", old.s(), every=5)
    with pytest.raises(InvalidArgument, match="accepted is a call as a value"):
        app.schedules.put("a", task, every=5)  # type: ignore[arg-type] # wrong on purpose
    with pytest.raises(InvalidArgument):
        app.schedules.put("a", task.s(), every=5)  # its argument is missing
    with pytest.raises(InvalidArgument, match="has an id"):
        app.schedules.put("a", task.using(id="one").s("x"), every=5)
    for verb in (app.schedules.pause, app.schedules.resume, app.schedules.run_now):
        with pytest.raises(MqworkerError, match="there is no schedule"):
            verb("nobody/nothing")


def test_bad_entries_are_skipped_and_the_others_behind_them_fire(
    app: App, task: Task[[str], None], server: RealServer
) -> None:
    with server.client() as client:
        client.hset("mqw:schedules", mapping={f"bad{number}": "rubbish" for number in range(1_500)})
        client.zadd(DUE, {f"ghost{number}": 0 for number in range(300)})
    app.schedules.put("good", task.s("x"), every=TICK_MS / 1000)

    fire_until(app, 1)

    assert all(each.startswith("good@") for each in fired(app))
    with server.client() as client:
        wait_until(lambda: HandBroker(app).round() or client.zcard(DUE) == 1_501, "the index is mended")  # type: ignore[func-returns-value]


@pytest.mark.parametrize("key", ["due", "names", "marks", "history", "meta"])
def test_an_index_that_is_lost_is_made_again(
    app: App, task: Task[[str], None], server: RealServer, key: str
) -> None:
    for number in range(700):
        app.schedules.put(f"a{number}", task.s("x"), every=3600)
    app.schedules.put("often", task.s("x"), every=TICK_MS / 1000)
    fire_until(app, 1)
    fired(app)

    with server.client() as client:
        client.delete(f"mqw:{{mqw:schedules}}:{key}")
    fire_until(app, 2)

    wait_until(lambda: HandBroker(app).round() or len(app.schedules.list()) == 701, "all are listed")  # type: ignore[func-returns-value]
    ids = fired(app)
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("field", ["looked_ms", "cursor"])
def test_what_a_stranger_wrote_beside_the_index_stops_nobody(
    app: App, task: Task[[str], None], server: RealServer, field: str
) -> None:
    app.schedules.put("a", task.s("x"), every=TICK_MS / 1000)
    with server.client() as client:
        client.hset("mqw:schedules", "beside", "rubbish")
        client.hset("mqw:{mqw:schedules}:meta", field, "for ever")
        client.hset("mqw:{mqw:schedules}:marks", "a", "for ever")
        client.hset("mqw:{mqw:schedules}:history", "a", b"\xff F:1:1 x")
        client.zadd("mqw:{mqw:schedules}:forget", {b"\xff": 1, b"q \xfe": 2})

    fire_until(app, 2)

    assert app.schedules.history("a")[0].kind == "fired"


def test_a_full_queue_keeps_its_ticks_waiting_and_no_others(app: App, task: Task[[str], None]) -> None:
    app.queue("small", limit=1)
    app.schedules.put("a", task.using(queue="small").s("x"), every=TICK_MS / 1000)
    app.schedules.put("b", task.s("x"), every=TICK_MS / 1000)
    fire_until(app, 1, "small")

    fire_until(app, 3)

    assert app.work_queue("small").counts().ready == 1
    assert "waits" in [each.kind for each in app.schedules.history("a")]


def test_brokers_share_what_is_due(app: App, task: Task[[str], None]) -> None:
    for number in range(450):
        app.schedules.put(f"a{number}", task.s("x"), every=3600)
    store, calls = app.connections.store, ScheduleCalls("mqw")

    taken = [{name for name, _, _ in store.run(calls.look(200)).entries} for _ in range(3)]

    assert [len(each) for each in taken] == [200, 200, 50]
    assert len(set.union(*taken)) == 450


def test_what_changes_while_brokers_fire_fires_each_tick_once_and_none_in_a_pause(
    app: App, task: Task[[str], None], server: RealServer
) -> None:
    options: dict[str, Any] = {"every": TICK_MS / 1000, "catch_up": "all"}
    app.schedules.put("steady", task.s("x"), **options)
    with firing_beside(server, 3):
        pauses = []
        for turn in range(15):
            app.schedules.put("a", task.s("one"), **options)
            app.schedules.put("b", task.s(str(turn)), **options)
            time.sleep(TICK_MS / 1000)  # so that there is something to fire
            app.schedules.pause("a")
            state = app.schedules.get("a")
            assert state is not None
            time.sleep(TICK_MS / 1000)
            pauses.append((state.paused_at_ms or 0, now_ms(app)))
            app.schedules.resume("a")
            app.schedules.delete("b")
        app.schedules.delete("a")
        deleted_at_ms = now_ms(app)
        wait_until(lambda: now_ms(app) > deleted_at_ms + 3_000, "claims ended")

    ids = fired(app)
    ticks = {
        name: [int(each.partition("@")[2]) for each in ids if each.startswith(f"{name}@")] for name in "ab"
    }
    steady = sorted(int(each.partition("@")[2]) for each in ids if each.startswith("steady@"))
    assert len(ids) == len(set(ids))
    assert steady == list(range(steady[0], steady[-1] + 1, TICK_MS))
    assert len(ticks["a"]) > 5
    assert len(ticks["b"]) > 5
    assert max(ticks["a"] + ticks["b"]) <= deleted_at_ms
    assert [tick for tick in ticks["a"] for since, until in pauses if since < tick <= until] == []


@contextmanager
def firing_beside(server: RealServer, count: int) -> Iterator[None]:
    """Brokers, each with connections of its own, for as long as the block runs."""
    is_over = threading.Event()

    def fire() -> None:
        store = open_store(server.url)
        firing = ScheduleFiring(store, "mqw", lambda queue: WorkQueue(queue, store), get_logger())
        while not is_over.is_set():
            firing.fire()
        store.close()

    with ThreadPoolExecutor(count) as pool:
        running = [pool.submit(fire) for _ in range(count)]
        try:
            yield
        finally:
            is_over.set()
        for each in running:
            each.result()


class KilledBeforeTheIndex:
    """A store whose process dies when it would say what it fired."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    def run(self, call: Any) -> object:  # noqa: ANN401 - any call
        if call.script.name == "advance_schedules":
            raise StoreUnavailable("killed")
        return self._store.run(call)


def now_ms(app: App) -> int:
    seconds, micros = app.connections.store.send([("TIME",)], None)[0]  # type: ignore[misc] # two texts
    return int(seconds) * 1000 + int(micros) // 1000


def seen(app: App, name: str) -> tuple[bytes, bytes, bytes]:
    text = app.connections.store.send([("HGET", "mqw:schedules", name)], None)[0]
    assert isinstance(text, bytes)
    return name.encode(), text, b""


def wait_for_look(app: App) -> Any:  # noqa: ANN401 - a Look
    """A look that finds a tick due."""
    firing_of(app).fire()
    found: list[Any] = []

    def is_due() -> bool:
        look = app.connections.store.run(ScheduleCalls("mqw").look(10))
        found.append(look)
        return bool(look.entries)

    wait_until(is_due, "a tick is due")
    return found[-1]
