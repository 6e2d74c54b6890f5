"""`app.publish` and `@app.subscribe` on a real server: every subscriber gets every event, once."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias, cast

import pytest
import redis

from mqworker import App, Rate, Retry
from mqworker.errors import ConfigurationError, InvalidArgument, StoreRefused
from mqworker.model.settlement import Ack
from mqworker.settings import Settings
from mqworker.tasks.events.subscription import register_subscriptions
from tests.support.deadline import wait_until
from tests.support.hand_broker import HandBroker
from tests.support.hand_worker import HandWorker
from tests.support.real_cluster import RealCluster
from tests.support.real_server import RealServer

Anything: TypeAlias = Any
"""What a caller without types may pass."""

Order: TypeAlias = dict[str, int] | tuple[int, bytes] | int | str | None

ROOT = Path(__file__).parents[2]
TOPIC = "orders.placed"
START = f"mqw:{{topic:{TOPIC}}}:"


@pytest.fixture
def app(server: RealServer) -> Iterator[App]:
    """An app on the shared server."""
    made = App("shop", settings=Settings(redis_url=server.url, max_message_bytes=20_000))
    yield made
    made.close()


@pytest.fixture
def raw(server: RealServer) -> Iterator[redis.Redis]:
    with server.client() as client:
        yield client


class Subscribers:
    """Two tasks in two queues; `log` is what ran."""

    def __init__(self, app: App) -> None:
        self.log: list[tuple[str, object]] = []

        @app.subscribe(TOPIC)
        def invoice(order: Order) -> None:
            self.log.append(("invoice", order))

        @app.subscribe(TOPIC, "orders.cancelled")
        @app.task(queue="stock", name="reserve")
        def reserve(order: Order, note: str = "") -> None:
            self.log.append(("reserve", f"{order}{note}" if note else order))

        self.app, self.invoice, self.reserve, self.worker = app, invoice, reserve, HandWorker(app)

    def run_all(self) -> Counter[object]:
        """Run what lies in both queues; what ran since the start."""
        for queue in ("default", "stock"):
            self.worker.run_all(queue)
        return Counter(map(repr, self.log))


@pytest.fixture
def subscribers(app: App) -> Subscribers:
    return Subscribers(app)


def copies(app: App, *queues: str) -> list[list[str]]:
    """The ids that wait in each queue, taken out."""
    found = []
    for queue in queues:
        ids: list[str] = []
        while deliveries := app.work_queue(queue).claim(1_000):
            app.work_queue(queue).settle(*map(Ack, deliveries))
            ids += [delivery.id for delivery in deliveries]
        found.append(ids)
    return found


def deliver(app: App, raw: redis.Redis) -> None:
    """Rounds of a broker until the outbox is empty."""
    broker = HandBroker(app)

    def is_empty() -> bool:
        broker.round()
        return not raw.exists(f"{START}outbox")

    wait_until(is_empty, "the broker emptied the outbox")


def test_every_subscriber_gets_every_event_as_its_first_argument(subscribers: Subscribers) -> None:
    app = subscribers.app
    assert register_subscriptions(app) == 3

    app.publish(TOPIC, {"number": 1})
    app.publish("orders.cancelled", (2, b"two"))

    assert subscribers.run_all() == {
        "('invoice', {'number': 1})": 1,
        "('reserve', {'number': 1})": 1,
        "('reserve', (2, b'two'))": 1,
    }


def test_a_subscriber_is_still_a_task(subscribers: Subscribers) -> None:
    subscribers.invoice("called")
    subscribers.reserve.enqueue("enqueued", note="!")

    assert subscribers.run_all() == {"('invoice', 'called')": 1, "('reserve', 'enqueued!')": 1}


def test_events_are_published_from_an_event_loop_too(subscribers: Subscribers) -> None:
    register_subscriptions(subscribers.app)

    asyncio.run(subscribers.app.apublish(TOPIC, 1))

    assert subscribers.run_all() == {"('invoice', 1)": 1, "('reserve', 1)": 1}


def test_a_copy_has_the_id_of_its_event_and_nothing_stays_behind(
    subscribers: Subscribers, raw: redis.Redis
) -> None:
    app = subscribers.app
    register_subscriptions(app)

    event = app.publish(TOPIC, None)

    assert re.fullmatch("[0-9A-Za-z]{17}", event)
    assert copies(app, "default", "stock") == [
        [f"{event}:shop/{subscribers.invoice.name}"],
        [f"{event}:shop/reserve"],
    ]
    assert raw.keys(f"{START}*") == [f"{START}subscribers".encode()]


def test_a_failing_subscriber_is_retried_and_the_other_one_is_not(app: App) -> None:
    ran: list[str] = []

    @app.subscribe(TOPIC)
    @app.task(retry=Retry(max=2, first=0))
    def fails(_: int) -> None:
        ran.append("fails")
        raise ValueError

    @app.subscribe(TOPIC)
    def works(_: int) -> None:
        ran.append("works")

    register_subscriptions(app)
    app.publish(TOPIC, 1)
    worker, broker = HandWorker(app), HandBroker(app)

    def is_dead() -> bool:
        worker.run_all()
        broker.round()
        return app.work_queue().counts().dead == 1

    wait_until(is_dead, "the retries were used up")
    assert Counter(ran) == {"fails": 3, "works": 1}


def test_events_without_subscribers_are_kept_for_the_first(
    subscribers: Subscribers, raw: redis.Redis
) -> None:
    app = subscribers.app
    for number in range(3):
        app.publish(TOPIC, number)
    before = raw.llen(f"{START}backlog")

    register_subscriptions(app)
    register_subscriptions(app)
    deliver(app, raw)

    assert before == 3
    assert subscribers.run_all() == {
        f"('{name}', {n})": 1 for name in ("invoice", "reserve") for n in range(3)
    }
    assert not raw.exists(f"{START}backlog")


def test_the_newest_events_are_kept_and_for_a_time_only(app: App, raw: redis.Redis) -> None:
    ids = [app.publish(TOPIC, number, keep=2, ttl=60) for number in range(5)]

    backlog = cast("list[bytes]", raw.lrange(f"{START}backlog", 0, -1))
    kept = [text.partition(b"\n")[0].decode() for text in backlog]
    assert kept == ids[-2:]
    assert 0 < raw.pttl(f"{START}backlog") <= 60_000
    app.publish(TOPIC, 6)
    assert raw.pttl(f"{START}backlog") == -1


def test_an_app_that_subscribes_no_more_gets_nothing_more(
    subscribers: Subscribers, server: RealServer, raw: redis.Redis
) -> None:
    register_subscriptions(subscribers.app)
    other = App("audit", settings=Settings(redis_url=server.url))

    @other.subscribe(TOPIC)
    @other.task(queue="audit", name="note")
    def note(_: int) -> None: ...

    register_subscriptions(other)
    newer = App("shop", settings=Settings(redis_url=server.url))
    assert register_subscriptions(newer) == 0

    event = newer.publish(TOPIC, 1)
    newer.publish("orders.cancelled", 2)

    assert copies(other, "default", "stock", "audit") == [[], [], [f"{event}:audit/note"]]
    assert raw.llen("mqw:{topic:orders.cancelled}:backlog") == 1
    assert raw.hgetall("mqw:subscriptions") == {b"audit": TOPIC.encode()}
    for each in (newer, other):
        each.close()


def test_what_a_killed_publisher_left_is_delivered_once(
    subscribers: Subscribers, server: RealServer, raw: redis.Redis
) -> None:
    """Killed with -9, again and again: each event that was accepted is in both queues, exactly once."""
    app = subscribers.app
    register_subscriptions(app)
    accepted = 0
    for _ in range(6):
        command = [sys.executable, "-m", "tests.support.publishing_process", server.url, TOPIC]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as publisher:
            assert publisher.stdout is not None
            for _ in range(50):
                accepted += bool(publisher.stdout.readline())
            publisher.kill()
            accepted += len(publisher.stdout.read().splitlines())

    deliver(app, raw)
    first, second = copies(app, "default", "stock")

    events = [[each.partition(":")[0] for each in ids] for ids in (first, second)]
    assert sorted(events[0]) == sorted(events[1])
    assert len(set(events[0])) == len(events[0])
    assert accepted <= len(events[0]) <= accepted + 6


def test_a_publisher_killed_between_two_queues_is_finished_by_the_broker(
    subscribers: Subscribers, raw: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = subscribers.app
    register_subscriptions(app)
    stock = app.connections.sender(subscribers.reserve.plan.queue).work

    class Killed(BaseException):
        """What no code catches."""

    def die(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(stock, "enqueue", die)
        with pytest.raises(Killed):
            app.publish(TOPIC, 1)
    ran_before_the_broker_came = subscribers.run_all()
    deliver(app, raw)

    assert ran_before_the_broker_came == {"('invoice', 1)": 1}
    assert subscribers.run_all() == {"('invoice', 1)": 1, "('reserve', 1)": 1}


def test_a_full_queue_gets_its_copies_when_there_is_room(subscribers: Subscribers, raw: redis.Redis) -> None:
    app = subscribers.app
    register_subscriptions(app)
    app.work_queue("stock").limit(2)

    ids = [app.publish(TOPIC, number) for number in range(5)]
    waiting = raw.hlen(f"{START}outbox")
    found: list[str] = []
    broker = HandBroker(app)

    def is_delivered() -> bool:
        broker.round()
        found.extend(copies(app, "stock")[0])
        return len(found) == 5

    wait_until(is_delivered, "all copies had come")
    assert waiting == 3
    assert sorted(found) == sorted(f"{event}:shop/reserve" for event in ids)
    assert len(copies(app, "default")[0]) == 5
    deliver(app, raw)


def test_a_large_backlog_is_delivered_in_batches(subscribers: Subscribers, raw: redis.Redis) -> None:
    app = subscribers.app
    ids = [app.publish(TOPIC, number) for number in range(1_200)]

    register_subscriptions(app)
    deliver(app, raw)

    assert sorted(copies(app, "stock")[0]) == sorted(f"{event}:shop/reserve" for event in ids)


def test_it_works_on_a_cluster() -> None:
    with RealCluster() as cluster:
        app = App("shop", settings=Settings(redis_url=cluster.url))
        subscribers = Subscribers(app)
        register_subscriptions(app)

        app.publish(TOPIC, 1)

        assert subscribers.run_all() == {"('invoice', 1)": 1, "('reserve', 1)": 1}
        app.close()


# Bad input.


@pytest.mark.parametrize("topic", ["", None, 1, b"x", "a b", "{x}", "ключ", "x" * 129, "a\n"])
def test_a_topic_that_is_none_is_refused(app: App, raw: redis.Redis, topic: Anything) -> None:
    with pytest.raises(InvalidArgument, match="topic is"):
        app.publish(topic, 1)
    with pytest.raises(InvalidArgument, match="topic is"):
        app.subscribe(topic)
    assert raw.keys() == []


@pytest.mark.parametrize("payload", [object(), lambda: 1, [object()], "x" * 20_000])
def test_a_payload_that_cannot_be_sent_is_refused(app: App, raw: redis.Redis, payload: Anything) -> None:
    with pytest.raises(InvalidArgument, match="the payload"):
        app.publish(TOPIC, payload)
    assert raw.keys() == []


@pytest.mark.parametrize("options", [{"keep": 0}, {"keep": 1.5}, {"keep": True}, {"ttl": -1}, {"ttl": "1"}])
def test_options_that_are_none_are_refused(app: App, raw: redis.Redis, options: Anything) -> None:
    with pytest.raises(InvalidArgument, match="accepted"):
        app.publish(TOPIC, 1, **options)
    assert raw.keys() == []


def test_a_subscriber_must_take_one_argument_and_need_no_others(app: App) -> None:
    with pytest.raises(InvalidArgument):
        app.subscribe()
    with pytest.raises(InvalidArgument):

        @app.subscribe(TOPIC)
        def nothing() -> None: ...

    with pytest.raises(InvalidArgument):

        @app.subscribe(TOPIC)
        def two(one: int, other: int) -> None: ...


def test_what_depends_on_the_arguments_is_refused(app: App) -> None:
    with pytest.raises(ConfigurationError, match="unique"):

        @app.subscribe(TOPIC)
        @app.task(unique=True)
        def unique(_: int) -> None: ...

    with pytest.raises(ConfigurationError, match="has a rate or a batch with a key"):

        @app.subscribe(TOPIC)
        @app.task(rate=Rate("5/m", key="{tenant}"))
        def limited(tenant: int) -> None: ...


@pytest.mark.parametrize("name", ["subscribers", "outbox", "backlog"])
def test_a_foreign_type_is_refused_and_nothing_is_half_written(
    subscribers: Subscribers, raw: redis.Redis, name: str
) -> None:
    raw.set(START + name, "not ours")

    with pytest.raises(StoreRefused, match="WRONGTYPE"):
        subscribers.app.publish(TOPIC, 1)
    with pytest.raises(StoreRefused, match="WRONGTYPE"):
        register_subscriptions(subscribers.app)
    HandBroker(subscribers.app).round()

    assert raw.keys(f"{START}*") == [(START + name).encode()]


def test_a_broken_subscriber_does_not_keep_the_others_from_theirs(
    subscribers: Subscribers, raw: redis.Redis
) -> None:
    app = subscribers.app
    register_subscriptions(app)
    raw.hset(f"{START}subscribers", "other/broken", "no template")
    raw.hset(f"{START}outbox", "foreign", "no event")

    app.publish(TOPIC, 1)
    deliver(app, raw)

    assert subscribers.run_all() == {"('invoice', 1)": 1, "('reserve', 1)": 1}
