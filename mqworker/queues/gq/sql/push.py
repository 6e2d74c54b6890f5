"""Storing messages of gq in SQL: one statement for a batch, in the way in which each database is quickest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import Connection, Table, TextClause, and_, bindparam, func, insert, select, text
from sqlalchemy.sql.elements import ColumnElement

from mqworker.model.instant import After, At
from mqworker.queues.gq.database import GqOutgoing
from mqworker.queues.gq.rules import GqStatus

_STATEMENT_BYTES = 4 * 1024 * 1024  # MariaDB takes 16 MiB by default, and bytes may double in SQL


class GqSqlPush:
    """Inserts into the table of one queue, inside a transaction of the caller."""

    def __init__(self, table: Table, now: ColumnElement[int]) -> None:
        self._table = table
        self._now = now

    def insert(self, connection: Connection, messages: Sequence[GqOutgoing], token: str) -> list[int]:
        """Store messages in order; their ids."""
        match connection.dialect.name:
            case "postgresql":
                return self._insert_arrays(connection, messages, token)
            case "sqlite":
                return self._insert_rows(connection, messages, token)
            case _:
                return self._insert_parts(connection, messages, token)

    def pushed(self, connection: Connection, token: str, first: ColumnElement[int] | int = 0) -> list[int]:
        """The ids of what was stored with a token, from an id on."""
        columns = self._table.c
        is_of_push = and_(columns.id >= first, columns.push_token == token)
        wanted = select(columns.id).where(is_of_push).order_by(columns.id)
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
        return sorted(connection.execute(statement.returning(self._table.c.id), rows).scalars())

    def _insert_parts(self, connection: Connection, messages: Sequence[GqOutgoing], token: str) -> list[int]:
        # MySQL returns nothing of an INSERT but the first id; the others follow, perhaps not one by one.
        ids: list[int] = []
        for part in _parts(messages):
            values: dict[str, Any] = {"token": token}
            for place, message in enumerate(part):
                values[f"p{place}"] = message.payload
                values[f"at{place}"], values[f"after{place}"] = _instants(message)
            connection.execute(_rows(self._table.name, str(self._now), len(part)), values)
            ids += self.pushed(connection, token, func.last_insert_id())
        return ids


def _parts(messages: Sequence[GqOutgoing]) -> Iterator[list[GqOutgoing]]:
    """The messages, split where a statement would be longer than MySQL and MariaDB accept."""
    part: list[GqOutgoing] = []
    length = 0
    for message in messages:
        if part and length + len(message.payload) > _STATEMENT_BYTES:
            yield part
            part, length = [], 0
        part.append(message)
        length += len(message.payload)
    if part:
        yield part


# Nothing from outside is part of these texts: the name of the table was checked, the clock is a constant.
_COLUMNS = "payload, status, created_at_ms, queued_at_ms, deadline_at_ms, attempts, reason, push_token"


def _arrays(table: str, now: str) -> TextClause:
    # Ids are given out after the sorting, so they follow the order of the messages.
    values = f"payload, '{GqStatus.QUEUED}', {now}, {now}, COALESCE(at_ms, {now} + after_ms), 0, '', :token"
    return text(
        f"INSERT INTO {table} ({_COLUMNS}) SELECT {values} FROM"  # noqa: S608
        " unnest(CAST(:payloads AS bytea[]), CAST(:at AS bigint[]), CAST(:after AS bigint[]))"
        " WITH ORDINALITY AS batch (payload, at_ms, after_ms, place) ORDER BY place RETURNING id"
    )


@lru_cache(maxsize=64)
def _rows(table: str, now: str, count: int) -> TextClause:
    row = f"(:p#, '{GqStatus.QUEUED}', {now}, {now}, COALESCE(:at#, {now} + :after#), 0, '', :token)"
    rows = (row.replace("#", str(place)) for place in range(count))
    return text(f"INSERT INTO {table} ({_COLUMNS}) VALUES {', '.join(rows)}")  # noqa: S608


def _instants(message: GqOutgoing) -> tuple[int | None, int | None]:
    """The deadline as a moment, or as so long from now; None and None for none."""
    match message.deadline:
        case At(epoch_ms):
            return epoch_ms, None
        case After(ms):
            return None, ms
        case _:
            return None, None
