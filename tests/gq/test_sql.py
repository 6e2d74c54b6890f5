"""What only SQL offers: enqueueing in the caller's transaction, versioned tables, connections that die."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest
from sqlalchemy import create_engine, event, select, text
from sqlalchemy.dialects import mysql
from sqlalchemy.schema import CreateTable

from mqworker.errors import ConfigurationError, InvalidArgument, StoreUnavailable
from mqworker.model.gq import GqStatus
from mqworker.queues.gq import GqClient
from mqworker.queues.gq_sql_messages import _locked
from mqworker.queues.gq_sql_tables import GqTables
from tests.gq.databases import MissingServer, Servers, SqlDatabase


@pytest.fixture
def client(sql_database: SqlDatabase) -> GqClient:
    return sql_database.client


def stored(client: GqClient) -> int:
    return sum(client.counts().values())


def test_a_push_in_a_transaction_is_visible_at_its_commit(
    sql_database: SqlDatabase, client: GqClient
) -> None:
    with sql_database.engine.begin() as connection:
        connection.execute(text("CREATE TABLE orders (number INTEGER)"))
        connection.execute(text("INSERT INTO orders VALUES (7)"))
        ids = client.producer(push_batch=100).push(b"order 7", connection=connection)
        if connection.dialect.name == "postgresql":  # SQLite lets nobody else in meanwhile
            assert stored(client) == 0

    assert ids == [1]
    assert [message.payload for message in client.consumer().pop()] == [b"order 7"]


def test_a_push_in_a_transaction_that_rolls_back_never_was(
    sql_database: SqlDatabase, client: GqClient
) -> None:
    with sql_database.engine.connect() as connection:
        client.producer().push(b"order 8", connection=connection)
        connection.rollback()

    assert stored(client) == 0
    assert client.consumer().pop() == []


def test_a_connection_must_be_one(client: GqClient) -> None:
    with pytest.raises(InvalidArgument, match="connection"):
        client.producer().push(b"x", connection="sqlite://")


def test_redis_takes_no_part_in_a_transaction(servers: Servers, tmp_path: Path) -> None:
    database = servers.open("redis", tmp_path)

    with pytest.raises(InvalidArgument, match="SQL only"):
        database.client.producer().push(b"x", connection=object())

    database.close()


def test_an_engine_of_the_caller_is_used_and_left_open(sql_database: SqlDatabase) -> None:
    client = GqClient.on_sql("other", sql_database.engine)
    client.producer().push(b"x")

    report = client.consumer(lambda _payload: None).run_once()
    client.close()

    assert report.processed == (1,)
    with sql_database.engine.begin() as connection:
        assert connection.execute(text("SELECT COUNT(*) FROM gq_other_messages")).scalar_one() == 1


def test_queues_of_one_database_do_not_meet(sql_database: SqlDatabase, client: GqClient) -> None:
    other = GqClient.on_sql("other", sql_database.url)
    other.producer().push(b"x")

    assert (stored(client), stored(other)) == (0, 1)
    assert client.producer().push(b"y") == [1]
    other.close()


def test_tables_of_another_version_are_refused(sql_database: SqlDatabase) -> None:
    with sql_database.engine.begin() as connection:
        connection.execute(text("UPDATE gq_schema SET version = 99"))

    with pytest.raises(ConfigurationError, match="version 99"):
        sql_database.another_client()


def test_processes_that_create_the_tables_at_once_do_not_harm_one_another(sql_database: SqlDatabase) -> None:
    clients: list[GqClient] = []

    def open_client() -> None:
        clients.append(GqClient.on_sql("fresh", sql_database.url))

    threads = [threading.Thread(target=open_client) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    ids = [each.producer().push(b"x")[0] for each in clients]
    assert ids == list(range(1, 9))
    for each in clients:
        each.close()


@pytest.mark.parametrize(
    "url", ["nonsense", "oracle+nothing://x", "mysql+nodriver://scott:tiger@h/d", "mssql://scott:tiger@h/d"]
)
def test_a_url_that_does_not_fit_is_refused_without_showing_its_password(url: str) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        GqClient.on_sql("q", url)

    assert "tiger" not in str(refusal.value)


@pytest.mark.parametrize("name", ["", "Upper", "a-b", "x" * 41, 'q"; DROP TABLE x; --'])
def test_a_name_that_fits_no_table_is_refused(name: str) -> None:
    with pytest.raises(InvalidArgument, match="queue"):
        GqClient.on_sql(name, "sqlite://")


def test_a_database_that_is_not_there_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable):
        GqClient.on_sql("q", f"sqlite:///{tmp_path}/missing/gq.db")


def test_a_locked_sqlite_file_is_unavailable_and_the_batch_is_kept(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/gq.db"
    impatient = create_engine(url, connect_args={"timeout": 0.05})
    client, other = GqClient.on_sql("q", impatient), create_engine(url)
    producer = client.producer()
    with other.connect() as connection:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match="locked"):
            producer.push(b"kept")
        connection.rollback()

    assert producer.flush() == [1]
    impatient.dispose()
    other.dispose()


def test_a_connection_killed_in_the_middle_of_a_batch_loses_nothing(servers: Servers, tmp_path: Path) -> None:
    try:
        database = servers.open("postgresql", tmp_path)
    except MissingServer as missing:
        pytest.skip(str(missing))
    assert isinstance(database, SqlDatabase)
    kill = text(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
        " AND datname = current_database()"
    )
    engine = create_engine(database.url)
    client = GqClient.on_sql("q", engine)
    with client.producer(push_batch=20) as producer:
        for number in range(20):
            producer.push(b"%d" % number)
    seen: list[bytes] = []
    consumer = client.consumer(seen.append)
    to_strike = ["UPDATE gq_q_messages", "UPDATE gq_q_messages", "UPDATE gq_q_consumers"]

    @event.listens_for(engine, "before_cursor_execute")
    def strike(_c: object, _u: object, statement: str, *_rest: object) -> None:
        if to_strike and statement.startswith(to_strike[0]):
            to_strike.pop(0)
            with database.engine.begin() as administrator:
                administrator.execute(kill)

    outages = 0
    while client.counts()[GqStatus.PROCESSED] < 20:
        try:
            consumer.run_once()
        except StoreUnavailable:
            outages += 1

    assert outages == 3
    assert seen == [b"%d" % number for number in range(20)]
    engine.dispose()
    database.close()


def test_a_commit_whose_answer_was_lost_pushes_once(servers: Servers, tmp_path: Path) -> None:
    try:
        database = servers.open("postgresql", tmp_path)
    except MissingServer as missing:
        pytest.skip(str(missing))
    assert isinstance(database, SqlDatabase)
    engine = create_engine(database.url)
    client = GqClient.on_sql("q", engine)
    is_struck = []

    @event.listens_for(engine, "commit")
    def strike(connection: object) -> None:
        if not is_struck:
            is_struck.append(True)
            connection.connection.dbapi_connection.commit()  # type: ignore[attr-defined]
            connection.connection.dbapi_connection.close()  # type: ignore[attr-defined]

    producer = client.producer()
    with pytest.raises(StoreUnavailable):
        producer.push(b"once")
    ids = producer.flush()

    assert (ids, stored(client)) == ([1], 1)
    engine.dispose()
    database.close()


def test_the_tables_and_the_lock_of_a_claim_have_words_in_mysql() -> None:
    """All that can be shown without a server: no statement needs what MySQL and MariaDB do not have."""
    tables = GqTables.of("q")
    dialect = mysql.dialect()

    made = str(CreateTable(tables.messages).compile(dialect=dialect))
    locked = str(_locked(select(tables.messages.c.id)).compile(dialect=dialect))

    assert "BIGINT NOT NULL AUTO_INCREMENT" in made
    assert locked.endswith("FOR UPDATE SKIP LOCKED")


def test_redis_needs_no_sqlalchemy() -> None:
    code = "import sys, mqworker.queues.gq; sys.exit('sqlalchemy' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
