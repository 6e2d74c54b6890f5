"""Sending by name: checked against what workers published, limited and unique as the application says."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import datetime
from typing import Any, cast

import pytest

from mqworker import App, Batch, Fair, Rate, Unique, chain
from mqworker.errors import InvalidArgument, NotSupported
from mqworker.model.clock import ManualClock
from mqworker.model.record import batch_key_of
from mqworker.queues.catalogue import Rsmq
from mqworker.settings import Settings
from mqworker.tasks.context import Context
from mqworker.tasks.plain_types import check_plain
from mqworker.tasks.published_tasks import publish_tasks
from mqworker.tasks.remote_tasks import READ_AGAIN_MS, read_published_tasks
from tests.support.hand_broker import HandBroker
from tests.support.hand_worker import HandWorker
from tests.support.real_server import RealServer

EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - a default that JSON cannot hold


@pytest.fixture
def shop(server: RealServer) -> Iterator[App]:
    """The application, as its workers know it."""
    app = App("shop", settings=Settings(redis_url=server.url))

    @app.task(name="shop.charge", queue="money", priority=3)
    def charge(ctx: Context, order: int, amount: float = 1.5, *, note: str | None = None) -> float:
        del ctx, note
        return order * amount

    @app.task(name="shop.mail", rate=[Rate("100/s"), Rate("5/m", key="{tenant}")])
    def mail(tenant: str = "none", at: datetime = EPOCH) -> None: ...

    @app.task(
        name="shop.report",
        unique=Unique("{day}", ttl=60),
        fair_by=Fair("{tenant}", {"gold": 3}),
        queue="fair",
    )
    def report(day: str, tenant: str = "x") -> None: ...

    @app.task(name="shop.once", unique=True)
    def once(at: datetime = EPOCH) -> None: ...

    @app.task(name="shop.load", batch=Batch(size=10, by="{tenant}"), queue="rows")
    def load(rows: list[dict[str, str]]) -> list[str]:
        return [f"{row['tenant']} of {len(rows)}" for row in rows]

    app.queue("old", model=Rsmq())

    @app.task(name="shop.old", queue="old")
    def old() -> None: ...

    publish_tasks(app)
    yield app
    app.close()


@pytest.fixture
def front(server: RealServer) -> Iterator[App]:
    """A program without the application's code."""
    app = App("front", settings=Settings(redis_url=server.url))
    yield app
    app.close()


def test_a_call_by_name_runs_and_its_result_is_awaited(shop: App, front: App) -> None:
    job = front.send("shop.charge", 4, amount=2.5)
    HandWorker(shop).run_all("money")

    assert job.queue == "money"
    assert job.result(timeout=5) == 10.0


def test_the_same_for_asyncio(shop: App, front: App) -> None:
    async def run() -> str:
        job = await front.asend("shop.charge", 4)
        await front.aclose()
        return job.id

    message = asyncio.run(run())

    assert [delivery.id for delivery in shop.work_queue("money").claim(5)] == [message]


