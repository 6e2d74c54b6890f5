"""Storing messages of gq in SQL: one statement for a batch, in the way in which each database is quickest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Table, TextClause, bindparam, func, insert, select, text
from sqlalchemy.sql.elements import ColumnElement

from mqworker.model.gq import GqStatus
from mqworker.model.instant import After, At
from mqworker.queues.gq_store import GqOutgoing


class GqSqlPush:
    """Inserts into the table of one queue, inside a transaction of the caller."""

    def __init__(self, table: Table, now: ColumnElement[int]) -> None:
        self._table = table
        self._now = now

    def insert(self, connection: Connection, messages: Sequence[GqOutgoing], token: str) -> list[int]:
        """Store messages in order; their ids."""
        if connection.dialect.name == "postgresql":
            return self._insert_arrays(connection, messages, token)
        return self._insert_rows(connection, messages, token)

    def pushed(self, connection: Connection, token: str) -> list[int]:
        """The ids of what was stored with a token."""
        columns = self._table.c
        wanted = select(columns.id).where(columns.push_token == token).order_by(columns.id)
        return list(connection.execute(wanted).scalars())

    def _insert_arrays(self, connection: Connection, messages: Sequence[GqOutgoing], token: str) -> list[int]:
        # A column is one parameter: a statement with a row of parameters for each message takes the driver
        # ten times as long to read.
        instants = [_instants(message) for message in messages]
        columns = {
            "payloads": [message.payload for message in messages],
            "at": [at_ms for at_ms, _ in instants],
            "after": [after_ms for _, after_ms in instants],
            "token": token,
        }
        return sorted(connection.execute(_arrays(self._table.name, str(self._now)), columns).scalars())

    def _insert_rows(self, connection: Connection, messages: Sequence[GqOutgoing], token: str) -> list[int]:
        statement = insert(self._table).values(
            payload=bindparam("message_payload"),
            created_at_ms=self._now,
            queued_at_ms=self._now,
            # One of the two is NULL, or both for no deadline.
            deadline_at_ms=func.coalesce(bindparam("at_ms"), self._now + bindparam("after_ms")),
            push_token=token,
        )
        rows: list[dict[str, Any]] = []
        for message in messages:
            at_ms, after_ms = _instants(message)
            rows.append({"message_payload": message.payload, "at_ms": at_ms, "after_ms": after_ms})
        if connection.dialect.insert_returning:
            return sorted(connection.execute(statement.returning(self._table.c.id), rows).scalars())
        connection.execute(statement, rows)
        return self.pushed(connection, token)


def _arrays(table: str, now: str) -> TextClause:
    # Ids are given out after the sorting, so they follow the order of the messages. Nothing from outside is
    # part of the text: the name of the table was checked, the clock is a constant.
    columns = "payload, status, created_at_ms, queued_at_ms, deadline_at_ms, attempts, reason, push_token"
    values = f"payload, '{GqStatus.QUEUED}', {now}, {now}, COALESCE(at_ms, {now} + after_ms), 0, '', :token"
    return text(
        f"INSERT INTO {table} ({columns}) SELECT {values} FROM"  # noqa: S608
        " unnest(CAST(:payloads AS bytea[]), CAST(:at AS bigint[]), CAST(:after AS bigint[]))"
        " WITH ORDINALITY AS batch (payload, at_ms, after_ms, place) ORDER BY place RETURNING id"
    )


def _instants(message: GqOutgoing) -> tuple[int | None, int | None]:
    """The deadline as a moment, or as so long from now; None and None for none."""
    match message.deadline:
        case At(epoch_ms):
            return epoch_ms, None
        case After(ms):
            return None, ms
        case _:
            return None, None
