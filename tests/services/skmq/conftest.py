"""One server and one node for the tests of this folder; a test that harms them starts its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.services.skmq.plain_sockets import Plain
from tests.services.skmq.skmq_node import SkmqNode
from tests.support.real_server import RealServer

Connect = Callable[[], Plain]


@pytest.fixture(scope="session")
def server() -> Iterator[RealServer]:
    """A real server."""
    with RealServer() as running:
        yield running


@pytest.fixture(scope="session")
def node(server: RealServer) -> Iterator[SkmqNode]:
    """A node that retries soon, and waits long for an ack: the machine may be busy."""
    with SkmqNode(
        server.url, retry_times=2, retry_delay=100, ack_timeout=30_000, arrived_wait=200
    ) as running:
        yield running


@pytest.fixture
def connect(node: SkmqNode) -> Iterator[Connect]:
    """Opens connections to the gateway and closes them after the test."""
    opened: list[Plain] = []

    def connect_one() -> Plain:
        opened.append(Plain(node.address))
        return opened[-1]

    yield connect_one
    for each in opened:
        each.close()
