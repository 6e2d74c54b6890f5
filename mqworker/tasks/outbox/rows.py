"""The rows of an outbox as movers see them: numbered once they are committed, read in that order, deleted.

Ids say in which order rows were written, not in which they were committed: a row with a lower id may appear
later. So a mover gives each row a *position* once it sees it. Movers do that one after another, under the
lock of the one row of the second table, and positions only go up: whoever sees one has seen all below it.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from sqlalchemy import Connection, Engine, and_, delete, event, func, insert, select, update
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError, ProgrammingError

from mqworker.errors import ConfigurationError, InvalidArgument
from mqworker.model.names import MessageId, QueueName, queue_name
from mqworker.queues.gq.sql.engine import (
    check_server,
    database_now,
    failures_as_ours,
    for_reading,
    open_engine,
    transact,
)
from mqworker.tasks.outbox.tables import (
    BAD,
    MOST_REASON,
    ROWS,
    SCHEMA_VERSION,
    STATE,
    create_tables,
    statements,
)

NUMBERED_AT_ONCE = 1_000
DELETED_AT_ONCE = 5_000
COUNTED = 100_000
"""A backlog is counted up to here: counting costs the database more than moving."""
_ONLY = 1


@dataclass(frozen=True, slots=True)
class Row:
    """One call that waits."""

    id: int
    position: int
    call: bytes
    age_ms: int


@dataclass(frozen=True, slots=True)
class Waiting:
    """What has not been moved."""

    rows: int
    oldest_ms: int
    """How long ago the oldest of them was written."""
    bad: int
    why: str
    """Of one that cannot be moved."""


class OutboxRows:
    """The statements of a mover on one database; each a transaction of its own."""

    def __init__(self, engine: Engine) -> None:
        self._engine = _at_read_committed(engine)
        self._reader = for_reading(self._engine)
        self._now = database_now(engine)

    @classmethod
    def open(cls, url: str) -> Self:
        """By the URL of the database; nothing is sent yet."""
        engine = open_engine(url)
        if engine.dialect.name == "sqlite":
            event.listen(engine, "connect", _sync_sqlite)
        return cls(engine)

    def close(self) -> None:
        """Close the connections."""
        self._engine.dispose()

    def create(self) -> None:
        """Make the tables where they are missing."""
        with failures_as_ours():
            create_tables(self._engine)

    def statements(self) -> list[str]:
        """The same as SQL."""
        return statements(self._engine.dialect)

    def identity(self) -> str:
        """The name of this outbox, made once; raises `ConfigurationError` where its tables are missing."""
        check_server(self._engine)
        try:
            return transact(self._reader, self._identity) or self._name_it()
        except ConfigurationError:
            raise
        except Exception as error:
            raise _told(error) from error

    def number_new(self) -> set[QueueName]:
        """Give positions to rows that have none, in the order of their ids; in which queues such were."""
        if not transact(self._reader, self._has_new):
            return set()
        return transact(self._engine, self._number_new)

    def queues(self) -> set[QueueName]:
        """All that have numbered rows, moved or not."""
        return transact(self._reader, self._queues)

    def after(self, queue: QueueName, position: int, limit: int, most_bytes: int) -> list[Row]:
        """The next rows of a queue, without a gap; at least one where there is any."""
        return transact(self._reader, self._after, queue, position, limit, most_bytes)

    def quarantine(self, reason_by_id: Mapping[int, str]) -> None:
        """Take rows out of the order, and say why."""
        transact(self._engine, self._quarantine, reason_by_id)

    def retry_bad(self) -> int:
        """Let quarantined rows be looked at anew; how many."""
        return transact(self._engine, self._retry_bad)

    def delete_up_to(self, queue: QueueName, position: int) -> int:
        """Delete rows up to a position; how many, some thousands at the most."""
        return transact(self._engine, self._delete_up_to, queue, position)

    def waiting(self, position_by_queue: Mapping[QueueName, int]) -> Waiting:
        """What has not been moved, where queues have come so far."""
        return transact(self._reader, self._waiting, position_by_queue)

    def find(self, message: MessageId) -> tuple[QueueName, int | None, int, str] | None:
        """A row by the id of its message: queue, position, age in ms, why it is bad."""
        return transact(self._reader, self._find, message)

    def bad(self, limit: int) -> list[tuple[int, str, str, str]]:
        """Quarantined rows: id, message, queue, reason."""
        return transact(self._reader, self._bad, limit)

    def _identity(self, connection: Connection) -> str | None:
        row = connection.execute(select(STATE.c.version, STATE.c.outbox)).first()
        if row is None:
            return None
        if row.version != SCHEMA_VERSION:
            raise ConfigurationError(
                f"the outbox of this database has version {row.version}; accepted is {SCHEMA_VERSION}"
            )
        return str(row.outbox)

    def _name_it(self) -> str:
        wanted = {"id": _ONLY, "version": SCHEMA_VERSION, "outbox": secrets.token_hex(8), "position": 0}
        try:
            with self._engine.begin() as connection:
                connection.execute(insert(STATE).values(wanted))
        except IntegrityError:  # another mover was quicker
            pass
        name = transact(self._reader, self._identity)
        if name is None:
            raise ConfigurationError("the outbox lost its name; accepted is one row in mqworker_outbox_state")
        return name

    def _has_new(self, connection: Connection) -> bool:
        return (
            connection.execute(select(ROWS.c.id).where(ROWS.c.position.is_(None)).limit(1)).first()
            is not None
        )

    def _number_new(self, connection: Connection) -> set[QueueName]:
        lock = select(STATE.c.position).where(STATE.c.id == _ONLY).with_for_update()
        last = connection.execute(lock).scalar_one()
        wanted = select(ROWS.c.id, ROWS.c.queue, self._now.label("now_ms")).where(ROWS.c.position.is_(None))
        found = connection.execute(wanted.order_by(ROWS.c.id).limit(NUMBERED_AT_ONCE)).all()
        bad = {
            row.id: f"queue is {row.queue!r:.80}, no name of a queue"
            for row in found
            if not _is_queue(row.queue)
        }
        good = [row for row in found if row.id not in bad]
        self._quarantine(connection, bad)
        if not good:
            return set()
        # No less than the time: a database that was restored from a backup must not give out again what Redis
        # has seen. See parts/fence.lua, where it is the other way round.
        offset = max(last + 1, good[0].now_ms * 1000) - good[0].id
        ids = [row.id for row in good]
        connection.execute(
            update(ROWS)
            .where(ROWS.c.id.in_(ids), ROWS.c.position.is_(None))
            .values(position=ROWS.c.id + offset)
        )
        connection.execute(update(STATE).where(STATE.c.id == _ONLY).values(position=ids[-1] + offset))
        return {QueueName(row.queue) for row in good}

    def _queues(self, connection: Connection) -> set[QueueName]:
        numbered = select(ROWS.c.queue).where(ROWS.c.position > 0).distinct()
        return {QueueName(name) for name in connection.execute(numbered).scalars()}

    def _after(
        self, connection: Connection, queue: QueueName, position: int, limit: int, most_bytes: int
    ) -> list[Row]:
        here = and_(ROWS.c.queue == queue, ROWS.c.position > position)
        sizes = select(ROWS.c.position, func.length(ROWS.c.call)).where(here)
        last = _last_within(
            connection.execute(sizes.order_by(ROWS.c.position).limit(limit)).all(), most_bytes
        )
        if last is None:
            return []
        columns = (
            ROWS.c.id,
            ROWS.c.position,
            ROWS.c.call,
            (self._now - ROWS.c.created_at_ms).label("age_ms"),
        )
        wanted = select(*columns).where(here, ROWS.c.position <= last).order_by(ROWS.c.position)
        return [
            Row(row.id, row.position, bytes(row.call), max(0, int(row.age_ms)))
            for row in connection.execute(wanted)
        ]

    def _quarantine(self, connection: Connection, reason_by_id: Mapping[int, str]) -> None:
        for row, reason in reason_by_id.items():
            told = reason.encode("ascii", "replace").decode()[:MOST_REASON]
            connection.execute(update(ROWS).where(ROWS.c.id == row).values(position=BAD, reason=told))

    def _retry_bad(self, connection: Connection) -> int:
        again = update(ROWS).where(ROWS.c.position == BAD).values(position=None, reason="")
        return connection.execute(again).rowcount

    def _delete_up_to(self, connection: Connection, queue: QueueName, position: int) -> int:
        moved = and_(ROWS.c.queue == queue, ROWS.c.position > 0, ROWS.c.position <= position)
        wanted = select(ROWS.c.id).where(moved).order_by(ROWS.c.position).limit(DELETED_AT_ONCE)
        ids = list(connection.execute(wanted).scalars())
        deleted = 0
        for first in range(0, len(ids), NUMBERED_AT_ONCE):
            some = ids[first : first + NUMBERED_AT_ONCE]
            deleted += connection.execute(delete(ROWS).where(ROWS.c.id.in_(some))).rowcount
        return deleted

    def _waiting(self, connection: Connection, position_by_queue: Mapping[QueueName, int]) -> Waiting:
        parts = [
            ROWS.c.position.is_(None),
            *(and_(ROWS.c.queue == queue, ROWS.c.position > at) for queue, at in position_by_queue.items()),
        ]
        count, oldest_ms = 0, 0
        for part in parts:
            some = select(ROWS.c.created_at_ms).where(part).limit(COUNTED).subquery()
            counted = select(func.count(), self._now - func.min(some.c.created_at_ms)).select_from(some)
            rows, age_ms = connection.execute(counted).one()
            count, oldest_ms = count + rows, max(oldest_ms, int(age_ms or 0))
        bad = connection.execute(select(func.count()).where(ROWS.c.position == BAD)).scalar_one()
        why = select(ROWS.c.reason).where(ROWS.c.position == BAD).limit(1)
        return Waiting(count, oldest_ms, bad, connection.execute(why).scalar() or "" if bad else "")

    def _find(
        self, connection: Connection, message: MessageId
    ) -> tuple[QueueName, int | None, int, str] | None:
        age = (self._now - ROWS.c.created_at_ms).label("age_ms")
        wanted = select(ROWS.c.queue, ROWS.c.position, age, ROWS.c.reason).where(ROWS.c.message == message)
        row = connection.execute(wanted.order_by(ROWS.c.id.desc()).limit(1)).first()
        return None if row is None else (QueueName(row.queue), row.position, int(row.age_ms), row.reason)

    def _bad(self, connection: Connection, limit: int) -> list[tuple[int, str, str, str]]:
        columns = (ROWS.c.id, ROWS.c.message, ROWS.c.queue, ROWS.c.reason)
        wanted = select(*columns).where(ROWS.c.position == BAD).order_by(ROWS.c.id).limit(limit)
        return [(row.id, row.message, row.queue, row.reason) for row in connection.execute(wanted)]


def _last_within(sizes: Iterable[Sequence[Any]], most_bytes: int) -> int | None:
    """The position of the last row that still fits; the first one always does."""
    last, total = None, 0
    for position, size in sizes:
        total += size
        if last is not None and total > most_bytes:
            break
        last = position
    return last


def _is_queue(name: str) -> bool:
    try:
        return queue_name(name) == name
    except InvalidArgument:
        return False


def _told(error: Exception) -> Exception:
    """A table that is not there is a matter of configuration; all else stays what it is."""
    cause = error if isinstance(error, DBAPIError) else error.__cause__
    if isinstance(cause, OperationalError | ProgrammingError) and "mqworker_outbox_state" in str(cause.orig):
        return ConfigurationError(
            "the database of outbox_url has no outbox; accepted is one with its tables, which "
            "`mqworker outbox create` makes"
        )
    return error


def _at_read_committed(engine: Engine) -> Engine:
    """Each statement sees what was committed before it: the order of positions rests on that."""
    return (
        engine
        if engine.dialect.name == "sqlite"
        else engine.execution_options(isolation_level="READ COMMITTED")
    )


# Any: what a driver's connection is, only the driver knows.
def _sync_sqlite(connection: Any, _record: object) -> None:  # noqa: ANN401
    """What was numbered must not be forgotten when the power fails: Redis would be told other numbers."""
    connection.execute("PRAGMA synchronous = FULL").close()
