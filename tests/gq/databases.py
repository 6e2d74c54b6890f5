"""The databases under test, and a way to let time pass in them: timestamps are moved into the past."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Protocol

import redis
from sqlalchemy import Engine, Update, create_engine, update

from mqworker.queues.gq.client import GqClient
from mqworker.queues.gq.sql.database import GqSql
from tests.support.messages import new_id, open_store
from tests.support.real_mariadb import RealMariadb, mariadb_missing
from tests.support.real_postgres import RealPostgres, postgres_folder
from tests.support.real_server import RealServer


class MissingServer(Exception):
    """A database cannot be tested here."""


class Database(Protocol):
    """A store with one empty queue."""

    client: GqClient
    url: str
    queue: str

    def another_client(self) -> GqClient:
        """As another process would open the same queue."""

    def silence(self, consumer: str | None, ms: int) -> None:
        """Let a consumer's last heartbeat be so long ago."""

    def age(self, message: int, ms: int) -> None:
        """Let a message be older by so much: everything that was written about it, deadline included."""

    def close(self) -> None:
        """Close and forget."""


@dataclass
class Servers:
    """Started when first asked for."""

    running: ExitStack

    def open(self, kind: str, folder: Path) -> Database:
        """An empty queue on a database of that kind."""
        queue = f"q_{new_id()}".lower().replace("-", "_")
        match kind:
            case "redis":
                return RedisDatabase(self.redis, queue)
            case "sqlite":
                return SqlDatabase(f"sqlite:///{folder}/gq.db", "q")
            case "postgresql":
                return SqlDatabase(self.postgres.new_database(), "q")
            case _:
                return SqlDatabase(self.mariadb.new_database(), "q")

    @cached_property
    def redis(self) -> RealServer:
        return self.running.enter_context(RealServer())

    @cached_property
    def postgres(self) -> RealPostgres:
        if postgres_folder() is None:
            raise MissingServer("PostgreSQL: no initdb on the PATH or below /usr/lib/postgresql")
        return self.running.enter_context(RealPostgres())

    @cached_property
    def mariadb(self) -> RealMariadb:
        if mariadb_missing():
            raise MissingServer(mariadb_missing())
        return self.running.enter_context(RealMariadb())


class RedisDatabase:
    """A queue in Redis."""

    def __init__(self, server: RealServer, queue: str) -> None:
        self.url, self.queue = server.url, queue
        self._stores = ExitStack()
        self._redis: redis.Redis = self._stores.enter_context(server.client())
        self.client = self.another_client()

    def another_client(self) -> GqClient:
        store = open_store(self.url)
        self._stores.callback(store.close)
        return GqClient.on_redis(self.queue, store)

    def silence(self, consumer: str | None, ms: int) -> None:
        seconds, microseconds = self._redis.time()
        self._redis.zadd(self._key("beats"), {consumer: seconds * 1000 + microseconds // 1000 - ms})

    def age(self, message: int, ms: int) -> None:
        for name in ("deadlines", "leases", "done"):
            if self._redis.zscore(self._key(name), message) is not None:
                self._redis.zincrby(self._key(name), -ms, message)
        status, queued, created, deadline, *rest = self._redis.hget(self._key("records"), message).split(b" ")
        times = [b"%d" % (int(time) - ms) if time != b"-" else time for time in (queued, created, deadline)]
        self._redis.hset(self._key("records"), message, b" ".join([status, *times, *rest]))

    def close(self) -> None:
        self._stores.close()

    def _key(self, name: str) -> str:
        return f"mqw:gq:{{{self.queue}}}:{name}"


@dataclass
class SqlDatabase:
    """A queue in a SQL database."""

    url: str
    queue: str
    clients: list[GqClient] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.client = self.another_client()
        self.engine: Engine = create_engine(self.url)

    def another_client(self) -> GqClient:
        self.clients.append(GqClient.on_sql(self.queue, self.url))
        return self.clients[-1]

    def silence(self, consumer: str | None, ms: int) -> None:
        store = self.client.store
        assert isinstance(store, GqSql)
        table = store._tables.consumers
        self._run(update(table).where(table.c.uuid == consumer).values(last_beat_at_ms=store._now - ms))

    def age(self, message: int, ms: int) -> None:
        store = self.client.store
        assert isinstance(store, GqSql)
        table = store._tables.messages
        times = [column for column in table.c if column.name.endswith("_at_ms")]
        changes = {column.name: column - ms for column in times}
        self._run(update(table).where(table.c.id == message).values(changes))

    def close(self) -> None:
        for client in self.clients:
            client.close()
        self.engine.dispose()

    def _run(self, statement: Update) -> None:
        with self.engine.begin() as connection:
            connection.execute(statement)
