"""The GOMQ gateway: gRPC outwards, the node inwards. What happens to topics is decided at the node.

Many clients' calls that come in one turn of the event loop travel to the broker in one mail, and from there
to Redis in one round trip.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from mqworker.errors import ConfigurationError, MqworkerError, StoreUnavailable
from mqworker.gateway import CONSUME, GatewayCallFailed, GatewayOptions, GatewayUser, NodeClient, TcpPlace
from mqworker.log import get_logger
from mqworker_services.gateways.gomq.call_batcher import CallBatcher
from mqworker_services.gateways.gomq.client_calls import PEER_ID
from mqworker_services.gateways.gomq.listening import bind, make_server
from mqworker_services.gateways.gomq.logins import UNAUTHENTICATED, Logins, user_in
from mqworker_services.gateways.gomq.methods import METHODS, SERVICE, Method, NodeCall, status_of
from mqworker_services.gateways.gomq.peers import PeerLimits, peer_name
from mqworker_services.gateways.gomq.stranger_sockets import StrangerSockets

Handler = Callable[[bytes, "Context"], Awaitable[bytes]]
Context = grpc.aio.ServicerContext[bytes, bytes]

_OBSERVED_AT_ONCE = 16
"""Answers to Observe are large, and those of one turn travel in one mail."""
_SWEEP_EVERY_S = 0.25
_FAILED = (("gomq-code", "-1"),)
"""A response cannot go with an error, so the document's code does in this way."""
_OPEN_SERVICES = ("", SERVICE)
_ASK_AGAIN_S = 1.0
_LISTEN_AGAIN_S = 0.2
_UNLIMITED = nullcontext()


