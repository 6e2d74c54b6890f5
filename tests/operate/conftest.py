"""A real server, flushed between tests, and a system on it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mqworker.operate.system import System, opened
from mqworker.settings import Settings
from tests.support.real_server import RealServer


@pytest.fixture(scope="session")
def server() -> Iterator[RealServer]:
    with RealServer() as running:
        yield running


@pytest.fixture
def system(server: RealServer) -> Iterator[System]:
    with server.client() as client:
        client.flushall()
    with opened(Settings(redis_url=server.url), client_name="mqw-test", retry_for_ms=0) as found:
        yield found
