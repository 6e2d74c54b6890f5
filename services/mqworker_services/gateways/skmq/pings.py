"""Pings: a recipient that does not answer gets no more pushes until it registers again."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from mqworker.errors import MqworkerError
from mqworker.gateway import NodeClient
from mqworker.log import Logger
from mqworker_services.gateways.skmq.greetings import Greetings

_AT_ONCE = 50


class Pings:
    """Pings the live recipients of some queues."""

    def __init__(self, node: NodeClient, greetings: Greetings, log: Logger) -> None:
        self._node = node
        self._greetings = greetings
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
            is_alive = await self._greetings.renew(host, port)
        if not is_alive:
            self._log.info("skmq_recipient_lost", recipient=key, queue=queue, reason="no pong")
            await self._node.call("skmq_lose", queue, key, f"{host} {port}")
