"""A system as commands and the console see it, on a server that a test begins with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from mqworker.operate.system import System, opened
from mqworker.settings import Settings
from tests.support.real_server import RealServer


@contextmanager
def empty_system(server: RealServer) -> Iterator[System]:
    """The server emptied, and a system on it."""
    with server.client() as client:
        client.flushall()
    with opened(Settings(redis_url=server.url), client_name="mqw-test", retry_for_ms=0) as found:
        yield found