@pytest.mark.parametrize(
    ("args", "kwargs", "told"),
    [
        ((), {}, "missing a required argument: 'order'"),
        ((1, 2, 3), {}, "too many positional arguments"),
        ((1,), {"colour": "red"}, "unexpected keyword argument 'colour'"),
        (("seven",), {}, "order is 'seven'; accepted is int"),
        ((True,), {}, "accepted is int"),
        ((1,), {"amount": "much"}, "accepted is float"),
        ((1,), {"note": 7}, r"accepted is str \| None"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_sent(
    shop: App, front: App, args: tuple[object, ...], kwargs: dict[str, object], told: str
) -> None:
    with pytest.raises(InvalidArgument, match=told):
        front.send("shop.charge", *args, **kwargs)

    assert shop.work_queue("money").counts().ready == 0


def test_a_call_waits_for_the_limits_of_its_task(shop: App, front: App) -> None:
    front.send("shop.mail", "acme", EPOCH.isoformat())

    work = shop.work_queue()
    (limits,) = work.store.send([("ZRANGE", work.calls.keys.named("limits"), 0, -1)], None)[0]  # type: ignore[misc]
    assert limits == b"shop.mail=100/1000/100|shop.mail:acme=5/60000/5"


def test_a_default_of_json_counts_for_the_key_of_a_limit(shop: App, front: App) -> None:
    front.send("shop.mail")

    work = shop.work_queue()
    (limits,) = work.store.send([("ZRANGE", work.calls.keys.named("limits"), 0, -1)], None)[0]  # type: ignore[misc]
    assert limits.endswith(b"shop.mail:none=5/60000/5")


def test_a_default_that_is_not_known_must_be_given_where_a_key_needs_it(shop: App, front: App) -> None:
    del shop
    with pytest.raises(InvalidArgument, match="at decides about its limits or its uniqueness"):
        front.send("shop.once")


def test_a_unique_call_is_stored_once_in_the_turns_of_its_tenant(shop: App, front: App) -> None:
    first = front.send("shop.report", "monday", tenant="gold")
    second = front.send("shop.report", "monday", tenant="gold")

    work = shop.work_queue("fair")
    assert (first.id, first.is_new, second.is_new) == (second.id, True, False)
    assert work.store.send([("ZRANGE", work.calls.keys.named("limits"), 0, -1)], None)[0] == [b"fair=3~gold"]


def test_options_of_a_call_are_given_with_using(shop: App, front: App) -> None:
    job = front.named("shop.charge").using(id="order-7", delay=60).enqueue(7)

    assert (job.id, shop.work_queue("money").find(job.id).state) == ("order-7", "delayed")
    assert front.named("shop.charge").using(id="order-7").enqueue(7).is_new is False


def test_a_task_of_another_queue_model_is_refused(shop: App, front: App) -> None:
    del shop
    with pytest.raises(NotSupported, match="RSMQ"):
        front.send("shop.old")


def test_a_task_that_nobody_published_is_sent_unchecked(front: App) -> None:
    job = front.send("far.away", 1, colour="red")

    assert (job.queue, front.work_queue().counts().ready) == ("default", 1)


def test_an_app_with_the_code_uses_its_own(shop: App) -> None:
    assert shop.send("shop.charge", 4).queue == "money"


def test_what_is_published_is_read_again_after_a_while(server: RealServer, shop: App) -> None:
    clock = ManualClock()
    front = App("front", settings=Settings(redis_url=server.url), clock=clock)
    front.send("shop.charge", 1)
    newer = App("shop", settings=Settings(redis_url=server.url))
    newer.task(name="shop.charge", queue="money")(lambda: None)
    publish_tasks(newer)
    newer.close()

    front.send("shop.charge", 1)  # as it was a moment ago
    clock.advance(ms=READ_AGAIN_MS)
    with pytest.raises(InvalidArgument, match="too many positional"):
        front.send("shop.charge", 1)
    front.close()
    assert shop.work_queue("money").counts().ready == 2


@pytest.mark.parametrize("text", ["", "[]", '{"version": 1, "tasks": 7}', '{"version":1,"tasks":[{}, 7]}'])
def test_what_a_foreign_hand_published_is_passed_over(server: RealServer, shop: App, text: str) -> None:
    with server.client() as client:
        client.hset("mqw:tasks", "evil", text)

    found = read_published_tasks(shop.connections.store, "mqw")

    assert sorted(found) == [f"shop.{each}" for each in ("charge", "load", "mail", "old", "once", "report")]


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        ("Order", 7),
        ("int | Order", "x"),
        ("list[int | str]", [1]),
        ("Optional[int]", None),
        ("typing.Optional[int]", 3),
        ("float", 3),
        ("dict[str, list[int] | None]", {}),
        ("", object()),
        ("Literal['a', 'b']", 7),
    ],
)
def test_only_what_surely_does_not_fit_is_refused(annotation: str, value: object) -> None:
    check_plain("x", annotation, value)


def test_a_task_by_name_is_a_step_of_a_workflow(shop: App, front: App) -> None:
    charge = front.named("shop.charge")
    job = chain(charge.s(2), charge.s(amount=3.0)).enqueue()
    worker, broker = HandWorker(shop), HandBroker(shop)
    for _ in range(3):
        broker.round()
        worker.run_all("money")
    broker.round()

    assert job.result(timeout=5) == 9.0


def test_a_row_by_name_is_checked_and_has_the_key_of_its_batch(shop: App, front: App) -> None:
    job = front.send("shop.load", {"tenant": "ann"})

    with pytest.raises(InvalidArgument, match="has no tenant"):
        front.send("shop.load", {"name": "ann"})
    queue = shop.work_queue("rows")
    # Any: what the command answers.
    (records,) = queue.store.send([("LRANGE", queue.calls.keys.named("ready"), 0, -1)], queue.calls.keys.meta)
    assert [batch_key_of(record) for record in cast("Any", records)] == [b"ann"]
    HandWorker(shop).run_all("rows")
    assert job.result(timeout=5) == "ann of 1"
