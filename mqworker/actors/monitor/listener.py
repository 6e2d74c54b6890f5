"""A small HTTP/1.1 server: GET and HEAD, one request for each connection, and a bound on everything.

It answers probes and scrapes, so it is written to be hard to hurt rather than to be complete: whoever sends
too much, too slowly or something else is told so and let go. Beyond the bound on connections, whoever has
been silent the longest makes room: a client that opens all it can must not make a probe fail.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import parse_qsl, unquote, urlsplit

from mqworker.model.gateway_options import Place, UnixPlace

MOST_CONNECTIONS = 64
LONGEST_HEAD_BYTES = 8_192
HEAD_S = 5.0
"""How long a client may take to send its request."""
TAKE_S = 10.0
"""How long it may take to read the answer."""
_BACKLOG = 512
_CHUNK_BYTES = 65_536
_MOST_FIELDS = 20
TEXT = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked for."""

    path: str
    query: dict[str, str]


@dataclass(frozen=True, slots=True)
class Answer:
    """What is answered."""

    status: HTTPStatus
    body: str
    content_type: str = TEXT


Answerer = Callable[[Request], Awaitable[Answer]]


class Refused(Exception):
    """A request that is not answered, and why."""

    def __init__(self, status: HTTPStatus, why: str) -> None:
        super().__init__(why)
        self.answer = Answer(status, f"{why}\n")


class Listener:
    """Listens at one place and asks `answer` for what to say."""

    def __init__(self, answer: Answerer) -> None:
        self._answer = answer
        self._server: asyncio.Server | None = None
        self._open = 0
        self._silent: dict[asyncio.Timeout, None] = {}
        """The deadlines of those that have not asked yet, the oldest first."""
        self.requests = 0
        self.refused = 0

    async def open(self, place: Place) -> str:
        """Begin; where it listens, for the port may have been the system's choice. Raises OSError."""
        if isinstance(place, UnixPlace):
            self._server = await asyncio.start_unix_server(
                self._serve, place.path, limit=LONGEST_HEAD_BYTES, backlog=_BACKLOG
            )
            return str(place)
        self._server = await asyncio.start_server(
            self._serve, place.host, place.port, limit=LONGEST_HEAD_BYTES, backlog=_BACKLOG
        )
        host, port = self._server.sockets[0].getsockname()[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def close(self) -> None:
        """Take nobody in any more."""
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        # A client that went away, or reads too slowly, is nobody's trouble but its own.
        try:
            with suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
                await self._converse(reader, writer)
        finally:
            self._open -= 1
            writer.transport.abort()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        is_head = False
        try:
            self._make_room()
            head = await self._head_in_time(reader)
            is_head = head.startswith(b"HEAD ")
            answer = await self._answer(parse_request(head))
            self.requests += 1
        except Refused as refused:
            self.refused += 1
            answer = refused.answer
        except TimeoutError:
            self.refused += 1
            answer = Answer(
                HTTPStatus.REQUEST_TIMEOUT, f"no whole request within {HEAD_S:g} s, or before others came\n"
            )
        async with asyncio.timeout(TAKE_S):
            await _send(writer, answer, is_head=is_head)

    def _make_room(self) -> None:
        if self._open <= MOST_CONNECTIONS:
            return
        if not self._silent:
            raise Refused(
                HTTPStatus.SERVICE_UNAVAILABLE, f"more than {MOST_CONNECTIONS} connections; come again"
            )
        oldest = next(iter(self._silent))
        del self._silent[oldest]
        oldest.reschedule(asyncio.get_running_loop().time())

    async def _head_in_time(self, reader: asyncio.StreamReader) -> bytes:
        async with asyncio.timeout(HEAD_S) as deadline:
            self._silent[deadline] = None
            try:
                return await _head(reader)
            finally:
                self._silent.pop(deadline, None)


async def _head(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError:
        raise Refused(
            HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"a request of more than {LONGEST_HEAD_BYTES} bytes"
        ) from None


async def _send(writer: asyncio.StreamWriter, answer: Answer, *, is_head: bool) -> None:
    body = answer.body.encode()
    head = (
        f"HTTP/1.1 {answer.status.value} {answer.status.phrase}\r\nContent-Type: {answer.content_type}\r\n"
        f"Content-Length: {len(body)}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
    writer.write(head.encode())
    # Piece by piece: what a slow reader has not taken yet is not copied.
    for start in range(0, 0 if is_head else len(body), _CHUNK_BYTES):
        writer.write(body[start : start + _CHUNK_BYTES])
        await writer.drain()
    writer.write_eof()
    await writer.drain()
    writer.close()
    await writer.wait_closed()


def parse_request(head: bytes) -> Request:
    """The request of a head; raises Refused. Pure."""
    line = head.partition(b"\r\n")[0].decode("latin-1")
    method, _, rest = line.partition(" ")
    target, _, version = rest.rpartition(" ")
    if not (version.startswith("HTTP/1.") and target.startswith("/")):
        raise Refused(HTTPStatus.BAD_REQUEST, "not a request of HTTP/1.1, such as GET /metrics HTTP/1.1")
    if method not in {"GET", "HEAD"}:
        raise Refused(HTTPStatus.METHOD_NOT_ALLOWED, "accepted are GET and HEAD")
    try:
        parts = urlsplit(target)
        query = dict(parse_qsl(parts.query, keep_blank_values=True, max_num_fields=_MOST_FIELDS))
    except ValueError:
        raise Refused(HTTPStatus.BAD_REQUEST, "a target that is not a URL") from None
    return Request(unquote(parts.path, errors="replace"), query)
