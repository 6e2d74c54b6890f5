"""One server and one node for the tests of this folder; a test that harms them starts its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import redis

from tests.services.gomq.gomq_node import Foreign, GomqNode
from tests.support.real_server import RealServer

Connect = Callable[[], Foreign]


@pytest.fixture(scope="session")
def server() -> Iterator[RealServer]:
    """A real server."""
    with RealServer() as running:
        yield running


@pytest.fixture(scope="session")
def node(server: RealServer) -> Iterator[GomqNode]:
    """A real node with a gateway."""
    with GomqNode(server.url) as running:
        yield running


@pytest.fixture
def raw(server: RealServer) -> Iterator[redis.Redis]:
    """An empty database, seen by a plain client."""
    with server.client() as client:
        client.flushall()
        yield client


@pytest.fixture
def connect(node: GomqNode, raw: redis.Redis) -> Iterator[Connect]:  # noqa: ARG001 - the flush comes first
    """Opens foreign clients and closes them after the test."""
    opened: list[Foreign] = []

    def connect_one() -> Foreign:
        opened.append(Foreign(node.target))
        return opened[-1]

    yield connect_one
    for client in opened:
        client.close()
