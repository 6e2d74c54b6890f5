"""SQL databases that are servers: connections that die, deadlocks, and ways of MariaDB and MySQL."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Connection, Engine, create_engine, event, select, text
from sqlalchemy.engine import ExceptionContext

from mqworker.errors import ConfigurationError, StoreUnavailable
from mqworker.queues.gq.client import GqClient
from mqworker.queues.gq.rules import GqResult, GqStatus, GqTerms
from mqworker.queues.gq.sql.database import GqSql
from tests.gq.databases import MissingServer, Servers, SqlDatabase
from tests.support.deadline import wait_until
from tests.support.sql_connections import end_connections

DEADLINE_S = 30.0


@pytest.fixture(params=["postgresql", "mariadb"])
def database(request: pytest.FixtureRequest, servers: Servers, tmp_path: Path) -> Iterator[SqlDatabase]:
    yield from _opened(servers, request.param, tmp_path)


@pytest.fixture
def mariadb(servers: Servers, tmp_path: Path) -> Iterator[SqlDatabase]:
    yield from _opened(servers, "mariadb", tmp_path)


@pytest.fixture
def engine(database: SqlDatabase) -> Iterator[Engine]:
    """An engine in which a test can strike; as a caller brings it along."""
    engine = create_engine(database.url)
    yield engine
    engine.dispose()


def _opened(servers: Servers, kind: str, folder: Path) -> Iterator[SqlDatabase]:
    try:
        opened = servers.open(kind, folder)
    except MissingServer as missing:
        pytest.skip(str(missing))
    assert isinstance(opened, SqlDatabase)
    yield opened
    opened.close()


def push(client: GqClient, count: int) -> None:
    with client.producer(push_batch=count) as producer:
        for number in range(count):
            producer.push(b"%d" % number)


def test_a_connection_killed_in_the_middle_of_a_batch_loses_nothing(
    database: SqlDatabase, engine: Engine
) -> None:
    client = GqClient.on_sql("q", engine)
    push(client, 20)
    seen: list[bytes] = []
    consumer = client.consumer(seen.append)
    to_strike = ["UPDATE gq_q_messages", "UPDATE gq_q_messages", "UPDATE gq_q_consumers"]

    @event.listens_for(engine, "before_cursor_execute")
    def strike(_c: object, _u: object, statement: str, *_rest: object) -> None:
        if to_strike and statement.startswith(to_strike[0]):
            to_strike.pop(0)
            end_connections(database.url)

    outages = 0
    while client.counts()[GqStatus.PROCESSED] < 20:
        try:
            consumer.run_once()
        except StoreUnavailable:
            outages += 1

    assert outages == 3
    assert seen == [b"%d" % number for number in range(20)]


def test_a_connection_killed_in_the_middle_of_a_push_pushes_nothing_and_the_batch_is_kept(
    database: SqlDatabase, engine: Engine
) -> None:
    client = GqClient.on_sql("q", engine)
    to_strike = ["INSERT INTO gq_q_messages"]

    @event.listens_for(engine, "after_cursor_execute")
    def strike(_c: object, _u: object, statement: str, *_rest: object) -> None:
        if to_strike and statement.startswith(to_strike[0]):
            to_strike.pop(0)
            end_connections(database.url)

    producer = client.producer(push_batch=3, linger_ms=None)
    producer.push(b"a")
    producer.push(b"b")
    with pytest.raises(StoreUnavailable):
        producer.push(b"c")
    stored, kept = sum(client.counts().values()), producer.buffered
    ids = producer.flush()

    assert (stored, kept, len(ids)) == (0, 3, 3)
    assert [client.find(id_).payload for id_ in ids] == [b"a", b"b", b"c"]


def test_a_commit_whose_answer_was_lost_pushes_once(database: SqlDatabase, engine: Engine) -> None:
    client = GqClient.on_sql("q", engine)
    is_struck = []

    @event.listens_for(engine, "commit")
    def strike(connection: Connection) -> None:
        if not is_struck:
            is_struck.append(True)
            connection.connection.dbapi_connection.commit()
            connection.connection.dbapi_connection.close()

    producer = client.producer()
    with pytest.raises(StoreUnavailable):
        producer.push(b"once")
    ids = producer.flush()

    assert (ids, sum(client.counts().values())) == ([1], 1)
    assert database.client.find(1).payload == b"once"


def test_a_deadlock_is_tried_again(database: SqlDatabase, engine: Engine) -> None:
    """The stranger wrote more, or waits for less long: whom the database ends, is us."""
    client = GqClient.on_sql("q", engine)
    push(client, 2)
    consumer = client.consumer(lambda _payload: None)
    batch = consumer.pop()
    failures = _failures(engine)
    with database.engine.connect() as stranger:
        stranger.execute(text("CREATE TABLE notes (number INTEGER)"))
        stranger.commit()
        stranger.execute(text("INSERT INTO notes VALUES (:number)"), [{"number": 1}] * 500)
        _lock(stranger, client, 2)
        settling = threading.Thread(
            target=consumer.settle, args=([GqResult(each, is_ok=True) for each in batch],)
        )
        settling.start()
        wait_until(lambda: _is_locked(database, client, 1), "the first is locked by us", DEADLINE_S)
        _lock(stranger, client, 1)
        stranger.commit()
        settling.join(DEADLINE_S)

    assert len(failures) == 1
    assert "deadlock" in failures[0].lower()
    assert client.counts()[GqStatus.PROCESSED] == 2


def test_a_lock_that_did_not_come_in_time_is_waited_for_again(mariadb: SqlDatabase) -> None:
    engine = create_engine(mariadb.url, connect_args={"init_command": "SET innodb_lock_wait_timeout = 1"})
    client = GqClient.on_sql("q", engine)
    push(client, 2)
    consumer = client.consumer(lambda _payload: None)
    batch = consumer.pop()
    failures = _failures(engine)
    with mariadb.engine.connect() as stranger:
        _lock(stranger, client, 2)
        settling = threading.Thread(
            target=consumer.settle, args=([GqResult(each, is_ok=True) for each in batch],)
        )
        settling.start()
        wait_until(lambda: failures, "it waited in vain", DEADLINE_S)
        stranger.rollback()
        settling.join(DEADLINE_S)

    assert "Lock wait timeout" in failures[0]
    assert client.counts()[GqStatus.PROCESSED] == 2
    engine.dispose()


def test_a_lock_that_never_comes_is_an_outage(mariadb: SqlDatabase) -> None:
    engine = create_engine(mariadb.url, connect_args={"init_command": "SET innodb_lock_wait_timeout = 0"})
    client = GqClient.on_sql("q", engine)
    push(client, 1)
    consumer = client.consumer(lambda _payload: None)
    batch = consumer.pop()
    with mariadb.engine.connect() as stranger:
        _lock(stranger, client, 1)
        with pytest.raises(StoreUnavailable, match="Lock wait timeout"):
            client.store.settle([GqResult(batch[0], is_ok=True)], GqTerms())
        stranger.rollback()

    assert client.store.settle([GqResult(batch[0], is_ok=True)], GqTerms()) == []
    engine.dispose()


def test_a_server_that_cannot_pass_over_locked_rows_is_refused(mariadb: SqlDatabase) -> None:
    engine = create_engine(mariadb.url)
    engine.connect().close()
    engine.dialect.server_version_info = (10, 5, 8)

    with pytest.raises(ConfigurationError, match=r"MariaDB 10.5.8; accepted is 10.6 or later"):
        GqClient.on_sql("q", engine)

    engine.dispose()


def test_the_clock_does_not_depend_on_the_time_zone(mariadb: SqlDatabase) -> None:
    store = mariadb.client.store
    assert isinstance(store, GqSql)
    with mariadb.engine.connect() as connection:
        readings = []
        for zone in ("+00:00", "+11:00", "-09:30"):
            connection.execute(text(f"SET time_zone = '{zone}'"))
            readings.append(connection.execute(select(store._now)).scalar_one())
        true_ms = connection.execute(text("SELECT UNIX_TIMESTAMP() * 1000")).scalar_one()

    assert max(readings) - min(readings) < 5_000
    assert abs(readings[0] - true_ms) < 5_000


def _failures(engine: Engine) -> list[str]:
    seen: list[str] = []

    @event.listens_for(engine, "handle_error")
    def note(context: ExceptionContext) -> None:
        seen.append(str(context.original_exception))

    return seen


def _lock(connection: Connection, client: GqClient, message: int) -> None:
    assert isinstance(client.store, GqSql)
    table = client.store._tables.messages
    connection.execute(select(table.c.id).where(table.c.id == message).with_for_update())


def _is_locked(database: SqlDatabase, client: GqClient, message: int) -> bool:
    assert isinstance(client.store, GqSql)
    table = client.store._tables.messages
    free = select(table.c.id).where(table.c.id == message).with_for_update(skip_locked=True)
    with database.engine.connect() as connection:
        return connection.execute(free).first() is None
