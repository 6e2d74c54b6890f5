"""The store of a command that a person typed."""

from __future__ import annotations

from mqworker.operate.server_url import server_url
from mqworker.settings import Settings
from mqworker.store.link.address import parse_address
from mqworker.store.link.connection import open_connection
from mqworker.store.store import Store

OPERATOR_PATIENCE_MS = 1_000
"""A person waits for the answer: long enough for a hiccup, too short for a failover."""


def connect(settings: Settings, *, retry_for_ms: int = OPERATOR_PATIENCE_MS) -> Store:
    """A store on the server of redis_url, or on the embedded one of this directory if it runs."""
    connection = open_connection(
        parse_address(server_url(settings)),
        connect_timeout_s=settings.connect_timeout_s,
        read_timeout_s=settings.read_timeout_s,
        client_name="mqworker-cli",
    )
    return Store(connection, retry_for_ms=retry_for_ms)
