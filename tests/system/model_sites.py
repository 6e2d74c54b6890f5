"""Fixtures of the tests of other models: a server, databases, and nodes that are gone when a test is over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from mqworker.queues.catalogue import Model
from tests.support.real_mariadb import RealMariadb, mariadb_missing
from tests.support.real_postgres import RealPostgres, postgres_folder
from tests.support.real_server import RealServer
from tests.system.model_node import ModelNode

StartNode = Callable[[Model], ModelNode]
DatabaseOf = Callable[[str], str | None]


@pytest.fixture(scope="module")
def server() -> Iterator[RealServer]:
    """One server for the module."""
    with RealServer() as running:
        yield running


@pytest.fixture(scope="session")
def postgres() -> Iterator[RealPostgres]:
    """One PostgreSQL for all."""
    if postgres_folder() is None:
        pytest.skip("PostgreSQL: no initdb on the PATH or below /usr/lib/postgresql")
    with RealPostgres() as running:
        yield running


@pytest.fixture(scope="session")
def mariadb() -> Iterator[RealMariadb]:
    """One MariaDB for all."""
    if mariadb_missing():
        pytest.skip(mariadb_missing())
    with RealMariadb() as running:
        yield running


@pytest.fixture
def database_of(request: pytest.FixtureRequest, tmp_path: Path) -> DatabaseOf:
    """The URL of an empty database by its kind; None for Redis."""

    def url_of(kind: str) -> str | None:
        if kind in {"postgres", "mariadb"}:
            running: RealPostgres | RealMariadb = request.getfixturevalue(kind)
            return running.new_database()
        return f"sqlite:///{tmp_path}/line.db" if kind == "sqlite" else None

    return url_of


@pytest.fixture
def start(server: RealServer, tmp_path: Path) -> Iterator[StartNode]:
    """Starts nodes."""
    with server.client() as client:
        client.flushall()
    with ExitStack() as nodes:

        def start_node(model: Model) -> ModelNode:
            node = ModelNode(tmp_path, server.url, model)
            nodes.callback(node.stop)
            node.start()
            return node

        yield start_node
