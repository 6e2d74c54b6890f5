"""How the gRPC server is set up: its limits, and where and how safely it listens."""

from __future__ import annotations

import os
from typing import TypeAlias

import grpc

from mqworker.errors import ConfigurationError
from mqworker.gateway import GatewayOptions, TcpPlace, cannot_listen, tls_of

ChannelOptions: TypeAlias = list[tuple[str, int]]

_ONLY_THIS_USER = 0o177
_ENVELOPE_BYTES = 4_096
"""What a request has besides its payload: names of 512 bytes, and lengths."""
_MOST_CALLS = 2_000
_MOST_CALLS_OF_ONE_CONNECTION = 500
_LARGEST_METADATA_BYTES = 16 * 1024
_LARGEST_ANSWER_BYTES = 8 * 1024 * 1024
_SHORTEST_PING_INTERVAL_MS = 10_000
_MOST_BAD_PINGS = 2


def make_server(options: GatewayOptions, logins: grpc.aio.ServerInterceptor) -> grpc.aio.Server:
    """A server that listens to nothing yet."""
    return grpc.aio.server(
        interceptors=[logins] if options.asks_who else [],
        options=_limits(options),
        maximum_concurrent_rpcs=_MOST_CALLS,
    )


def bind(server: grpc.aio.Server, options: GatewayOptions) -> str:
    """Let the server listen at the gateway's place; where that is: the port may be the system's choice."""
    umask = os.umask(_ONLY_THIS_USER)  # grpcio makes the unix socket, and everybody could connect at once
    try:
        port = _add_port(server, options)
    except (RuntimeError, OSError) as error:  # grpcio says no more than that it failed
        raise cannot_listen(options, OSError(str(error).splitlines()[0])) from error
    finally:
        os.umask(umask)
    return (
        str(TcpPlace(options.place.host, port)) if isinstance(options.place, TcpPlace) else str(options.place)
    )


def _add_port(server: grpc.aio.Server, options: GatewayOptions) -> int:
    if tls_of(options) is None:
        return server.add_insecure_port(str(options.place))
    certificate, key = options.tls_certificate, options.tls_key
    if certificate is None or key is None:  # tls_of has read both
        raise ConfigurationError("gateway_tls_certificate and gateway_tls_key: accepted are both or neither")
    ca = options.tls_client_ca
    credentials = grpc.ssl_server_credentials(
        [(key.read_bytes(), certificate.read_bytes())],
        root_certificates=None if ca is None else ca.read_bytes(),
        require_client_auth=ca is not None,
    )
    return server.add_secure_port(str(options.place), credentials)


def _limits(options: GatewayOptions) -> ChannelOptions:
    limits = [
        ("grpc.max_receive_message_length", options.max_message_bytes + _ENVELOPE_BYTES),
        ("grpc.max_send_message_length", _LARGEST_ANSWER_BYTES),
        ("grpc.max_concurrent_streams", _MOST_CALLS_OF_ONE_CONNECTION),
        # Or calls of a client that keeps to this very limit are refused now and then.
        ("grpc.http.overload_protection", 0),
        ("grpc.max_metadata_size", _LARGEST_METADATA_BYTES),
        ("grpc.absolute_max_metadata_size", _LARGEST_METADATA_BYTES),
        ("grpc.server_handshake_timeout_ms", int(options.handshake_s * 1000)),
        ("grpc.http2.min_ping_interval_without_data_ms", _SHORTEST_PING_INTERVAL_MS),
        ("grpc.http2.max_ping_strikes", _MOST_BAD_PINGS),
        ("grpc.so_reuseport", 0),  # a port in use is to be noticed, not shared
    ]
    if options.idle_s:
        # No limit on the age of a connection: a client that reconnects is a new peer, without subscriptions.
        limits.append(("grpc.max_connection_idle_ms", int(options.idle_s * 1000)))
    return limits
