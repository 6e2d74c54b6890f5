"""The RedisMQ gateway: sockets around sessions, with their limits and time-outs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, cast

from mqworker.gateway import (
    STRANGER_ARGUMENTS,
    STRANGER_BYTES,
    Clock,
    GatewayOptions,
    NodeClient,
    Stranger,
    SystemClock,
    common_names,
    listen,
)
from mqworker_services.gateways.redismq.blocked_pops import BlockedPops
from mqworker_services.gateways.redismq.connection_commands import ConnectionState
from mqworker_services.gateways.redismq.reading_turns import ReadingTurns
from mqworker_services.gateways.redismq.resp import RequestParser, RespLimits
from mqworker_services.gateways.redismq.session import Session, Shared, Tally

_SWEEP_S = 0.5
_MOST_UNSENT_BYTES = 32 * 1024 * 1024
"""Who does not read this much is cut off; long before that nothing more is read from that client."""
_TOO_MANY = b"-ERR max number of clients reached\r\n"
_CLOSING = 0.01
_OF_STRANGERS = RespLimits(
    bulk_bytes=STRANGER_BYTES,
    command_bytes=STRANGER_BYTES,
    arguments=STRANGER_ARGUMENTS,
    inline_bytes=STRANGER_BYTES,
    at_once=1,
)
"""One by one: behind the command that shows who it is, another limit holds."""


class Connection(asyncio.Protocol):
    """One client's socket."""

    def __init__(self, gateway: RedisMqGateway, stranger: Stranger) -> None:
        self._gateway = gateway
        self._stranger = stranger
        self._parser = RequestParser(_OF_STRANGERS)
        self._stranger_bytes = 0
        self._transport: asyncio.Transport | None = None
        self._session: Session | None = None
        self._is_read_paused = False
        self._is_write_paused = False
        self._allowance = float(gateway.options.rate)
        self._joined_at_ms = self._heard_at_ms = self._refilled_at_ms = gateway.now_ms()
        self._has_spoken = False

    # What asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client came; it stays if there is room."""
        self._transport = cast("asyncio.Transport", transport)
        self._session = self._gateway.welcome(self, self._send)
        if self._session is None:
            self._transport.write(_TOO_MANY)
            self._transport.close()
            return
        self._session.known.meet(common_names(transport.get_extra_info("peercert")))
        self._trust_if_known(self._session)

    def data_received(self, data: bytes) -> None:
        """Bytes came."""
        if self._session is None:
            return
        self._heard_at_ms = self._gateway.now_ms()
        if self._session.known.user is None:
            if not self._hear_stranger(self._session, data):
                return
            data = b""
        commands = self._parser.feed(data)
        self._has_spoken = self._has_spoken or bool(commands)
        self._session.take(commands, self._parser.problem)
        if self._gateway.options.rate:
            self._spend(len(commands))
        self._regulate()

    def _hear_stranger(self, session: Session, data: bytes) -> bool:
        """Command by command, until it is known who speaks: whether it is."""
        self._parser.limits = _OF_STRANGERS
        self._stranger_bytes += len(data)
        commands = self._parser.feed(data)
        while commands or self._parser.problem is not None:
            self._has_spoken = True
            session.take(commands, self._parser.problem)
            self._trust_if_known(session)
            if session.known.user is not None or session.known.is_leaving:
                return session.known.user is not None
            commands = self._parser.feed(b"")
        if self._stranger_bytes > STRANGER_BYTES:
            session.take([], f"too much before AUTH; accepted are up to {STRANGER_BYTES} bytes")
        return False

    def _trust_if_known(self, session: Session) -> None:
        if session.known.user is not None:
            self._stranger.leave()
            self._parser.limits = RespLimits(bulk_bytes=self._gateway.options.max_message_bytes)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        """The client is gone."""
        self._stranger.leave()
        if self._session is not None:
            self._session.close()
            self._gateway.dismiss(self)

    def pause_writing(self) -> None:
        """The client does not read its replies: nothing more is read from it meanwhile."""
        self._is_write_paused = True
        self._regulate()

    def resume_writing(self) -> None:
        """It does again."""
        self._is_write_paused = False
        self._regulate()

    # What the gateway calls

    def check(self, now_ms: int) -> None:
        """Close what is silent for too long; let go on what had spent its allowance."""
        options, session = self._gateway.options, self._session
        if session is None or self._transport is None:
            return
        is_stranger = not self._has_spoken or session.known.user is None
        silent_ms = now_ms - self._heard_at_ms
        if self._is_write_paused:
            is_over = silent_ms > options.handshake_s * 1000
        elif not session.is_idle:
            is_over = False  # it waits for us
        elif is_stranger:  # counted from the beginning: a byte now and then buys no more time
            is_over = now_ms - self._joined_at_ms > options.handshake_s * 1000
        elif self._parser.is_in_the_middle:
            is_over = silent_ms > options.handshake_s * 1000
        else:
            is_over = 0 < options.idle_s * 1000 < silent_ms
        if is_over:
            self._gateway.tally.refused += 1
            self._transport.abort()
        elif options.rate:
            self._spend(0)
            self._regulate()

    async def finish(self) -> None:
        """Say what is due and hang up."""
        if self._session is not None and self._transport is not None:
            while not self._session.is_idle:  # noqa: ASYNC110 - replies come from many sides
                await asyncio.sleep(_CLOSING)
            self._transport.close()

    def _send(self, data: bytes) -> None:
        if self._transport is None or self._session is None:
            return
        self._transport.write(data)
        if self._transport.get_write_buffer_size() > _MOST_UNSENT_BYTES:
            self._transport.abort()
        elif self._session.is_over:
            self._transport.close()
        else:
            self._regulate()

    def _spend(self, commands: int) -> None:
        rate, now_ms = self._gateway.options.rate, self._gateway.now_ms()
        refill = (now_ms - self._refilled_at_ms) * rate / 1000
        self._refilled_at_ms = now_ms
        self._allowance = min(float(rate), self._allowance + refill) - commands

    def _regulate(self) -> None:
        """Read from the socket only while there is room for what comes."""
        if self._transport is None or self._session is None or self._transport.is_closing():
            return
        is_spent = bool(self._gateway.options.rate) and self._allowance < 0
        is_full = self._is_write_paused or self._session.is_busy or is_spent
        if is_full != self._is_read_paused:
            self._is_read_paused = is_full
            (self._transport.pause_reading if is_full else self._transport.resume_reading)()


