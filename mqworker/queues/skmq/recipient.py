"""SKMQ recipients: who may be sent the messages of an app, as they register themselves."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from mqworker.errors import InvalidArgument, InvalidMessage
from mqworker.model.names import shown, whole_number
from mqworker.model.strict_json import JsonLimits, read_json
from mqworker.queues.skmq.names import queue_of_app, recipient_key

MOST_WEIGHT = 1_000_000

_LIMITS = JsonLimits(most_bytes=16_384)
_HOST = re.compile(r"[A-Za-z0-9_.:%\[\]-]{1,253}", re.ASCII)
_PORT = re.compile(r"[0-9]{1,5}", re.ASCII)
_HIGHEST_PORT = 65_535


@dataclass(frozen=True, slots=True)
class Recipient:
    """Somebody who listens on a port of his own; a greater weight gets more messages."""

    id: str
    app_id: str
    host: str
    port: int
    weight: int = 0

    @property
    def key(self) -> str:
        """Its id as it stands in Redis."""
        return recipient_key(self.id)

    @property
    def queue(self) -> str:
        """The queue whose messages it gets."""
        return queue_of_app(self.app_id)


def parse_recipient(content: bytes) -> Recipient:
    """The recipient in the content of a `register` frame. Raises `InvalidArgument`."""
    try:
        # Any: whatever JSON holds; each field is checked below.
        fields: Any = read_json(content, _LIMITS)
    except InvalidMessage as error:
        raise InvalidArgument(str(error)) from error
    if not isinstance(fields, dict):
        raise InvalidArgument(f"a recipient is {shown(fields)}; accepted is an object")
    recipient = Recipient(
        id=_text("id", fields.get("id")),
        app_id=_text("app_id", fields.get("app_id")),
        host=_host(fields.get("host")),
        port=_port(fields.get("port")),
        weight=whole_number("weight", fields.get("weight", 0), least=0, most=MOST_WEIGHT),
    )
    _ = recipient.key, recipient.queue  # both names can be made
    return recipient


def _text(name: str, value: object) -> str:
    if isinstance(value, str) and value:
        return value
    raise InvalidArgument(f"{name} is {shown(value)}; accepted is a text that is not empty")


def _host(value: object) -> str:
    if isinstance(value, str) and _HOST.fullmatch(value):
        return value
    raise InvalidArgument(f"host is {shown(value)}; accepted is a host name or an address")


def _port(value: object) -> int:
    if isinstance(value, str) and _PORT.fullmatch(value) and 1 <= int(value) <= _HIGHEST_PORT:
        return int(value)
    raise InvalidArgument(f'port is {shown(value)}; accepted is a text from "1" to "{_HIGHEST_PORT}"')
