"""Writing rows of an outbox, inside a transaction of the application: nothing is committed here.

Taken are sessions and connections of SQLAlchemy, their asynchronous twins by `aenqueue`, and connections of
Django, which need no SQLAlchemy.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mqworker.errors import ConfigurationError, InvalidArgument, NotSupported
from mqworker.model.message import Message
from mqworker.model.names import QueueName, shown
from mqworker.model.outbox_row import encode_row

if TYPE_CHECKING:
    from sqlalchemy import Connection

ACCEPTED = (
    "a Session or Connection of SQLAlchemy (with aenqueue also the async ones), or a connection of Django"
)
_STATEMENT_BYTES = 4 * 1024 * 1024  # MariaDB takes 16 MiB by default, and bytes may double in SQL

# Milliseconds since 1970 by the database's clock, as in queues/gq/sql/engine.py; % doubled for cursors.
_NOW_BY_VENDOR = {
    "sqlite": "CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER)",
    "postgresql": "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)",
    "mysql": "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000",
}

RowValues = dict[str, str | bytes]


def write(session: object, queue: QueueName, messages: Sequence[Message]) -> None:
    """One row for each message, in the transaction of `session`."""
    rows = [_values(queue, message) for message in messages]
    if _is_of_django(session):
        _write_by_cursor(session, rows)
    elif is_async(session):
        raise InvalidArgument(
            f"session is {shown(session)}, which is asynchronous; accepted is it by `await task.aenqueue()`"
        )
    else:
        _write_by_sqlalchemy(_connection_of(session), rows)


async def awrite(session: Any, queue: QueueName, messages: Sequence[Message]) -> None:  # noqa: ANN401 - either
    """The same for asyncio; a synchronous session is used where it is: it belongs to this thread."""
    if is_async(session):
        await session.run_sync(lambda sync_session: write(sync_session, queue, messages))
    else:
        write(session, queue, messages)


def is_async(session: object) -> bool:
    """Whether it is one of SQLAlchemy's asynchronous ones, which are there only where they were imported."""
    module = sys.modules.get("sqlalchemy.ext.asyncio")
    if module is None:
        return False
    kinds = (module.AsyncSession, module.AsyncConnection, module.async_scoped_session)
    return isinstance(session, kinds)


def _values(queue: QueueName, message: Message) -> RowValues:
    return {"queue": str(queue), "message": str(message.id), "call": encode_row(message)}


def _write_by_sqlalchemy(connection: Connection, rows: Sequence[RowValues]) -> None:
    from sqlalchemy import insert  # noqa: PLC0415 - an extra

    from mqworker.queues.gq.sql.engine import database_now  # noqa: PLC0415 - same
    from mqworker.tasks.outbox.tables import ROWS  # noqa: PLC0415 - same

    statement = insert(ROWS).values(created_at_ms=database_now(connection.engine))
    for part in _parts(rows):
        connection.execute(statement, part)


def _connection_of(session: object) -> Connection:
    try:
        from sqlalchemy import Connection  # noqa: PLC0415 - an extra
        from sqlalchemy.orm import Session, scoped_session  # noqa: PLC0415 - same
    except ImportError as error:
        raise ConfigurationError(
            f"session is {shown(session)}, and SQLAlchemy is not installed: pip install 'mqworker[sql]'"
        ) from error
    if isinstance(session, scoped_session):
        session = session()
    if isinstance(session, Session):
        return session.connection()
    if isinstance(session, Connection):
        return session
    raise InvalidArgument(f"session is {shown(session)}; accepted is {ACCEPTED}")


def _is_of_django(session: object) -> bool:
    """By what it has: Django is not imported here, and `django.db.connection` is a proxy."""
    return hasattr(session, "in_atomic_block") and hasattr(session, "vendor")


def _write_by_cursor(connection: Any, rows: Sequence[RowValues]) -> None:  # noqa: ANN401 - Django has no types
    now = _NOW_BY_VENDOR.get(connection.vendor)
    if now is None:
        known = ", ".join(_NOW_BY_VENDOR)
        raise NotSupported(f"session is of a database of {connection.vendor}; accepted are {known}")
    columns, values = "queue, message, call, created_at_ms, reason", f"%s, %s, %s, {now}, ''"
    if connection.vendor == "mysql":
        columns = "queue, message, `call`, created_at_ms, reason"  # a word of its language
    statement = f"INSERT INTO mqworker_outbox ({columns}) VALUES ({values})"  # noqa: S608 - constants
    with connection.cursor() as cursor:
        for part in _parts(rows):
            cursor.executemany(statement, [(row["queue"], row["message"], row["call"]) for row in part])


def _parts(rows: Sequence[RowValues]) -> Iterator[list[Mapping[str, Any]]]:
    """The rows, split where a statement would be longer than databases care to read."""
    part: list[Mapping[str, Any]] = []
    length = 0
    for row in rows:
        if part and length + len(row["call"]) > _STATEMENT_BYTES:
            yield part
            part, length = [], 0
        part.append(row)
        length += len(row["call"])
    if part:
        yield part
