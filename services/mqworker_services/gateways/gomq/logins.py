"""Logins: who calls, by its token or its certificate; a stranger is refused before the body is read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, TypeAlias

import grpc

from mqworker.gateway import GatewayOptions, GatewayUser
from mqworker_services.gateways.gomq.methods import SERVICE

UNAUTHENTICATED = "authorization: accepted is 'Bearer' and the token of a user of this gateway"
_PAUSE_FOR_STRANGERS_S = 0.2
_COMMON_NAME = "x509_common_name"

Context = grpc.aio.ServicerContext[bytes, bytes]
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"


class Logins(grpc.aio.ServerInterceptor):
    """Looks at the metadata of each call to our service; a probe of its health needs no token."""

    def __init__(self, options: GatewayOptions, on_refused: Callable[[], None]) -> None:
        self._users = options.users
        # A client certificate is seen later, and was verified before.
        self._is_asking = bool(options.users.users) and options.tls_client_ca is None
        self._on_refused = on_refused

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """The handler of the call, or one that refuses it: made as for a stream, so it reads nothing."""
        if self._is_asking and handler_call_details.method.startswith(f"/{SERVICE}/"):
            metadata = dict(handler_call_details.invocation_metadata or ())
            if self._users.by_token(bearer(metadata)) is None:
                return grpc.stream_stream_rpc_method_handler(self._refuse)
        return await continuation(handler_call_details)

    async def _refuse(self, _requests: AsyncIterator[bytes], context: Context) -> None:
        self._on_refused()
        await asyncio.sleep(_PAUSE_FOR_STRANGERS_S)
        await context.abort(grpc.StatusCode.UNAUTHENTICATED, UNAUTHENTICATED)


def user_in(options: GatewayOptions, metadata: Mapping[str, str], context: Context) -> GatewayUser | None:
    """The user by the certificate of the connection, else by the token of the call."""
    names = context.auth_context().get(_COMMON_NAME, ()) if options.tls_client_ca is not None else ()
    known = options.newcomer([name.decode(errors="replace") for name in names])
    return known or options.users.by_token(bearer(metadata))


def bearer(metadata: Mapping[str, str | bytes]) -> bytes:
    """The token in the metadata of a call; empty where there is none."""
    value = metadata.get("authorization", "")
    scheme, _, token = value.partition(" ") if isinstance(value, str) else ("", "", "")
    return token.strip().encode() if scheme.lower() == "bearer" else b""
