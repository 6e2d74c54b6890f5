"""Engines for gq: how a database is opened, what its clock says, and its failures as our errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import BigInteger, Connection, Engine, create_engine, event, literal_column, select
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.sql.elements import ColumnElement

from mqworker.errors import ConfigurationError, StoreRefused, StoreUnavailable

_SQLITE_WAIT_MS = 30_000

# Milliseconds since 1970; of the statement, not of the transaction, which may have begun long ago.
_NOW_BY_DIALECT = {
    "sqlite": "CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER)",
    "postgresql": "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)",
    "mysql": "CAST(UNIX_TIMESTAMP(SYSDATE(3)) * 1000 AS SIGNED)",
    "mariadb": "CAST(UNIX_TIMESTAMP(SYSDATE(3)) * 1000 AS SIGNED)",
}


def open_engine(url: str) -> Engine:
    """An engine by URL; connections that died in the pool are found before they are used."""
    try:
        engine = create_engine(url, pool_pre_ping=True)
    except (ArgumentError, NoSuchModuleError, ModuleNotFoundError) as error:
        # The text of the error may hold the URL, and with it a password: only its kind is passed on.
        raise ConfigurationError(
            f"the database URL does not fit ({type(error).__name__}); accepted are sqlite:///file, "
            "postgresql+psycopg://… and mysql+pymysql://…, with the driver installed"
        ) from None
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", _set_up_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
    return engine


def database_now(engine: Engine) -> ColumnElement[int]:
    """The database's clock as an expression."""
    try:
        return literal_column(_NOW_BY_DIALECT[engine.dialect.name], BigInteger)
    except KeyError:
        known = ", ".join(_NOW_BY_DIALECT)
        raise ConfigurationError(f"the database is {engine.dialect.name}; accepted are {known}") from None


def read_now_ms(connection: Connection, now: ColumnElement[int]) -> int:
    """What the database's clock says."""
    return int(connection.execute(select(now)).scalar_one())


@contextmanager
def transaction(engine: Engine) -> Iterator[Connection]:
    """Everything or nothing; a database that cannot answer raises `StoreUnavailable`."""
    with failures_as_ours(), engine.begin() as connection:
        yield connection


@contextmanager
def failures_as_ours() -> Iterator[None]:
    """Errors of SQLAlchemy by what the caller can do about them."""
    try:
        yield
    except PoolTimeout as error:
        raise StoreUnavailable("no connection to the database was free", maybe_executed=False) from error
    except DBAPIError as error:
        if error.connection_invalidated or isinstance(error, OperationalError):
            raise StoreUnavailable(f"the database did not answer: {_cause(error)}") from error
        raise StoreRefused(f"the database refused a statement of gq: {_cause(error)}") from error


def _cause(error: DBAPIError) -> str:
    return f"{type(error.orig).__name__}: {error.orig}".strip().splitlines()[0]


# Any: what a driver's connection is, only the driver knows.
def _set_up_sqlite(connection: Any, _record: object) -> None:  # noqa: ANN401
    connection.isolation_level = None  # transactions are begun below, not by the driver
    for pragma in (f"busy_timeout = {_SQLITE_WAIT_MS}", "journal_mode = WAL", "synchronous = NORMAL"):
        connection.execute(f"PRAGMA {pragma}").close()


def _begin_sqlite(connection: Connection) -> None:
    # At once with the right to write: whoever reads first and writes then is refused, not made to wait.
    connection.exec_driver_sql("BEGIN IMMEDIATE")
