"""The two tables of an outbox, and the version of their layout.

`metadata` is what Alembic compares: add it to `target_metadata`. Producers write rows and nothing else; what
stands in `position` and in the second table is the movers' business (rows.py).
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Column, Engine, Index, Integer, LargeBinary, MetaData, String, Table, text
from sqlalchemy.exc import IntegrityError, OperationalError, ProgrammingError
from sqlalchemy.schema import CreateIndex, CreateTable

SCHEMA_VERSION = 1
MOST_REASON = 200
BAD = -1
"""In the place of a position: the row cannot be moved, `reason` says why."""

_RACES = 5
_BIG_ID = BigInteger().with_variant(Integer(), "sqlite")  # SQLite counts up in INTEGER columns only
_LONGBLOB = 2**32 - 1  # for MySQL, whose plain BLOB ends at 64 KiB
_IN_MYSQL: dict[str, Any] = {
    f"{dialect}_{option}": value
    for dialect in ("mysql", "mariadb")
    for option, value in {"engine": "InnoDB", "charset": "utf8mb4", "collate": "utf8mb4_bin"}.items()
}

metadata = MetaData()

ROWS = Table(
    "mqworker_outbox",
    metadata,
    Column("id", _BIG_ID, primary_key=True, autoincrement=True),
    Column("queue", String(128), nullable=False),
    Column("message", String(128), nullable=False),  # its id
    Column("call", LargeBinary(_LONGBLOB), nullable=False),
    Column("created_at_ms", BigInteger, nullable=False),  # by the clock of the database
    Column("position", BigInteger),  # none until a mover has seen the row committed
    Column("reason", String(MOST_REASON), nullable=False, server_default=text("''")),
    Index("mqworker_outbox_new", "position", "id"),
    Index("mqworker_outbox_order", "queue", "position"),
    Index("mqworker_outbox_message", "message"),
    sqlite_autoincrement=True,  # an id is never used twice
    **_IN_MYSQL,
)

STATE = Table(
    "mqworker_outbox_state",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),  # there is one row
    Column("version", Integer, nullable=False),
    Column("outbox", String(32), nullable=False),  # under which name Redis knows it
    Column("position", BigInteger, nullable=False),  # the last one that was given
    **_IN_MYSQL,
)


def create_tables(engine: Engine) -> None:
    """Make what is missing; any number of processes may do so at once."""
    for is_last in (False,) * _RACES + (True,):
        try:
            with engine.begin() as connection:
                metadata.create_all(connection)
                for index in ROWS.indexes:  # MySQL commits after each: some may be missing
                    index.create(connection, checkfirst=True)
        except (IntegrityError, OperationalError, ProgrammingError):
            if is_last:
                raise
        else:
            return


def statements(dialect: Any) -> list[str]:  # noqa: ANN401 - a dialect of SQLAlchemy
    """The same as SQL, for whoever keeps migrations of his own."""
    tables = [str(CreateTable(table).compile(dialect=dialect)).strip() for table in (ROWS, STATE)]
    indexes = sorted(ROWS.indexes, key=lambda index: str(index.name))
    return [*tables, *(str(CreateIndex(index).compile(dialect=dialect)).strip() for index in indexes)]
