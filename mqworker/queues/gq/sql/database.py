"""gq on a SQL database, through SQLAlchemy Core: SQLite, PostgreSQL, MySQL and MariaDB.

Every statement of the protocol is one transaction, on the database's clock, begun anew after a deadlock. A
claim is an UPDATE that repeats its condition and a second look at what it changed, so that it is right on
every database; where rows can be locked, those that somebody else is taking are passed over.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence

from sqlalchemy import Connection, Engine, delete, insert, select, update
from sqlalchemy.orm import Session

from mqworker.errors import InvalidArgument
from mqworker.model.names import shown
from mqworker.queues.gq.database import GqNotRegistered, GqOutgoing
from mqworker.queues.gq.rules import (
    GqClaim,
    GqConsumerRecord,
    GqHeld,
    GqLiveness,
    GqMessage,
    GqRecord,
    GqResult,
    GqStatus,
    GqTerms,
    GqView,
    view_of,
)
from mqworker.queues.gq.sql.engine import (
    at_read_committed,
    check_server,
    database_now,
    failures_as_ours,
    for_reading,
    open_engine,
    read_now_ms,
    transact,
)
from mqworker.queues.gq.sql.messages import GqSqlMessages
from mqworker.queues.gq.sql.push import GqSqlPush
from mqworker.queues.gq.sql.tables import GqTables


class GqSql:
    """The statements of gq on one queue in a SQL database. Safe between threads."""

    def __init__(self, name: str, database: str | Engine) -> None:
        self._is_own = isinstance(database, str)
        self._tables = GqTables.of(name)
        self._engine = open_engine(database) if isinstance(database, str) else at_read_committed(database)
        self._reader = for_reading(self._engine)
        self._now = database_now(self._engine)
        self._messages = GqSqlMessages(self._tables.messages)
        self._push = GqSqlPush(self._tables.messages, self._now)
        try:
            check_server(self._engine)
            with failures_as_ours():
                self._tables.ensure(self._engine, self._reader)
        except BaseException:
            self.close()
            raise

    def prepare_push(self, messages: Sequence[GqOutgoing]) -> Callable[[], list[int]]:
        """A push with a token: tried again, it looks first whether the token is there."""
        token = secrets.token_urlsafe(12)
        tries = 0

        def push() -> list[int]:
            nonlocal tries
            tries += 1
            return transact(self._engine, insert_once, is_repeated=tries > 1)

        def insert_once(connection: Connection, *, is_repeated: bool) -> list[int]:
            before = self._push.pushed(connection, token) if is_repeated else []
            return before or self._push.insert(connection, messages, token)

        return push

    def push_within(self, connection: object, messages: Sequence[GqOutgoing]) -> list[int]:
        """Push in the caller's transaction, whose commit makes the messages visible."""
        with failures_as_ours():
            if isinstance(connection, Session):
                connection = connection.connection()
            if not isinstance(connection, Connection):
                raise InvalidArgument(
                    f"connection is {shown(connection)}; accepted is a Connection or Session of SQLAlchemy"
                )
            return self._push.insert(connection, messages, secrets.token_urlsafe(12))

    def register(self, consumer: str) -> None:
        """Put a consumer at the end of the order of birth; a repeated call changes nothing."""
        transact(self._engine, self._register, consumer)

    def beat(self, consumer: str, liveness: GqLiveness) -> bool:
        """A sign of life; False when the consumer was given up before."""
        return transact(self._engine, self._beat, consumer, liveness)

    def prune(self, liveness: GqLiveness, terms: GqTerms) -> list[str]:
        """Delete dead consumers, fail what expired, drop what was kept long enough; who was deleted."""
        return transact(self._engine, self._prune, liveness, terms)

    def leave(self, consumer: str) -> None:
        """Delete a consumer's record."""
        table = self._tables.consumers
        transact(self._engine, Connection.execute, delete(table).where(table.c.uuid == consumer))

    def view(self, consumer: str, liveness: GqLiveness) -> GqView:
        """The consumer's place among the active."""
        return transact(self._engine, self._view, consumer, liveness)

    def pop(self, claim: GqClaim, count: int, liveness: GqLiveness, terms: GqTerms) -> list[GqMessage]:
        """Confirm life, select and claim, in one transaction."""
        return transact(self._engine, self._pop, claim, count, liveness, terms)

    def select(self, view: GqView, count: int, terms: GqTerms) -> list[int]:
        """Ids that a consumer with this view would claim."""
        return transact(self._engine, self._select, view, count, terms)

    def claim(
        self, claim: GqClaim, ids: Sequence[int], liveness: GqLiveness, terms: GqTerms
    ) -> list[GqMessage]:
        """Take those that nobody took meanwhile."""
        return transact(self._engine, self._claim, claim, ids, liveness, terms)

    def adopt(self, claim: GqClaim, family: str, held: Sequence[GqHeld], liveness: GqLiveness) -> list[int]:
        """Take over what consumers of the same family of names hold; returns it."""
        return transact(self._engine, self._adopt, claim, family, held, liveness)

    def retire(self, consumer: str, terms: GqTerms) -> None:
        """Delete the record of a consumer whose process ended."""
        transact(self._engine, self._retire, consumer, terms)

    def settle(self, results: Sequence[GqResult], terms: GqTerms) -> list[int]:
        """Write results; the ids of messages that another consumer has by now."""
        return transact(self._engine, self._settle, results, terms)

    def find(self, message: int) -> GqRecord | None:
        """A message as it is stored."""
        return transact(self._reader, self._messages.find, message)

    def counts(self) -> Mapping[GqStatus, int]:
        """How many messages are stored in each status."""
        return transact(self._reader, self._messages.counts)

    def consumers(self) -> list[GqConsumerRecord]:
        """All records of consumers, in the order of birth."""
        return transact(self._reader, self._consumers)

    def close(self) -> None:
        """Close the connections, if the engine was opened here."""
        if self._is_own:
            self._engine.dispose()

    # Each inside a transaction

    def _register(self, connection: Connection, consumer: str) -> None:
        table = self._tables.consumers
        known = select(table.c.uuid).where(table.c.uuid == consumer)
        if connection.execute(known).first() is None:
            connection.execute(insert(table).values(uuid=consumer, last_beat_at_ms=self._now))

    def _beat(self, connection: Connection, consumer: str, liveness: GqLiveness) -> bool:
        return self._beat_at(connection, consumer, liveness, read_now_ms(connection, self._now))

    def _prune(self, connection: Connection, liveness: GqLiveness, terms: GqTerms) -> list[str]:
        table = self._tables.consumers
        now_ms = read_now_ms(connection, self._now)
        # The clock was set back: a beat of the time before must not keep the dead alive for as long.
        is_ahead = table.c.last_beat_at_ms > now_ms
        if connection.execute(select(table.c.uuid).where(is_ahead)).first() is not None:
            connection.execute(update(table).where(is_ahead).values(last_beat_at_ms=now_ms))
        is_dead = table.c.last_beat_at_ms <= now_ms - liveness.dead_after_ms
        # Locked: two that prune at once must not both reclaim, nor delete one that beats meanwhile.
        dead = list(connection.execute(select(table.c.uuid).where(is_dead).with_for_update()).scalars())
        if dead:
            connection.execute(delete(table).where(table.c.uuid.in_(dead)))
        if dead and terms.reclaim_dead:
            self._messages.reclaim_from(connection, dead, terms, now_ms)
        if terms.is_at_most_once:
            self._messages.fail_expired(connection, terms, now_ms)
        self._messages.purge(connection, terms.retention, now_ms)
        return dead

    def _view(self, connection: Connection, consumer: str, liveness: GqLiveness) -> GqView:
        return self._view_at(connection, consumer, liveness, read_now_ms(connection, self._now))

    def _pop(
        self, connection: Connection, claim: GqClaim, count: int, liveness: GqLiveness, terms: GqTerms
    ) -> list[GqMessage]:
        before = self._messages.taken_by(connection, claim) if claim.is_repeated else []
        if before:
            return before
        now_ms = read_now_ms(connection, self._now)
        if not self._beat_at(connection, claim.consumer, liveness, now_ms):
            raise _not_registered(claim.consumer)
        view = self._view_at(connection, claim.consumer, liveness, now_ms)
        if terms.is_at_most_once:
            self._messages.fail_expired(connection, terms, now_ms)
        ids = self._messages.select_own(connection, view, count, terms, now_ms)
        if not ids and terms.steal_after_ms is not None:
            ids = self._messages.select_waiting(connection, count, terms, now_ms)
        return self._messages.take(connection, claim, ids, terms, now_ms)

    def _select(self, connection: Connection, view: GqView, count: int, terms: GqTerms) -> list[int]:
        now_ms = read_now_ms(connection, self._now)
        return self._messages.select_own(connection, view, count, terms, now_ms)

    def _claim(
        self,
        connection: Connection,
        claim: GqClaim,
        ids: Sequence[int],
        liveness: GqLiveness,
        terms: GqTerms,
    ) -> list[GqMessage]:
        now_ms = read_now_ms(connection, self._now)
        self._view_at(connection, claim.consumer, liveness, now_ms)
        return self._messages.take(connection, claim, ids, terms, now_ms)

    def _adopt(
        self,
        connection: Connection,
        claim: GqClaim,
        family: str,
        held: Sequence[GqHeld],
        liveness: GqLiveness,
    ) -> list[int]:
        self._view_at(connection, claim.consumer, liveness, read_now_ms(connection, self._now))
        births = [each.uuid for each in self._consumers(connection)]
        younger = births[births.index(claim.consumer) + 1 :]
        return self._messages.adopt(connection, claim, family, held, younger)

    def _retire(self, connection: Connection, consumer: str, terms: GqTerms) -> None:
        table = self._tables.consumers
        connection.execute(delete(table).where(table.c.uuid == consumer))
        if terms.reclaim_dead:
            now_ms = read_now_ms(connection, self._now)
            self._messages.reclaim_from(connection, [consumer], terms, now_ms)

    def _settle(self, connection: Connection, results: Sequence[GqResult], terms: GqTerms) -> list[int]:
        return self._messages.settle(connection, results, terms, read_now_ms(connection, self._now))

    def _beat_at(self, connection: Connection, consumer: str, liveness: GqLiveness, now_ms: int) -> bool:
        table = self._tables.consumers
        is_alive = table.c.last_beat_at_ms > now_ms - liveness.dead_after_ms
        mine = update(table).where(table.c.uuid == consumer, is_alive).values(last_beat_at_ms=now_ms)
        return connection.execute(mine).rowcount == 1

    def _view_at(self, connection: Connection, consumer: str, liveness: GqLiveness, now_ms: int) -> GqView:
        view = view_of(self._consumers(connection), consumer, liveness, now_ms)
        if view is None:
            raise _not_registered(consumer)
        return view

    def _consumers(self, connection: Connection) -> list[GqConsumerRecord]:
        table = self._tables.consumers
        wanted = select(table.c.uuid, table.c.last_beat_at_ms).order_by(table.c.birth)
        return [GqConsumerRecord(uuid, beat) for uuid, beat in connection.execute(wanted)]


def _not_registered(consumer: str) -> GqNotRegistered:
    return GqNotRegistered(f"consumer {consumer} was given up after too long a silence")
