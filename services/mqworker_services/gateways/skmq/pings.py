"""Pings: a recipient that does not answer gets no more pushes until it registers again."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from mqworker.errors import MqworkerError
from mqworker.gateway import NodeClient
from mqworker.log import Logger
from mqworker.queues.skmq.frame import BrokenStream, FrameDecoder, Item, Word, encode_word
from mqworker_services.gateways.skmq.options import SkmqOptions

_AT_ONCE = 50
_READ_BYTES = 1_024


class Pings:
    """Pings the live recipients of some queues."""

    def __init__(self, node: NodeClient, options: SkmqOptions, log: Logger) -> None:
        self._node = node
        self._timeout_s = options.pong_timeout / 1000
        self._log = log
        self._room = asyncio.Semaphore(_AT_ONCE)

    async def round(self, queues: Iterable[str]) -> None:
        """Ping each once; an error of Redis ends the round for that queue."""
        for queue in queues:
            with suppress(MqworkerError):
                recipients: list[Any] = await self._node.call("skmq_recipients", queue)
                alive = [each for each in recipients if each[4]]
                await asyncio.gather(
                    *(self._look_at(queue, key, host, port) for key, host, port, *_ in alive)
                )

    async def _look_at(self, queue: str, key: str, host: str, port: int) -> None:
        async with self._room:
            is_alive = await answers_ping(host, port, self._timeout_s)
        if not is_alive:
            self._log.info("skmq_recipient_lost", recipient=key, queue=queue, reason="no pong")
            await self._node.call("skmq_lose", queue, key, f"{host} {port}")


async def answers_ping(host: str, port: int, timeout_s: float) -> bool:
    """Whether that address answers `pong`."""
    writer: asyncio.StreamWriter | None = None
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(encode_word(Word.PING))
            return await _hears_pong(reader)
    except (OSError, TimeoutError, BrokenStream):
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
