"""Greetings: before anything is pushed to an address, it must have answered `ping` with `pong`.

Whoever registers a recipient chooses where the gateway writes, and the content of a message is somebody's
choice, too: a server of another kind might obey it. `ping` is harmless to all we know, and only a recipient
answers it in the words of the protocol. A greeting holds for some time; the regular pings renew it.
"""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Any

from mqworker.errors import ConfigurationError
from mqworker.queues.skmq.frame import BrokenStream, FrameDecoder, Item, Word, encode_word
from mqworker_services.gateways.skmq.options import SkmqOptions

_READ_BYTES = 1_024
_HOLDS_FOR_HEARTBEATS = 3
_MOST_REMEMBERED = 10_000

Address = tuple[str, int]


class Greetings:
    """Knows which addresses greeted lately. In one event loop."""

    def __init__(self, options: SkmqOptions) -> None:
        self._is_asked = options.greeting == "yes"
        self._pong_s = options.pong_timeout / 1000
        self._connect_s = options.connect_timeout / 1000
        self._holds_s = _HOLDS_FOR_HEARTBEATS * options.heartbeat / 1000
        self._tls = _tls_of(options)
        self._until_s: dict[Address, float] = {}
        self._under_way: dict[Address, asyncio.Task[bool]] = {}
        self._loop = asyncio.get_running_loop()

    def tls_of(self, host: str) -> dict[str, Any]:
        """The arguments for a connection to that host, by TLS or without."""
        return {} if self._tls is None else {"ssl": self._tls, "server_hostname": host}

    async def has_greeted(self, host: str, port: int) -> bool:
        """Whether it may be pushed to; asks once for all who wait. Raises TimeoutError like a connection."""
        address = (host, port)
        if not self._is_asked or self._until_s.get(address, 0.0) > self._loop.time():
            return True
        task = self._under_way.get(address)
        if task is None:
            timeout_s = min(self._connect_s, self._pong_s)
            task = self._under_way[address] = self._loop.create_task(self._greet(address, timeout_s))
            task.add_done_callback(lambda _: self._under_way.pop(address, None))
        return await asyncio.shield(task)

    async def renew(self, host: str, port: int) -> bool:
        """Whether it answers now, within the time that the document gives it."""
        try:
            return await self._greet((host, port), self._pong_s)
        except (OSError, TimeoutError):
            return False

    def forget(self, host: str, port: int) -> None:
        """It did not answer: the next one there has to greet first."""
        self._until_s.pop((host, port), None)

    async def _greet(self, address: Address, timeout_s: float) -> bool:
        is_greeted = await self._answers_ping(address, timeout_s)
        if not is_greeted:
            self.forget(*address)
            return False
        if len(self._until_s) >= _MOST_REMEMBERED:
            self._until_s.clear()
        self._until_s[address] = self._loop.time() + self._holds_s
        return True

    async def _answers_ping(self, address: Address, timeout_s: float) -> bool:
        writer: asyncio.StreamWriter | None = None
        try:
            async with asyncio.timeout(timeout_s):
                reader, writer = await asyncio.open_connection(*address, **self.tls_of(address[0]))
                writer.write(encode_word(Word.PING))
                return await _hears_pong(reader)
        except BrokenStream:
            return False
        finally:
            if writer is not None:
                writer.close()


async def _hears_pong(reader: asyncio.StreamReader) -> bool:
    decoder, items = FrameDecoder(most_bytes=_READ_BYTES), list[Item]()
    while not items:
        data = await reader.read(_READ_BYTES)
        if not data:
            return False
        decoder.feed(data, items.append)
    return items[0] is Word.PONG


def _tls_of(options: SkmqOptions) -> ssl.SSLContext | None:
    if options.push_tls != "yes":
        return None
    path = options.push_tls_ca or None
    try:
        return ssl.create_default_context(cafile=None if path is None else Path(path))
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(
            f"push_tls_ca is {path} ({error}); accepted is a file with certificates, as PEM"
        ) from error
