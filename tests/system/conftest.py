"""What the tests of commands share: a server for each module, and a command line on it once it is empty."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.command_line import CommandLine
from tests.support.real_server import RealServer


@pytest.fixture(scope="module")
def server() -> Iterator[RealServer]:
    with RealServer() as running:
        yield running


@pytest.fixture
def line(server: RealServer) -> Iterator[CommandLine]:
    with server.client() as client:
        client.flushall()
    line = CommandLine(server)
    yield line
    line.store.close()
