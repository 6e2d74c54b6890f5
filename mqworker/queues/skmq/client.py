"""A small SKMQ client: send messages to any SIKONG-MQ server, register, and listen for what is pushed.

It stands beside the other queue models because it is alike: the verbs of the document, as a library.
It speaks the protocol alone and needs no Redis; `mqworker serve skmq` is one server for it.
"""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
from collections import deque
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from mqworker.errors import MqworkerError
from mqworker.queues.skmq.frame import (
    DEFAULT_PORT,
    LARGEST_FRAME_BYTES,
    BrokenStream,
    Frame,
    FrameDecoder,
    Item,
    Word,
    encode_frame,
    encode_word,
)

_READ_BYTES = 65_536


class SkmqUnavailable(MqworkerError):
    """Connect again: the server closed the connection, or never answered. What was sent may have happened."""


class SkmqRefused(MqworkerError):
    """Mend the request, or try later: the server's own words. Nothing was stored."""

    def __init__(self, text: str, *, status: str) -> None:
        super().__init__(text)
        self.status = status
        """reject or error."""


@dataclass(frozen=True, slots=True)
class SkmqReply:
    """What the server said to one request."""

    status: str
    """ack, reject or error."""
    content: str

    @property
    def is_duplicate(self) -> bool:
        """Whether a message was dropped because another of the same id is not settled yet."""
        return self.content.startswith("message already exists")


class SkmqClient:
    """One connection to a server. Requests may be sent ahead; replies come in their order."""

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = DEFAULT_PORT,
        *,
        token: str = "",
        tls: ssl.SSLContext | None = None,
        timeout: float = 30.0,
    ) -> None:
        """`token` and `tls` are for servers of ours that ask for them; `timeout` is seconds for an answer."""
        try:
            self._socket = socket.create_connection((host, port), timeout)
            if tls is not None:
                self._socket = tls.wrap_socket(self._socket, server_hostname=host)
        except OSError as error:
            raise SkmqUnavailable(f"{host}:{port}: {error}") from error
        self._decoder = FrameDecoder(most_bytes=LARGEST_FRAME_BYTES)
        self._items: deque[Item] = deque()
        if token:
            self._ask(encode_frame("auth", content=token.encode()))

    def send(self, app: str, msgid: str, content: bytes) -> SkmqReply:
        """Send a message to one recipient of an app; returns when it is stored."""
        return self._ask(encode_frame("queue", appid=app, msgid=msgid, content=content))

    def publish(self, app: str, msgid: str, content: bytes) -> SkmqReply:
        """Send a message to all recipients of an app; returns when it is stored."""
        return self._ask(encode_frame("topic", appid=app, msgid=msgid, content=content))

    def register(self, app: str, recipient: str, host: str, port: int, weight: int = 0) -> SkmqReply:
        """Let the messages of an app be pushed to that address."""
        about = {"id": recipient, "app_id": app, "host": host, "port": str(port), "weight": weight}
        return self._ask(encode_frame("register", content=json.dumps(about).encode()))

    def ack(self, msgid: str, *, recipient: str = "") -> SkmqReply:
        """The message is done. With `recipient`, its own copy of a topic's message."""
        return self._ask(encode_frame("ack", msgid=msgid, rid=recipient))

    def reject(self, msgid: str, *, recipient: str = "") -> SkmqReply:
        """The message should be pushed again."""
        return self._ask(encode_frame("reject", msgid=msgid, rid=recipient))

    def ping(self) -> None:
        """Whether the server is there; raises `SkmqUnavailable` if not."""
        self._write(encode_word(Word.PING))
        if self._next() is not Word.PONG:
            raise SkmqUnavailable("the server answered a ping with something else")

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def __enter__(self) -> Self:
        """As it is."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connection."""
        self.close()

    def _ask(self, frame: bytes) -> SkmqReply:
        self._write(frame)
        item = self._next()
        reply = _reply_of(item) if isinstance(item, Frame) else None
        if reply is None:
            raise SkmqUnavailable(f"the server answered with something else: {item!r}")
        if reply.status != "ack":
            raise SkmqRefused(reply.content or reply.status, status=reply.status)
        return reply

    def _write(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise SkmqUnavailable(str(error)) from error

    def _next(self) -> Item:
        while not self._items:
            try:
                data = self._socket.recv(_READ_BYTES)
                if not data:
                    raise SkmqUnavailable("the server closed the connection")
                self._decoder.feed(data, self._items.append)
            except (OSError, BrokenStream) as error:
                raise SkmqUnavailable(str(error) or "the server did not answer in time") from error
        return self._items.popleft()


def _reply_of(frame: Frame) -> SkmqReply | None:
    with contextlib.suppress(ValueError, TypeError, KeyError):
        content = json.loads(frame.content)
        return SkmqReply(str(content["status"]), str(content["content"]))
    return None
