"""The tables of gq in a SQL database: made when missing, and marked with the version of their layout."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Engine,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    insert,
    inspect,
    select,
)
from sqlalchemy.exc import IntegrityError, OperationalError, ProgrammingError

from mqworker.errors import ConfigurationError
from mqworker.queues.gq.rules import GqStatus, sql_queue_name

SCHEMA_VERSION = 1

_BIG_ID = BigInteger().with_variant(Integer(), "sqlite")  # SQLite counts up in INTEGER columns only
_RACES = 10  # lost at the most: there are five things to make
# Transactions and exact comparison, whatever the database has by default.
_IN_MYSQL: dict[str, Any] = {
    f"{dialect}_{option}": value
    for dialect in ("mysql", "mariadb")
    for option, value in {"engine": "InnoDB", "charset": "utf8mb4", "collate": "utf8mb4_bin"}.items()
}
_BLOB_BYTES = 2**24 - 1  # for MySQL, whose plain BLOB ends at 64 KiB


@dataclass(frozen=True, slots=True)
class GqTables:
    """The tables of one queue, and the one that tells the layout of all."""

    queue: str
    messages: Table
    consumers: Table
    versions: Table

    @classmethod
    def of(cls, queue: str) -> GqTables:
        """The tables as values; nothing is made yet."""
        sql_queue_name(queue)
        metadata = MetaData()
        return cls(queue, _messages(queue, metadata), _consumers(queue, metadata), _versions(metadata))

    def ensure(self, engine: Engine, reader: Engine) -> None:
        """Make what is missing; refuse a layout of another version.

        Where all is there `reader` alone is used: the caller may be in a transaction of his own, which on
        SQLite holds the right to write.
        """
        version = self._version(reader)
        if version is None:
            self._make(engine)
            version = self._version(reader)
        if version != SCHEMA_VERSION:
            raise ConfigurationError(
                f"the tables of gq queue {self.queue!r} have version {version}; accepted is {SCHEMA_VERSION}"
            )

    def _version(self, engine: Engine) -> int | None:
        wanted = select(self.versions.c.version).where(self.versions.c.queue == self.queue)
        try:
            with engine.begin() as connection:
                version: int | None = connection.execute(wanted).scalar()
                return version
        except (OperationalError, ProgrammingError) as error:
            if error.connection_invalidated or inspect(engine).has_table(self.versions.name):
                raise
            return None

    def _make(self, engine: Engine) -> None:
        for is_last in (False,) * _RACES + (True,):
            try:
                with engine.begin() as connection:
                    self._make_within(connection)
            except (IntegrityError, OperationalError, ProgrammingError):
                # Another process may have made one of them in the same moment.
                if is_last:
                    raise
            else:
                return

    def _make_within(self, connection: Connection) -> None:
        self.messages.metadata.create_all(connection)
        # MySQL commits after each: whoever was killed in between has left tables without their indexes.
        for index in self.messages.indexes:
            index.create(connection, checkfirst=True)
        wanted = select(self.versions.c.version).where(self.versions.c.queue == self.queue)
        if connection.execute(wanted).first() is None:
            connection.execute(insert(self.versions).values(queue=self.queue, version=SCHEMA_VERSION))


def _messages(queue: str, metadata: MetaData) -> Table:
    name = f"gq_{queue}_messages"
    return Table(
        name,
        metadata,
        Column("id", _BIG_ID, primary_key=True, autoincrement=True),
        Column("payload", LargeBinary(_BLOB_BYTES), nullable=False),
        Column("status", String(9), nullable=False, default=GqStatus.QUEUED),
        Column("created_at_ms", BigInteger, nullable=False),
        Column("queued_at_ms", BigInteger, nullable=False),
        Column("deadline_at_ms", BigInteger),
        Column("lease_ends_at_ms", BigInteger),  # of a consumed one with a deadline: that, or a later lease
        Column("attempts", Integer, nullable=False, default=0),
        Column("consumer", String(36)),
        Column("claim", Integer),
        Column("reason", String(8), nullable=False, default=""),
        Column("done_at_ms", BigInteger),
        Column("push_token", String(16)),  # by which a push whose answer was lost is recognised
        Index(f"gq_{queue}_by_status", "status", "id"),
        Index(f"gq_{queue}_by_deadline", "status", "deadline_at_ms"),
        sqlite_autoincrement=True,  # an id is never used twice, also after a purge
        **_IN_MYSQL,
    )


def _consumers(queue: str, metadata: MetaData) -> Table:
    return Table(
        f"gq_{queue}_consumers",
        metadata,
        Column("birth", _BIG_ID, primary_key=True, autoincrement=True),
        Column("uuid", String(36), nullable=False, unique=True),
        Column("last_beat_at_ms", BigInteger, nullable=False),
        sqlite_autoincrement=True,
        **_IN_MYSQL,
    )


def _versions(metadata: MetaData) -> Table:
    return Table(
        "gq_schema",
        metadata,
        Column("queue", String(40), primary_key=True),
        Column("version", Integer, nullable=False),
        **_IN_MYSQL,
    )
