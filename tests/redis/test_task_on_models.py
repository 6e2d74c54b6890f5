"""Tasks on queues of other models, from the side that enqueues: what is stored, and what a job can tell."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine
from sqlalchemy.orm import Session

from mqworker import App, Gq, JobStatus, Rsmq, Task
from mqworker.errors import ConfigurationError, InvalidArgument, MqworkerError, NotSupported
from mqworker.queues.catalogue import Model
from mqworker.queues.gq.client import GqClient
from mqworker.queues.rsmq.client import RsmqClient
from tests.support.real_server import RealServer

QUEUE = "line"
Tell = Task[[str, int], None]


def tell(word: str, times: int = 1) -> None:
    """A task."""


@pytest.fixture
def app(server: RealServer) -> Iterator[App]:
    app = App("shop", redis_url=server.url)
    yield app
    app.close()


@pytest.fixture
def database(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/shop.db"


@pytest.fixture
def engine(database: str) -> Iterator[Engine]:
    engine = create_engine(database)
    yield engine
    engine.dispose()


def on(app: App, model: Model) -> Tell:
    app.queue(QUEUE, model=model)
    return app.task(queue=QUEUE, name="shop.tell")(tell)


def test_a_call_on_rsmq_is_a_json_text_that_anybody_can_read(app: App) -> None:
    task = on(app, Rsmq(vt=7))
    rsmq = RsmqClient(app.connections.store)

    job = task.using(headers={"from": "ann"}).enqueue("hi", times=2)

    received = rsmq.receive_message(QUEUE)
    assert received is not None
    assert received.id == job.id
    assert json.loads(received.message) == {
        "task": "shop.tell",
        "args": ["hi"],
        "kwargs": {"times": 2},
        "headers": {"from": "ann"},
    }
    assert rsmq.get_queue_attributes(QUEUE).vt == 7


def test_a_delay_on_rsmq_hides_the_message(app: App) -> None:
    task = on(app, Rsmq())

    job = task.using(delay=60).enqueue("later", 1)

    assert job.status() is JobStatus.DELAYED
    assert RsmqClient(app.connections.store).receive_message(QUEUE) is None


def test_a_text_too_long_for_the_queue_is_refused_and_nothing_stored(app: App) -> None:
    task = on(app, Rsmq(maxsize=1024))
    task.enqueue("short", 1)

    with pytest.raises(InvalidArgument, match="Message too long"):
        task.enqueue_many([("short", 1), ("x" * 2_000, 1)])

    assert RsmqClient(app.connections.store).get_queue_attributes(QUEUE).msgs == 1


def test_many_calls_are_stored_in_order(app: App, database: str) -> None:
    task = on(app, Gq(url=database))

    jobs = task.enqueue_many([(str(number), number) for number in range(1_500)])

    assert [job.id for job in jobs] == [str(number) for number in range(1, 1_501)]
    assert {jobs[0].status(), jobs[-1].status()} == {JobStatus.WAITING}


@pytest.mark.parametrize("model", [Rsmq(), Gq()])
def test_a_job_tells_what_the_model_can_and_refuses_the_rest(app: App, model: Model) -> None:
    job = on(app, model).enqueue("hi", 1)

    again = app.job(job.id, QUEUE)

    assert (again.id, again.queue, again.status(), again.progress()) == (
        job.id,
        QUEUE,
        JobStatus.WAITING,
        None,
    )
    assert app.job("999999", QUEUE).status() is JobStatus.UNKNOWN
    for refused in (job.result, job.cancel, job.begin_wait):
        with pytest.raises(NotSupported, match=f"queue line is {model.title}"):
            refused()


def test_a_deadline_on_gq_that_passed_is_told(app: App) -> None:
    task = on(app, Gq(guarantee="at_most_once"))
    job = task.using(deadline=0).enqueue("late", 1)

    GqClient.on_redis(QUEUE, app.connections.store).consumer(guarantee="at_most_once").pop()

    assert job.status() is JobStatus.EXPIRED


async def enqueue_async(task: Tell) -> str:
    job = await task.aenqueue("hi", 1)
    return await job.astatus()


@pytest.mark.parametrize("model", [Rsmq(), Gq()])
def test_coroutines_enqueue_too(app: App, model: Model) -> None:
    assert asyncio.run(enqueue_async(on(app, model))) == JobStatus.WAITING


def test_a_call_in_a_transaction_is_there_when_it_commits(app: App, database: str, engine: Engine) -> None:
    task = on(app, Gq(url=database))
    task.enqueue("makes the tables", 1)

    with engine.connect() as connection:
        task.using(connection=connection).enqueue("rolled back", 1)
        connection.rollback()
    with Session(engine) as session, session.begin():
        kept = task.using(connection=session).enqueue("kept", 1)

    messages = GqClient.on_sql(QUEUE, engine).consumer().pop()
    assert [b"rolled" in each.payload for each in messages] == [False, False]
    assert str(messages[1].id) == kept.id


def test_a_connection_that_is_none_is_refused(app: App, database: str) -> None:
    task = on(app, Gq(url=database))

    with pytest.raises(InvalidArgument, match="accepted is a Connection or Session"):
        task.using(connection="conn").enqueue("x", 1)


def test_a_connection_to_another_database_is_refused(app: App, database: str) -> None:
    task = on(app, Gq(url=database))
    elsewhere = create_engine("sqlite://")

    with elsewhere.connect() as connection, pytest.raises(MqworkerError, match="no such table"):
        task.using(connection=connection).enqueue("x", 1)
    elsewhere.dispose()


def test_the_child_of_a_fork_opens_the_database_for_itself(app: App, database: str) -> None:
    task = on(app, Gq(url=database))
    task.enqueue("parent", 1)

    child = os.fork()
    if child == 0:
        try:
            task.enqueue("child", 1)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    task.enqueue("parent", 2)

    assert len(GqClient.on_sql(QUEUE, database).consumer().pop()) == 3


def test_a_database_that_cannot_be_opened_is_told_without_its_password(app: App) -> None:
    task = on(app, Gq(url="nosuchdialect://ann:secret@db/x"))

    with pytest.raises(
        ConfigurationError, match="database URL cannot be used: SQLAlchemy has no dialect"
    ) as refused:
        task.enqueue("x", 1)

    assert "secret" not in str(refused.value)
