"""Engines for gq: how a database is opened, what its clock says, and its failures as our errors."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Concatenate, ParamSpec, TypeVar

from sqlalchemy import BigInteger, Connection, Engine, create_engine, event, literal_column, make_url, select
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.sql.elements import ColumnElement

from mqworker.errors import ConfigurationError, StoreRefused, StoreUnavailable

_SQLITE_WAIT_MS = 30_000
_IS_READING = "gq_is_reading"
_MYSQL_WAIT_S = 6  # for a lock; a transaction that waited in vain is repeated

_TRIES = 5
_LONGEST_PAUSE_S = 0.05
# A deadlock that was solved at our cost, a lock that did not come: nothing was done, another try may succeed.
_GAVE_WAY_IN_MYSQL = {1205, 1213}
_GAVE_WAY_IN_POSTGRESQL = {"40001", "40P01"}

_MYSQL = ("mysql", "mariadb")
# MySQL's own level locks the gaps between rows too: pushing and taking would wait for one another.
_READ_COMMITTED = "READ COMMITTED"
_OLDEST_MYSQL, _OLDEST_MARIADB = (8, 0), (10, 6)  # the first that pass over locked rows

P = ParamSpec("P")
ResultT = TypeVar("ResultT")

# Milliseconds since 1970; of the statement, not of the transaction, which may have begun long ago.
_NOW_BY_DIALECT = {
    "sqlite": "CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER)",
    "postgresql": "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)",
    # Not by way of local time, in which an hour of every autumn comes twice.
    **dict.fromkeys(_MYSQL, "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000"),
}


def open_engine(url: str) -> Engine:
    """An engine by URL; connections that died in the pool are found before they are used."""
    try:
        is_mysql = make_url(url).get_backend_name() in _MYSQL
        isolation = {"isolation_level": _READ_COMMITTED} if is_mysql else {}
        engine = create_engine(url, pool_pre_ping=True, **isolation)
    except (ArgumentError, NoSuchModuleError, ModuleNotFoundError) as error:
        raise ConfigurationError(
            f"the database URL cannot be used: {_cause_of(error)}; accepted are sqlite:///file, "
            "postgresql+psycopg://… and mysql+pymysql://…, with the driver installed"
        ) from None  # its text may hold the URL, and with it a password
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", _set_up_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
    elif is_mysql:
        event.listen(engine, "connect", _set_up_mysql)
    return engine


def _cause_of(error: Exception) -> str:
    """Why an engine could not be made, without the text of the error, which may hold a password."""
    if isinstance(error, ModuleNotFoundError):
        return f"the driver {error.name} is not installed"
    if isinstance(error, NoSuchModuleError):
        return "SQLAlchemy has no dialect or driver of that name"
    return "it is not a URL that SQLAlchemy can read"


def at_read_committed(engine: Engine) -> Engine:
    """The caller's engine, at the level of isolation for which the statements of gq are written."""
    return engine.execution_options(isolation_level=_READ_COMMITTED) if _is_mysql(engine) else engine


def for_reading(engine: Engine) -> Engine:
    """The same engine for transactions that only read: they wait for nobody who writes."""
    return engine.execution_options(**{_IS_READING: True})


def check_server(engine: Engine) -> None:
    """Refuse a MySQL or MariaDB that is too old, before it refuses a statement."""
    if not _is_mysql(engine):
        return
    with failures_as_ours(), engine.connect() as connection:
        dialect = connection.dialect
        is_mariadb = getattr(dialect, "is_mariadb", False)
        product, oldest = ("MariaDB", _OLDEST_MARIADB) if is_mariadb else ("MySQL", _OLDEST_MYSQL)
        version = tuple(part for part in dialect.server_version_info or () if isinstance(part, int))
    if version < oldest:
        given, accepted = (".".join(map(str, each)) for each in (version, oldest))
        raise ConfigurationError(f"the database is {product} {given}; accepted is {accepted} or later")


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


def transact(
    engine: Engine,
    work: Callable[Concatenate[Connection, P], ResultT],
    *arguments: P.args,
    **options: P.kwargs,
) -> ResultT:
    """All that `work` does, or nothing; begun anew when the database ended it in favour of another.

    A database that cannot answer raises `StoreUnavailable`.
    """
    with failures_as_ours():
        for _ in range(_TRIES - 1):
            try:
                with engine.begin() as connection:
                    return work(connection, *arguments, **options)
            except DBAPIError as error:
                if not _gave_way(error):
                    raise
                time.sleep(random.uniform(0, _LONGEST_PAUSE_S))  # noqa: S311 - not both again at once
        with engine.begin() as connection:
            return work(connection, *arguments, **options)


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


def _gave_way(error: DBAPIError) -> bool:
    state = getattr(error.orig, "sqlstate", None) or getattr(error.orig, "pgcode", None)
    number = error.orig.args[0] if error.orig is not None and error.orig.args else None
    return state in _GAVE_WAY_IN_POSTGRESQL or number in _GAVE_WAY_IN_MYSQL


def _is_mysql(engine: Engine) -> bool:
    return engine.dialect.name in _MYSQL


def _cause(error: DBAPIError) -> str:
    return f"{type(error.orig).__name__}: {error.orig}".strip().splitlines()[0]


# Any: what a driver's connection is, only the driver knows.
def _set_up_sqlite(connection: Any, _record: object) -> None:  # noqa: ANN401
    connection.isolation_level = None  # transactions are begun below, not by the driver
    for pragma in (f"busy_timeout = {_SQLITE_WAIT_MS}", "journal_mode = WAL", "synchronous = NORMAL"):
        connection.execute(f"PRAGMA {pragma}").close()


def _set_up_mysql(connection: Any, _record: object) -> None:  # noqa: ANN401
    with connection.cursor() as cursor:
        cursor.execute(f"SET SESSION innodb_lock_wait_timeout = {_MYSQL_WAIT_S}")


def _begin_sqlite(connection: Connection) -> None:
    # At once with the right to write: whoever reads first and writes then is refused, not made to wait.
    is_reading = connection.get_execution_options().get(_IS_READING, False)
    connection.exec_driver_sql("BEGIN" if is_reading else "BEGIN IMMEDIATE")
