"""Calls in a transaction of the application: there when it commits, with everything that was asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from mqworker import App, Gq, JobStatus, Keyring, SigningKey, Task, chain
from mqworker.errors import InvalidArgument, NotSupported, ResultTimeout
from mqworker.model.delivery import Delivery
from mqworker.settings import load_settings
from tests.outbox.places import OutboxPlace

DEAD_PORT = "redis://127.0.0.1:1"


def double(number: int) -> int:
    return 2 * number


@pytest.fixture
def app(place: OutboxPlace) -> Iterator[App]:
    opened = App("shop", settings=load_settings({"redis_url": place.server.url}, environ={}))
    opened.outbox(place.engine)
    yield opened
    opened.close()


@pytest.fixture
def task(app: App) -> Task[[int], int]:
    return app.task(name="double", queue="q")(double)


def moved(place: OutboxPlace) -> list[Delivery]:
    """What stands in the queue once everything is moved, in the order of delivery."""
    place.move_all(place.mover())
    return place.queue().claim(100)


def test_a_call_is_there_when_its_transaction_commits(place: OutboxPlace, task: Task[[int], int]) -> None:
    with Session(place.engine) as session, session.begin():
        job = task.using(session=session).enqueue(21)

    assert [each.id for each in moved(place)] == [job.id]


def test_a_call_is_never_there_when_its_transaction_rolls_back(
    place: OutboxPlace, task: Task[[int], int]
) -> None:
    with Session(place.engine) as session:
        task.using(session=session).enqueue(21)
        session.rollback()

    assert moved(place) == []


def test_connections_and_scoped_sessions_will_do(place: OutboxPlace, task: Task[[int], int]) -> None:
    with place.engine.begin() as connection:
        first = task.using(connection=connection).enqueue(1)
    sessions = scoped_session(sessionmaker(place.engine))
    second = task.using(session=sessions).enqueue(2)
    sessions.commit()
    sessions.remove()

    assert [each.id for each in moved(place)] == [first.id, second.id]


def test_a_savepoint_that_is_rolled_back_takes_its_calls_along(
    place: OutboxPlace, task: Task[[int], int]
) -> None:
    with Session(place.engine) as session, session.begin():
        kept = task.using(session=session).enqueue(1)
        with session.begin_nested() as savepoint:
            task.using(session=session).enqueue(2)
            savepoint.rollback()

    assert [each.id for each in moved(place)] == [kept.id]


def test_many_calls_go_together_in_order(place: OutboxPlace, task: Task[[int], int]) -> None:
    with Session(place.engine) as session, session.begin():
        jobs = task.using(session=session).enqueue_many([(number,) for number in range(30)])

    assert [each.id for each in moved(place)] == [job.id for job in jobs]


def test_what_a_call_wants_is_moved_with_it(place: OutboxPlace, app: App, task: Task[[int], int]) -> None:
    with Session(place.engine) as session, session.begin():
        within = task.using(session=session)
        late = within.using(delay=3600).enqueue(1)
        urgent = within.using(priority=9, id="order-7", headers={"who": "me"}, tags=["vip"]).enqueue(2)
        over = within.using(deadline=0).enqueue(3)
        usual = within.enqueue(4)

    assert [each.id for each in moved(place)] == [urgent.id, usual.id]
    assert app.job(late.id, "q").status() is JobStatus.DELAYED
    assert app.job(over.id, "q").status() is not JobStatus.RUNNING


def test_of_calls_with_the_same_key_one_is_moved(place: OutboxPlace, app: App) -> None:
    task = app.task(name="once", queue="q", unique="{number}")(double)
    with Session(place.engine) as session, session.begin():
        first = task.using(session=session).enqueue(1)
        task.using(session=session).enqueue(1)

    assert [each.id for each in moved(place)] == [first.id]
    assert first.is_new is None


def test_redis_may_be_away_while_a_call_is_written(place: OutboxPlace) -> None:
    app = App("shop", settings=load_settings({"redis_url": DEAD_PORT}, environ={}))
    app.outbox(place.engine)
    app.queue("q", limit=10)
    task = app.task(name="double", queue="q")(double)

    with Session(place.engine) as session, session.begin():
        job = task.using(session=session).enqueue(21)

    assert [each.id for each in moved(place)] == [job.id]


def test_payloads_are_sealed_before_they_are_written(place: OutboxPlace) -> None:
    keys = Keyring(SigningKey("k1", b"x" * 32))
    app = App("shop", settings=load_settings({"redis_url": place.server.url}, environ={}), keys=keys)
    app.outbox(place.engine)
    task = app.task(name="double", queue="q")(double)
    with Session(place.engine) as session, session.begin():
        task.using(session=session).enqueue(21)

    (delivery,) = moved(place)

    payloads = app.connections.payloads
    assert payloads is not None
    payloads.open_delivery("q", delivery)  # raises where it is not signed for its own id
    app.close()


def test_the_status_of_a_call_that_waits_is_pending(place: OutboxPlace, task: Task[[int], int]) -> None:
    with Session(place.engine) as session:
        job = task.using(session=session).enqueue(21)
        session.rollback()
        before = job.status()
        job = task.using(session=session).enqueue(21)
        session.commit()

    assert (before, job.status()) == (JobStatus.UNKNOWN, JobStatus.PENDING)
    with pytest.raises(ResultTimeout, match="outbox"):
        job.result(timeout=0.2)
    place.move_all(place.mover())
    assert job.status() is JobStatus.WAITING


def test_enqueue_hooks_and_middleware_see_the_call(
    place: OutboxPlace, app: App, task: Task[[int], int]
) -> None:
    seen: list[str] = []
    app.hooks.before_enqueue(lambda call: seen.append(call.task))

    with Session(place.engine) as session, session.begin():
        task.using(session=session).enqueue(21)

    assert seen == ["double"]


def test_an_asynchronous_session_is_used_by_aenqueue(place: OutboxPlace, task: Task[[int], int]) -> None:
    if not place.url.startswith("postgresql"):
        pytest.skip("an asynchronous driver is installed for PostgreSQL alone")

    async def order() -> list[str]:
        engine = create_async_engine(place.url)
        async with AsyncSession(engine) as session, session.begin():
            jobs = [await task.using(session=session).aenqueue(1)]
            jobs += await task.using(session=session).aenqueue_many([(2,), (3,)])
        async with AsyncSession(engine) as session:
            await task.using(session=session).aenqueue(4)
            with pytest.raises(InvalidArgument, match="aenqueue"):
                task.using(session=session).enqueue(5)
            await session.rollback()
        await engine.dispose()
        return [job.id for job in jobs]

    ids = asyncio.run(order())

    assert [each.id for each in moved(place)] == ids


def test_what_has_no_place_in_an_outbox_says_so(place: OutboxPlace, app: App, task: Task[[int], int]) -> None:
    other = App("other", settings=load_settings({"redis_url": DEAD_PORT}, environ={}))
    without = other.task(name="double", queue="q")(double)
    with Session(place.engine) as session:
        with pytest.raises(NotSupported, match=r"app\.outbox"):
            without.using(session=session)
        with pytest.raises(NotSupported, match="workflow"):
            chain(task.using(session=session).s(1), task.s()).enqueue()
        with pytest.raises(NotSupported, match="buffer"), app.producer() as producer:
            producer.enqueue(task.using(session=session), 1)
        with pytest.raises(InvalidArgument, match="Session or Connection"):
            task.using(session="default").enqueue(1)


def test_a_queue_of_gq_keeps_its_own_way_into_a_transaction(place: OutboxPlace, app: App) -> None:
    app.queue("ledger", model=Gq(url=place.url))
    task = app.task(name="book", queue="ledger")(double)
    task.enqueue(0)  # the tables of a new queue cannot be made inside a transaction that writes to SQLite
    with place.engine.begin() as connection:
        task.using(session=connection).enqueue(1)

    assert place.rows_left() == 0