class RedisMqGateway:
    """The gateway; see services/mqworker_services/gateways/redismq/session.py for what a client may say."""

    name = "redismq"

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._connections: set[Connection] = set()
        self._server: asyncio.Server | None = None
        self._sweeping: asyncio.Task[None] | None = None
        self._place = ""
        self._numbers = 0
        self.tally = Tally()

    async def open(self, node: NodeClient, options: GatewayOptions) -> None:
        """Listen."""
        self.options = options
        self._pops = BlockedPops(node)
        self._shared = Shared(node, self._pops, ReadingTurns(node), self.tally)
        self._server, self._place = await listen(options, lambda stranger: Connection(self, stranger))
        self._sweeping = asyncio.create_task(self._sweep())

    async def close(self, grace_ms: int) -> None:
        """Accept no more clients, answer what was asked, close the connections."""
        if self._server is not None:
            self._server.close()
        if self._sweeping is not None:
            self._sweeping.cancel()
        self._pops.close()
        finishing = [asyncio.ensure_future(connection.finish()) for connection in self._connections]
        if finishing:
            await asyncio.wait(finishing, timeout=grace_ms / 1000)

    def facts(self) -> dict[str, Any]:
        """For the status screen."""
        return {
            "listens": self._place,
            "connections": len(self._connections),
            "waiting": len(self._pops),
            "in": self.tally.commands,
            "out": self.tally.replies,
            "refused": self.tally.refused,
        }

    def now_ms(self) -> int:
        """The time, for whatever runs out."""
        return self._clock.monotonic_ms()

    def welcome(self, connection: Connection, send: Callable[[bytes], None]) -> Session | None:
        """A session for a new connection, None when there are too many."""
        if len(self._connections) >= self.options.max_connections:
            self.tally.refused += 1
            return None
        self._numbers += 1
        self._connections.add(connection)
        known = ConnectionState(self.options, self._numbers)
        return Session(known, self._shared, send)

    def dismiss(self, connection: Connection) -> None:
        """A connection ended."""
        self._connections.discard(connection)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_S)
            now_ms = self.now_ms()
            for connection in cast("Iterable[Connection]", list(self._connections)):
                connection.check(now_ms)
