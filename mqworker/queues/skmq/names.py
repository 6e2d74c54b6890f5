"""SKMQ names and recipients: any id of the protocol as a name that a queue accepts, and back.

Letters, digits and a few signs stay as they are, so that `mqworker queue show skmq.billing` finds what one
expects; every other byte becomes an escape sign and two hexadecimal digits. So two ids never share a name.
A recipient registers itself by such an id, to be sent the messages of an app.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from mqworker.errors import InvalidArgument, InvalidMessage
from mqworker.model.names import MessageId, QueueName, TaskName, shown, whole_number
from mqworker.model.strict_json import JsonLimits, read_json

QUEUE_PREFIX = "skmq."
TO_ONE = TaskName("skmq.queue")
"""The task of a message for one recipient of its app."""
TO_ALL = TaskName("skmq.topic")
"""The task of a message for all recipients of its app; it is split into copies."""
COPY = TaskName("skmq.copy")
"""The task of a topic's message for one recipient, whose key stands in the id."""

_LONGEST_APP = 120
_LONGEST_MESSAGE = 83
_LONGEST_RECIPIENT = 24
_MARK = "~"
_SUFFIX_BY_TASK: dict[str, str] = {TO_ONE: "q", TO_ALL: "t"}

_ODD_IN_QUEUE = re.compile(rb"[^A-Za-z0-9_.]")
_ODD_IN_ID = re.compile(rb"[^A-Za-z0-9_.:@/+-]")
_ESCAPE_IN_QUEUE = re.compile(rb"-(-|[0-9a-f]{2})")
_ESCAPE_IN_ID = re.compile(rb"=([0-9a-f]{2})")
_PLAIN_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:@/+-]{0,82}", re.ASCII)


@lru_cache(maxsize=1_000)
def queue_of_app(app: str) -> QueueName:
    """The work queue that holds the messages of an app."""
    escaped = _ODD_IN_QUEUE.sub(_escaped_for_queue, _bytes("appid", app)).decode()
    if not 1 <= len(escaped) <= _LONGEST_APP:
        raise InvalidArgument(f"appid is {shown(app)}; accepted is a text of up to {_LONGEST_APP} characters")
    return QueueName(QUEUE_PREFIX + escaped)


def app_of_queue(queue: str) -> str:
    """The app id whose queue this is."""
    escaped = queue.removeprefix(QUEUE_PREFIX).encode()
    return _ESCAPE_IN_QUEUE.sub(_unescaped, escaped).decode()


def message_id_of(msgid: str, task: str, suffix: str) -> MessageId:
    """The id of a stored message: the protocol's, and what tells it from an earlier one of the same msgid."""
    suffix = _SUFFIX_BY_TASK[task] + suffix
    if _PLAIN_ID.fullmatch(msgid):
        return MessageId(f"{msgid}{_MARK}{suffix}")
    escaped = _ODD_IN_ID.sub(_escaped_for_id, _bytes("msgid", msgid)).decode()
    if escaped and not (escaped[0].isalnum() or escaped[0] == "_"):
        escaped = f"_{_MARK}{escaped}"  # an id begins with a letter, a digit or _
    if not 1 <= len(escaped) <= _LONGEST_MESSAGE:
        raise InvalidArgument(
            f"msgid is {shown(msgid)}; accepted is a text of up to {_LONGEST_MESSAGE} characters"
        )
    return MessageId(f"{escaped}{_MARK}{suffix}")


def copy_id_of(message: str, recipient_key: str) -> MessageId:
    """The id of a topic's copy for one recipient."""
    return MessageId(f"{message}{_MARK}{recipient_key}")


def copy_field(msgid: str, key: str) -> str:
    """The field of the index for a topic's copy; no msgid holds a line feed."""
    return f"{msgid}\n{key}"


def is_topic(message: str) -> bool:
    """Whether this is the id of a message for all recipients, by the first letter behind the mark."""
    return message.rpartition(_MARK)[2].startswith(_SUFFIX_BY_TASK[TO_ALL])


def msgid_of(message: str, task: str) -> str:
    """The protocol's message id in the id of a stored message."""
    return _unescaped_id(message.rsplit(_MARK, 2 if task == COPY else 1)[0])


def recipient_key_in(copy: str) -> str:
    """The key of the recipient that a copy is for."""
    return copy.rpartition(_MARK)[2]


def recipient_key(recipient: str) -> str:
    """A recipient's id as it stands in keys and in the ids of copies; a long one by its hash."""
    escaped = _ODD_IN_ID.sub(_escaped_for_id, _bytes("id", recipient)).decode()
    if not escaped:
        raise InvalidArgument("id is ''; accepted is the id of a recipient")
    if len(escaped) <= _LONGEST_RECIPIENT:
        return escaped
    return "=" + hashlib.sha256(recipient.encode()).hexdigest()[: _LONGEST_RECIPIENT - 1]


def _unescaped_id(escaped: str) -> str:
    return _ESCAPE_IN_ID.sub(_unescaped, escaped.removeprefix(f"_{_MARK}").encode()).decode()


def _bytes(name: str, text: str) -> bytes:
    try:
        encoded = text.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgument(f"{name} is {shown(text)}; accepted is UTF-8") from error
    if any(byte < ord(" ") for byte in encoded):
        raise InvalidArgument(f"{name} is {shown(text)}; accepted is a text without control characters")
    return encoded


def _escaped_for_queue(odd: re.Match[bytes]) -> bytes:
    return b"--" if odd[0] == b"-" else b"-%02x" % odd[0][0]


def _escaped_for_id(odd: re.Match[bytes]) -> bytes:
    return b"=%02x" % odd[0][0]


def _unescaped(escape: re.Match[bytes]) -> bytes:
    return b"-" if escape[1] == b"-" else bytes([int(escape[1], 16)])


MOST_WEIGHT = 1_000_000

_LIMITS = JsonLimits(most_bytes=16_384)
_HOST = re.compile(r"[A-Za-z0-9_.:%\[\]-]{1,253}", re.ASCII)
_PORT = re.compile(r"[0-9]{1,5}", re.ASCII)
_HIGHEST_PORT = 65_535


@dataclass(frozen=True, slots=True)
class Recipient:
    """A program that listens on a port; a greater weight gets more messages."""

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
