"""Listening, the same for all gateways that speak over plain sockets: TCP or unix, with TLS if wanted."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress

from mqworker.errors import ConfigurationError
from mqworker.model.gateway_options import GatewayOptions, TcpPlace, UnixPlace

_BACKLOG = 512
_PRIVATE_SOCKET = 0o600


async def listen(
    options: GatewayOptions, protocol: Callable[[], asyncio.Protocol]
) -> tuple[asyncio.Server, str]:
    """A server at the gateway's place, and where that is: the port may have been the system's choice."""
    loop, tls = asyncio.get_running_loop(), tls_of(options)
    try:
        if isinstance(options.place, UnixPlace):
            _remove_dead_socket(options.place.path)
            bound = _bound_socket(options.place.path)
            server = await loop.create_unix_server(protocol, sock=bound, ssl=tls, backlog=_BACKLOG)
            return server, str(options.place)
        server = await loop.create_server(
            protocol, options.place.host, options.place.port, ssl=tls, backlog=_BACKLOG
        )
    except OSError as error:
        raise cannot_listen(options, error) from error
    host, port = server.sockets[0].getsockname()[:2]
    return server, str(TcpPlace(host, port))


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
