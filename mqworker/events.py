"""The recorded events of all queues, for programs that keep, count or show them.

`open_event_streams` finds the server as an `App` does. Blocks are decoded by `decode_block`, or in bulk by
whoever knows a quicker way; model/event.py describes their forms.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from mqworker.model.event import (
    COLUMNS,
    COMPRESSED,
    COMPRESSED_COLUMNS,
    ENQUEUED,
    IDS,
    PLAIN,
    decode_block,
    expand,
)
from mqworker.queues.work.event_stream import BEGINNING, EventStreams, StoredBlock, StreamTail, id_order
from mqworker.settings import Settings
from mqworker.store.embedded.share import ensure_server
from mqworker.store.link.address import parse_address
from mqworker.store.link.connection import open_connection
from mqworker.store.store import Store

__all__ = [
    "BEGINNING",
    "COLUMNS",
    "COMPRESSED",
    "COMPRESSED_COLUMNS",
    "ENQUEUED",
    "IDS",
    "PLAIN",
    "EventStreams",
    "StoredBlock",
    "StreamTail",
    "decode_block",
    "expand",
    "id_order",
    "open_event_streams",
    "with_server",
]


@contextmanager
def open_event_streams(settings: Settings) -> Iterator[EventStreams]:
    """The streams of the server that the settings name, for as long as the block runs."""
    connection = open_connection(
        parse_address(with_server(settings).redis_url or ""),
        connect_timeout_s=settings.connect_timeout_s,
        read_timeout_s=settings.read_timeout_s,
        client_name="mqworker-events",
    )
    store = Store(connection, retry_for_ms=round(settings.retry_for_s * 1000))
    try:
        yield EventStreams(store, settings.namespace)
    finally:
        store.close()


def with_server(settings: Settings) -> Settings:
    """The settings with the URL of the server in them, for processes that run in another directory."""
    return replace(settings, redis_url=settings.redis_url or ensure_server(settings.data_dir))
