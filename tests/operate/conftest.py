"""A real server, flushed between tests, and a system on it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mqworker.operate.system import System
from tests.support.real_server import RealServer
from tests.support.systems import empty_system


@pytest.fixture(scope="session")
def server() -> Iterator[RealServer]:
    with RealServer() as running:
        yield running


@pytest.fixture
def system(server: RealServer) -> Iterator[System]:
    with empty_system(server) as found:
        yield found
