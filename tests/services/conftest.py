"""A server and nodes with gateways, shared by the tests of this folder; queues are named by each test."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from mqworker.queues.work.queue import WorkQueue
from tests.support.messages import open_store
from tests.support.real_node import RealNode
from tests.support.real_server import RealServer


@pytest.fixture(scope="session")
def gateway_server() -> Iterator[RealServer]:
    """A real server that is never flushed: gateways keep queues by name."""
    with RealServer() as server:
        yield server


@pytest.fixture(scope="session")
def redismq_node(gateway_server: RealServer) -> Iterator[RealNode]:
    """A node without workers and with the RedisMQ gateway."""
    with RealNode(gateway_server.url, settings={"MQWORKER_GATEWAYS": "redismq=127.0.0.1:0"}) as node:
        yield node


@pytest.fixture(scope="session")
def redismq_port(redismq_node: RealNode) -> int:
    """Where the gateway listens."""
    return int(redismq_node.facts("gateway:redismq")["listens"].rpartition(":")[2])


@pytest.fixture
def queue(gateway_server: RealServer) -> Iterator[WorkQueue]:
    """A queue of the test's own, seen past the gateway."""
    store = open_store(gateway_server.url)
    yield WorkQueue(f"q{secrets.token_hex(4)}", store)
    store.close()
