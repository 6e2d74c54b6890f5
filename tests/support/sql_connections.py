"""Ending the connections of a database from outside, as its administrator or a restart does."""

from __future__ import annotations

from contextlib import suppress

from sqlalchemy import Connection, create_engine, text
from sqlalchemy.exc import OperationalError


def end_connections(url: str) -> None:
    """End every connection to this database but the own."""
    engine = create_engine(url)
    with engine.begin() as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(
                text(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE pid <> pg_backend_pid() AND datname = current_database()"
                )
            )
        else:
            _end_in_mariadb(connection)
    engine.dispose()


def _end_in_mariadb(connection: Connection) -> None:
    others = text(
        "SELECT id FROM information_schema.processlist WHERE id <> CONNECTION_ID() AND db = DATABASE()"
    )
    for id_ in connection.execute(others).scalars().all():
        with suppress(OperationalError):  # it went by itself
            connection.exec_driver_sql(f"KILL {id_}")
