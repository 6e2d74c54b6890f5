"""The SKMQ gateway as its process sees it: opened, asked how it is, closed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

from mqworker.errors import MqworkerError
from mqworker.gateway import GatewayOptions, NodeClient, OnDelivery, Stranger, WorkSource, listen
from mqworker.log import get_logger
from mqworker_services.gateways.skmq.connection import Connection, Timeouts
from mqworker_services.gateways.skmq.deliveries import Deliveries
from mqworker_services.gateways.skmq.greetings import Greetings
from mqworker_services.gateways.skmq.options import SkmqOptions, options_of, read_conf
from mqworker_services.gateways.skmq.pings import Pings
from mqworker_services.gateways.skmq.pushes import Push
from mqworker_services.gateways.skmq.request_handler import RequestHandler

_LOOK_FOR_QUEUES_S = 1.0
_CLOSE_SLOW_EVERY_S = 1.0
_GRACE_FOR_SETTLING = 0.6
"""Of the time to close in, this part is spent waiting for acks."""


class SkmqGateway:
    """Takes messages in over TCP, pushes them to recipients, and passes on what they say."""

    name = "skmq"

    def __init__(self) -> None:
        self._log = get_logger(actor="gateway:skmq")
        self._make_work: Callable[[OnDelivery], WorkSource] | None = None
        self._work: WorkSource | None = None
        self._queues: set[str] = set()
        self._rounds: list[asyncio.Task[None]] = []
        self._place = ""

    def take_work(self, work_source: Callable[[OnDelivery], WorkSource]) -> None:
        """It works for the queues of all apps."""
        self._make_work = work_source

    async def open(self, node: NodeClient, options: GatewayOptions) -> None:
        """Listen, and look for work."""
        self._node, self._gateway_options = node, options
        self._options = _options(options)
        greetings = Greetings(self._options)
        self._deliveries = Deliveries(node, self._options, self._log, greetings, self._outwards)
        self._handler = RequestHandler(node, options, self._options, self._deliveries, self._work_for)
        if self._make_work is not None:
            self._work = self._make_work(self._deliveries.take)
            self._deliveries.take_from(self._work)
        self._server, self._place = await listen(options, self._inwards)
        pings = Pings(node, greetings, self._log)
        self._rounds = [
            _every(_LOOK_FOR_QUEUES_S, self._look_for_queues),
            _every(_CLOSE_SLOW_EVERY_S, self._close_slow_connections),
            _every(self._options.heartbeat / 1000, lambda: pings.round(sorted(self._queues))),
        ]

    async def close(self, grace_ms: int) -> None:
        """Accept no more clients, wait a while for acks, give back what is left, answer what was asked."""
        self._server.close()
        for each in self._rounds:
            each.cancel()
        if self._work is not None:
            for queue in self._queues:
                self._work.open(queue, 0)
        await self._deliveries.close(grace_ms / 1000 * _GRACE_FOR_SETTLING)
        for connection in list(self._handler.connections):
            connection.end()
        await asyncio.sleep(0)

    def facts(self) -> dict[str, Any]:
        """For the status screen."""
        return {
            "listens": self._place,
            "connections": len(self._handler.connections),
            "waiting": self._deliveries.in_flight,
            "in": self._handler.frames,
            "out": self._deliveries.pushed,
            "stored": self._handler.stored,
            "refused": self._handler.refused,
            "acked": self._deliveries.acked,
            "retried": self._deliveries.retried,
            "buried": self._deliveries.buried,
            "apps": len(self._queues),
        }

    # Connections

    def _inwards(self, stranger: Stranger) -> Connection:
        return self._connection(stranger=stranger)

    def _outwards(self, push: Push) -> Connection:
        return self._connection(push=push)

    def _connection(self, *, stranger: Stranger | None = None, push: Push | None = None) -> Connection:
        return Connection(
            self._handler,
            most_bytes=self._options.max_frame,
            names_msgid=self._options.resp_msgid,
            stranger=stranger,
            push=push,
        )

    async def _close_slow_connections(self) -> None:
        timeouts = Timeouts(self._gateway_options.handshake_s, self._gateway_options.idle_s)
        now_s = asyncio.get_running_loop().time()
        for connection in list(self._handler.connections):
            if timeouts.have_passed(
                now_s,
                joined_at_s=connection.joined_at_s,
                heard_at_s=connection.heard_at_s,
                begun_at_s=connection.begun_at_s,
                is_stranger=connection.is_stranger,
                is_waiting_for_us=connection.is_waiting_for_us,
            ):
                connection.abort()

    # Queues

    def _work_for(self, queue: str) -> None:
        if queue not in self._queues:
            self._queues.add(queue)
            if self._work is not None:
                self._work.open(queue, self._options.concurrency)

    async def _look_for_queues(self) -> None:
        """Apps that came by another gateway, or before this one was started."""
        with suppress(MqworkerError):
            for queue in await self._node.call("skmq_queues"):
                self._work_for(queue)


def _options(options: GatewayOptions) -> SkmqOptions:
    """Those of the conf file, and before them those of the command line."""
    given: dict[str, Any] = dict(options.extra)
    conf = given.pop("conf", None)
    from_file, _ = read_conf(Path(conf)) if conf else ({}, None)
    return options_of(from_file | given)


def _every(seconds: float, act: Callable[[], Coroutine[Any, Any, None]]) -> asyncio.Task[None]:
    async def go_round() -> None:
        while True:
            await act()
            await asyncio.sleep(seconds)

    return asyncio.get_running_loop().create_task(go_round())
