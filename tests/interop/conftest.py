"""A server that foreign clients can reach, flushed between tests, and the clients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis
from rsmq import RedisSMQ

from mqworker.queues.rsmq.client import RsmqClient
from tests.interop.rsmq_clients import CannotInstall, NodeRsmq, npm_modules, rsmqctl, rsmqctl_program
from tests.support.messages import open_store
from tests.support.real_server import RealServer

OpenNode = Callable[[], NodeRsmq]
RunRsmqctl = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="session")
def server() -> Iterator[RealServer]:
    """One server for all tests of this folder."""
    with RealServer() as running:
        yield running


@pytest.fixture
def raw(server: RealServer) -> Iterator[redis.Redis]:
    """An empty database, seen by a plain client. Scripts stay: the npm client loads its own only once."""
    with server.client() as client:
        client.flushall()
        yield client


@pytest.fixture
def ours(server: RealServer, raw: redis.Redis) -> Iterator[RsmqClient]:  # noqa: ARG001 - the flush comes first
    """Our client."""
    store = open_store(server.url)
    yield RsmqClient(store)
    store.close()


@pytest.fixture
def python(server: RealServer) -> Iterator[RedisSMQ]:
    """PyRSMQ on a client that gives bytes."""
    with redis.Redis(port=server.port, socket_timeout=10) as client:
        yield RedisSMQ(client=client)


@pytest.fixture
def open_node(server: RealServer, clients: Path) -> Iterator[OpenNode]:
    """Opens npm clients and closes them after the test."""
    try:
        modules = npm_modules(clients)
    except CannotInstall as reason:
        pytest.skip(f"no npm rsmq: {reason}")
    opened: list[NodeRsmq] = []

    def open_one() -> NodeRsmq:
        opened.append(NodeRsmq(modules, server.port))
        return opened[-1]

    yield open_one
    for client in opened:
        client.close()


@pytest.fixture
def node(open_node: OpenNode) -> NodeRsmq:
    """One npm client."""
    return open_node()


@pytest.fixture
def ctl(server: RealServer, clients: Path) -> RunRsmqctl:
    """Runs rsmqctl on the server."""
    try:
        program = rsmqctl_program(clients)
    except CannotInstall as reason:
        pytest.skip(f"no rsmqctl: {reason}")
    return lambda *arguments: rsmqctl(program, server.tcp_url, *arguments)


@pytest.fixture(scope="session")
def clients(request: pytest.FixtureRequest) -> Path:
    """Where fetched clients stay between runs."""
    return request.config.cache.mkdir("rsmq-clients")
