"""What only SQL offers: enqueueing in the caller's transaction, versioned tables."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest
from sqlalchemy import create_engine, inspect, text

from mqworker.errors import ConfigurationError, InvalidArgument, StoreUnavailable
from mqworker.queues.gq.client import GqClient
from tests.gq.databases import Servers, SqlDatabase


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
        assert (stored(client), client.find(1)) == (0, None)

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


def test_a_queue_is_opened_while_a_transaction_of_the_caller_writes(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/shop.db"
    GqClient.on_sql("orders", url).close()  # some node made the tables

    with create_engine(url).begin() as connection:
        connection.execute(text("CREATE TABLE sales (number INTEGER)"))
        connection.execute(text("INSERT INTO sales VALUES (7)"))
        with GqClient.on_sql("orders", url) as client:  # waited for the caller's own transaction before
            client.producer().push(b"order 7", connection=connection)

    with GqClient.on_sql("orders", url) as client:
        assert stored(client) == 1


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


def test_a_batch_longer_than_a_statement_may_be_is_pushed_whole(client: GqClient) -> None:
    payloads = [bytes([number]) * 1_000_000 for number in range(20)]
    with client.producer(push_batch=20, linger_ms=None) as producer:
        for payload in payloads[:-1]:
            producer.push(payload)
        ids = producer.push(payloads[-1])

    assert ids == list(range(1, 21))
    assert [message.payload for message in client.consumer(pop_batch=20).pop()] == payloads


def test_tables_that_a_killed_process_left_half_made_are_completed(sql_database: SqlDatabase) -> None:
    made = inspect(sql_database.engine).get_indexes("gq_q_messages")
    with sql_database.engine.begin() as connection:
        where = " ON gq_q_messages" if connection.dialect.name == "mysql" else ""
        connection.execute(text(f"DROP INDEX gq_q_by_deadline{where}"))
        connection.execute(text("DELETE FROM gq_schema"))

    sql_database.another_client()

    assert inspect(sql_database.engine).get_indexes("gq_q_messages") == made


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


def test_redis_needs_no_sqlalchemy() -> None:
    code = "import sys, mqworker.queues.gq.client; sys.exit('sqlalchemy' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
