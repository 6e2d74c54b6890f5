"""Messages and stores for tests, in the fewest words."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

from mqworker.model.clock import SystemClock
from mqworker.model.delivery import Delivery
from mqworker.model.message import Message
from mqworker.model.message_id import MessageIdSource
from mqworker.model.names import MessageId
from mqworker.store.link.address import parse_address
from mqworker.store.link.connection import open_connection
from mqworker.store.store import Store

_ids = MessageIdSource(SystemClock().now_ms)

AN_HOUR_MS = 3_600_000

Option: TypeAlias = Any
"""A field of `Message`: its type depends on which."""


def new_id() -> MessageId:
    """An id that no other message of this process has."""
    return _ids.next()


def a_message(body: bytes = b"body", **options: Option) -> Message:
    """A message with an id of its own, unless one is given."""
    return Message(options.pop("id", None) or new_id(), body, **options)


def some_messages(count: int, **options: Option) -> list[Message]:
    """`count` messages whose bodies count up from b'0'."""
    return [a_message(b"%d" % position, **options) for position in range(count)]


def bodies(deliveries: Iterable[Delivery]) -> list[bytes]:
    """What the messages say, in order."""
    return [delivery.body for delivery in deliveries]


def open_store(url: str, *, retry_for_ms: int = 10_000) -> Store:
    """A store on that server; to be closed by the caller."""
    connection = open_connection(
        parse_address(url), connect_timeout_s=2.0, read_timeout_s=5.0, client_name="mqw-test"
    )
    return Store(connection, retry_for_ms=retry_for_ms)