class GomqGateway:
    """The gateway; see the module's first lines."""

    name = "gomq"

    def __init__(self) -> None:
        self._log = get_logger(gateway=self.name)
        self._refusal: str | None = None
        self._place = ""
        self._calls = dict.fromkeys(METHODS, 0)
        self._answered = 0
        self._refused = 0
        self._peers = PeerLimits(0, 0)
        self._is_listening = False
        self._is_closing = False
        self._rebuilt = 0
        self._sockets: StrangerSockets | None = None

    async def open(self, node: NodeClient, options: GatewayOptions) -> None:
        """Listen."""
        self._options = options
        self._node = CallBatcher(node)
        self._observing = asyncio.Semaphore(_OBSERVED_AT_ONCE)
        self._health = health.aio.HealthServicer()
        self._peers = PeerLimits(options.max_connections, options.rate)
        self._now_s = asyncio.get_running_loop().time
        self._server = await self._listen(options)
        if isinstance(options.place, TcpPlace):
            # The port may have been the system's choice; clients that come back look for this one.
            port = int(self._place.rpartition(":")[2])
            self._options = replace(options, place=TcpPlace(options.place.host, port))
            if options.asks_who:
                self._sockets = StrangerSockets(port, options.max_strangers, options.handshake_s)
        for service in _OPEN_SERVICES:
            await self._health.set(service, health_pb2.HealthCheckResponse.SERVING)
        self._checking = asyncio.ensure_future(self._check_topics())
        self._listening = asyncio.ensure_future(self._keep_listening())
        self._sweeping = asyncio.ensure_future(self._end_strangers())
        self._log.info("gateway_listening", place=self._place)

    async def close(self, grace_ms: int) -> None:
        """Take no more calls, finish those that were begun."""
        self._checking.cancel()
        self._sweeping.cancel()
        self._is_closing = True  # and not a cancelled wait, which would cancel the server's own end
        await self._health.enter_graceful_shutdown()
        await self._server.stop(grace_ms / 1000)

    def facts(self) -> dict[str, Any]:
        """For the status screen."""
        self._peers.forget_silent(self._now_s())
        return {
            "listens": self._place,
            "is_listening": self._is_listening,
            "rebuilt": self._rebuilt,
            "connections": len(self._peers),
            "in": sum(self._calls.values()),
            "out": self._answered,
            "refused": self._refused,
        } | {method.lower(): count for method, count in self._calls.items()}

    async def _listen(self, options: GatewayOptions) -> grpc.aio.Server:
        server = make_server(options, Logins(options, self._count_refused))
        server.add_generic_rpc_handlers((self._handlers(),))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        self._place = bind(server, options)
        await server.start()
        self._is_listening = True
        return server

    async def _keep_listening(self) -> None:
        """Build a new listener when it ended unasked.

        One call whose path is not UTF-8 ends the loop of grpcio's server, and with it the listener and every
        connection; the process lives on and would answer no call.
        """
        while True:
            reason = await _end_of(self._server)
            self._is_listening = False
            if self._is_closing:
                return
            self._rebuilt += 1
            self._log.error("gateway_listener_ended", reason=reason, rebuilt=self._rebuilt)
            while not self._is_listening and not self._is_closing:
                try:
                    self._server = await self._listen(self._options)
                except ConfigurationError as error:  # the place is not free yet, or taken by somebody else
                    self._log.warning("gateway_not_listening", reason=str(error))
                    await asyncio.sleep(_LISTEN_AGAIN_S)
            self._log.info("gateway_listening", place=self._place)

    def _handlers(self) -> grpc.GenericRpcHandler:
        # No (de)serializers: a broken request is the client's error and not ours, see methods.py.
        handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
            name: grpc.unary_unary_rpc_method_handler(partial(self._serve, name, method))
            for name, method in METHODS.items()
        }
        return grpc.method_handlers_generic_handler(SERVICE, handlers)

    async def _serve(self, name: str, method: Method, data: bytes, context: Context) -> bytes:
        self._calls[name] += 1
        user, peer = await self._admitted(context)
        try:
            async with self._observing if name == "Observe" else _UNLIMITED:
                call = method.read(data, peer)
                if not user.is_unlimited:
                    await self._check_permission(method, call, user, context)
                answer = await self._node.call(*call)
        except MqworkerError as error:
            await self._refuse(context, error)
        self._answered += 1
        return method.respond(answer).SerializeToString()

    async def _admitted(self, context: Context) -> tuple[GatewayUser, str]:
        """The user and the name of the peer, if it may call."""
        told = context.peer()
        is_asked, is_nameless = self._options.asks_who, told.startswith("unix")
        metadata = _metadata_of(context) if is_asked or is_nameless else {}
        user = user_in(self._options, metadata, context) if is_asked else self._options.newcomer()
        if user is None:
            self._refused += 1
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, UNAUTHENTICATED)
        if self._sockets is not None:
            self._sockets.know(told)
        # The sockets of one machine have no addresses: a name of one user's is none of another's.
        peer = peer_name(told, metadata.get(PEER_ID), user.name if is_asked else None)
        reason = self._peers.refusal(peer, self._now_s())
        if reason is not None:
            self._refused += 1
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, reason)
        if self._refusal is not None:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, self._refusal)
        return user, peer

    async def _check_permission(
        self, method: Method, call: NodeCall, user: GatewayUser, context: Context
    ) -> None:
        topic = method.topic(call)
        if user.may_somewhere(CONSUME) if topic is None else user.may(method.permission, topic):
            return
        self._refused += 1
        about = "anything" if topic is None else f"key {topic[:128]!r}"
        await context.abort(
            grpc.StatusCode.PERMISSION_DENIED,
            f"user {user.name} may not {method.permission} on {about}; see the users of this gateway",
        )

    def _count_refused(self) -> None:
        self._refused += 1

    async def _end_strangers(self) -> None:
        """Close connections on which nobody has shown who it is."""
        while self._sockets is not None:
            await asyncio.sleep(_SWEEP_EVERY_S)
            self._refused += self._sockets.sweep(self._now_s())

    async def _refuse(self, context: Context, error: MqworkerError) -> NoReturn:
        self._refused += 1
        status, text = status_of(error)
        if status is grpc.StatusCode.INTERNAL:
            self._log.error("gateway_call_failed", reason=str(error))
        await context.abort(status, text, _FAILED if isinstance(error, StoreUnavailable) else ())

    async def _check_topics(self) -> None:
        """Whether there can be topics at all; on a cluster everybody is told why not."""
        while True:
            try:
                await self._node.call("check_topics")
            except StoreUnavailable:
                await asyncio.sleep(_ASK_AGAIN_S)
            except GatewayCallFailed as error:
                if error.kind == ConfigurationError.__name__:
                    self._refusal = str(error)
                self._log.error("gateway_refused", reason=str(error))
                return
            else:
                return


async def _end_of(server: grpc.aio.Server) -> str:
    """Wait until a server has ended; why."""
    try:
        await server.wait_for_termination()
    except Exception as error:  # noqa: BLE001 - grpcio raises what its loop ended with, whatever that is
        return f"{type(error).__name__}: {error}"
    return "it ended without an error"


def _metadata_of(context: Context) -> dict[str, str]:
    return {key: value for key, value in context.invocation_metadata() or () if isinstance(value, str)}
