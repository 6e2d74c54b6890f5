"""Each SQL database in turn, with an empty outbox; a Redis that forgets nothing when it is killed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.gq.databases import MissingServer, Servers
from tests.outbox.places import OutboxPlace
from tests.support.real_server import RealServer


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    """The servers of the session, started when first asked for."""
    with ExitStack() as running:
        yield Servers(running)


@pytest.fixture
def server() -> Iterator[RealServer]:
    """A Redis that syncs every write."""
    with RealServer(aof="always") as running:
        yield running


def url_of(kind: str, servers: Servers, folder: Path) -> str:
    """An empty database; skips, and says why, where there is no server."""
    try:
        match kind:
            case "sqlite":
                return f"sqlite:///{folder}/shop.db"
            case "postgresql":
                return servers.postgres.new_database()
            case _:
                return servers.mariadb.new_database()
    except MissingServer as missing:
        pytest.skip(str(missing))


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def place(
    request: pytest.FixtureRequest, servers: Servers, server: RealServer, tmp_path: Path
) -> Iterator[OutboxPlace]:
    """Each database in turn."""
    opened = OutboxPlace(url_of(request.param, servers, tmp_path), server)
    yield opened
    opened.close()


@pytest.fixture(params=["postgresql", "mariadb"])
def server_place(
    request: pytest.FixtureRequest, servers: Servers, server: RealServer, tmp_path: Path
) -> Iterator[OutboxPlace]:
    """Databases in which two transactions write at once."""
    opened = OutboxPlace(url_of(request.param, servers, tmp_path), server)
    yield opened
    opened.close()
