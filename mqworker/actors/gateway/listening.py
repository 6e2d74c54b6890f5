"""Listening, the same for all gateways that speak over plain sockets: TCP or unix, with TLS if wanted.

Who connects is a stranger until the gateway says otherwise: counted from the moment of connecting, before a
handshake of TLS.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import cast

from mqworker.actors.gateway.strangers import Stranger, Strangers
from mqworker.errors import ConfigurationError
from mqworker.model.gateway_options import LOOPBACK, GatewayOptions, TcpPlace, UnixPlace

_BACKLOG = 512
_PRIVATE_SOCKET = 0o600


NewConnection = Callable[[Stranger], asyncio.Protocol]
"""Makes the protocol of a connection; it calls `leave` of its stranger once it is known, or lost."""


async def listen(options: GatewayOptions, protocol: NewConnection) -> tuple[asyncio.Server, str]:
    """A server at the gateway's place, and where that is: the port may have been the system's choice."""
    loop, tls = asyncio.get_running_loop(), tls_of(options)
    strangers = Strangers(options.max_strangers if options.asks_who else options.max_connections)

    def first() -> asyncio.Protocol:
        return _FirstContact(strangers, protocol, tls, options.handshake_s)

    try:
        if isinstance(options.place, UnixPlace):
            _remove_dead_socket(options.place.path)
            bound = _bound_socket(options.place.path)
            server = await loop.create_unix_server(first, sock=bound, backlog=_BACKLOG)
            return server, str(options.place)
        server = await loop.create_server(first, options.place.host, options.place.port, backlog=_BACKLOG)
    except OSError as error:
        raise cannot_listen(options, error) from error
    host, port = server.sockets[0].getsockname()[:2]
    return server, str(TcpPlace(host, port))


class _FirstContact(asyncio.Protocol):
    """Counts a new connection, speaks TLS with it where that is asked for, and hands it on."""

    def __init__(
        self, strangers: Strangers, protocol: NewConnection, tls: ssl.SSLContext | None, handshake_s: float
    ) -> None:
        self._strangers = strangers
        self._protocol = protocol
        self._tls = tls
        self._handshake_s = handshake_s
        self._stranger: Stranger | None = None
        self._shaking_hands: asyncio.Task[None] | None = None
        self._early: list[bytes] = []
        """Bytes that came together with the end of the handshake."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client came; it stays if there are not too many strangers from there."""
        transport = cast("asyncio.Transport", transport)  # a stream's can be read and written
        self._stranger = self._strangers.admit(peer_host(transport))
        if self._stranger is None:
            transport.abort()
        elif self._tls is None:
            self._hand_on(transport, self._stranger)
        else:
            transport.pause_reading()
            shaking = self._shake_hands(transport, self._tls, self._stranger)
            self._shaking_hands = asyncio.get_running_loop().create_task(shaking)

    def data_received(self, data: bytes) -> None:
        """Keep it for the protocol that takes over the connection."""
        self._early.append(data)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        """It left before it could be handed on."""
        if self._stranger is not None:
            self._stranger.leave()

    async def _shake_hands(
        self, transport: asyncio.Transport, tls: ssl.SSLContext, stranger: Stranger
    ) -> None:
        try:
            secured = await asyncio.get_running_loop().start_tls(
                transport, self, tls, server_side=True, ssl_handshake_timeout=self._handshake_s
            )
        except OSError:  # a time-out and everything that TLS complains of are of this family
            secured = None
        if secured is None or secured.is_closing():
            stranger.leave()
            transport.abort()
        else:
            self._hand_on(secured, stranger)

    def _hand_on(self, transport: asyncio.Transport, stranger: Stranger) -> None:
        protocol = self._protocol(stranger)
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        for data in self._early:
            protocol.data_received(data)


def peer_host(transport: asyncio.BaseTransport) -> str:
    """The address at the other end; the machine's own on a unix socket."""
    peer = transport.get_extra_info("peername")
    return str(peer[0]) if isinstance(peer, tuple) else LOOPBACK


def cannot_listen(options: GatewayOptions, error: OSError) -> ConfigurationError:
    """What to say when the place is taken, or no place at all."""
    reason = os.strerror(error.errno) if error.errno else str(error)
    return ConfigurationError(
        f"gateway {options.name}: cannot listen at {options.place} ({reason}); accepted: a free port or "
        f"path, as in --gateway {options.name}=127.0.0.1:0"
    )


def tls_of(options: GatewayOptions) -> ssl.SSLContext | None:
    """The server's side of TLS, None where none was asked for."""
    if options.tls_certificate is None or options.tls_key is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(options.tls_certificate, options.tls_key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(
            f"gateway_tls_certificate, gateway_tls_key: got {options.tls_certificate} and {options.tls_key} "
            f"({error}); accepted: files with a certificate chain and its private key, as PEM"
        ) from error
    if options.tls_client_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_verify_locations(options.tls_client_ca)
        except (OSError, ssl.SSLError) as error:
            raise ConfigurationError(
                f"gateway_tls_client_ca: got {options.tls_client_ca} ({error}); accepted: a file with the "
                "certificates that sign those of clients, as PEM"
            ) from error
    return context


def _bound_socket(path: str) -> socket.socket:
    """For this user alone, whatever the umask: nobody can connect before it is listened to."""
    bound = socket.socket(socket.AF_UNIX)
    try:
        bound.bind(path)
        if not path.startswith("\0"):
            os.chmod(path, _PRIVATE_SOCKET)  # noqa: PTH101 - as below
    except BaseException:
        bound.close()
        raise
    return bound


def _remove_dead_socket(path: str) -> None:
    """One that a killed gateway left behind; a living one answers, and stays."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            with suppress(FileNotFoundError):
                os.unlink(path)  # noqa: PTH108 - the path may be abstract or relative to anything
        except OSError:
            return
        else:
            raise OSError(98, "in use")
