"""The servers that the tests of this folder share: one for the session, flushed between tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from mqworker import App
from mqworker.queues.work.queue import WorkQueue
from mqworker.settings import Settings
from mqworker.store.link.address import parse_address
from mqworker.store.link.connection import Connection, open_connection
from mqworker.store.store import Store
from tests.support.messages import open_store
from tests.support.raw_queue import RawQueue
from tests.support.real_server import RealServer

Connect = Callable[[str], Connection]


@pytest.fixture(scope="session")
def server() -> Iterator[RealServer]:
    """A real server on a unix socket; a test that harms its server starts one of its own."""
    with RealServer() as running:
        yield running


@pytest.fixture(autouse=True)
def _flushed(server: RealServer) -> None:
    with server.client() as client:
        client.flushall()


@pytest.fixture
def connection(server: RealServer, connect: Connect) -> Connection:
    """A connection to the shared server."""
    return connect(server.url)


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Opens connections with short time-outs and closes them after the test."""
    opened: list[Connection] = []

    def connect_to(url: str) -> Connection:
        opened.append(
            open_connection(
                parse_address(url), connect_timeout_s=2.0, read_timeout_s=1.0, client_name="mqw-test"
            )
        )
        return opened[-1]

    yield connect_to
    for connection in opened:
        connection.close()


@pytest.fixture
def store(server: RealServer) -> Iterator[Store]:
    """A store on the shared server."""
    opened = open_store(server.url)
    yield opened
    opened.close()


@pytest.fixture
def app(server: RealServer) -> Iterator[App]:
    """An app on the shared server; a module whose app has other settings has its own."""
    made = App("shop", settings=Settings(redis_url=server.url))
    yield made
    made.close()


@pytest.fixture
def queue(store: Store) -> WorkQueue:
    """A queue in it; a module that needs another one has its own."""
    return WorkQueue("q", store)


@pytest.fixture
def raw(server: RealServer, queue: WorkQueue) -> Iterator[RawQueue]:
    """The keys of that queue."""
    with server.client() as client:
        yield RawQueue(client, queue.calls.keys)
