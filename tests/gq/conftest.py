"""Runs every test of this folder on each store that gq knows: Redis, SQLite, PostgreSQL and MariaDB."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from mqworker.queues.gq.client import GqClient
from tests.gq.databases import Database, MissingServer, Servers


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    """The servers of the session, started when first asked for."""
    with ExitStack() as running:
        yield Servers(running)


@pytest.fixture(params=["redis", "sqlite", "postgresql", "mariadb"])
def database(request: pytest.FixtureRequest, servers: Servers, tmp_path: Path) -> Iterator[Database]:
    """Each database in turn, empty."""
    try:
        opened = servers.open(request.param, tmp_path)
    except MissingServer as missing:
        pytest.skip(str(missing))
    yield opened
    opened.close()


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def sql_database(request: pytest.FixtureRequest, servers: Servers, tmp_path: Path) -> Iterator[Database]:
    """Each SQL database in turn, for what only these offer."""
    try:
        opened = servers.open(request.param, tmp_path)
    except MissingServer as missing:
        pytest.skip(str(missing))
    yield opened
    opened.close()


@pytest.fixture
def client(database: Database) -> GqClient:
    """A client on an empty queue."""
    return database.client
