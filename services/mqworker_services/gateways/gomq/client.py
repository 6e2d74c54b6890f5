"""A small client for GOMQ: `GomqClient`, and `AsyncGomqClient` with the same verbs, awaited.

    with GomqClient("127.0.0.1:10001") as client:
        client.subscribe("user.created", "mailer")
        client.publish("user.created", b"7")
        for record in client.observe("mailer"): ...

The server knows a client by its connection, so each has one of its own. When it was lost, what this client
had subscribed to is subscribed to again before the next `observe`; what waited for the old one is gone.
"""

from __future__ import annotations

from types import TracebackType
from typing import Self

import grpc

from mqworker_services.gateways.gomq import client_calls as calls
from mqworker_services.gateways.gomq.client_calls import Record
from mqworker_services.gateways.gomq.methods import METHODS


class GomqClient:
    """One connection, blocking. Not for several threads at once."""

    def __init__(
        self,
        target: str = calls.DEFAULT_TARGET,
        *,
        token: str | None = None,
        credentials: grpc.ChannelCredentials | None = None,
        timeout_s: float = calls.DEFAULT_TIMEOUT_S,
    ) -> None:
        """`target` is `host:port` or `unix:path`; with `credentials` the connection is TLS."""
        if credentials is None:
            self._channel = grpc.insecure_channel(target, options=calls.CHANNEL_OPTIONS)
        else:
            self._channel = grpc.secure_channel(target, credentials, options=calls.CHANNEL_OPTIONS)
        self._methods: dict[str, grpc.UnaryUnaryMultiCallable[bytes, bytes]] = {
            method: self._channel.unary_unary(calls.method_path(method)) for method in METHODS
        }
        self._metadata = calls.metadata_of(token)
        self._timeout_s = timeout_s
        self._subscriptions: set[tuple[str, str]] = set()
        self._is_stale = False
        self._was_ready = False
        self._channel.subscribe(self._note_state)

    def publish(self, key: str, payload: bytes | str) -> None:
        """Append a payload to a key; when this returns, it is stored."""
        self._call("Publish", calls.publish_request(key, payload))

    def subscribe(self, key: str, consumer: str) -> None:
        """Listen to a key under a consumer id."""
        self._call("Subscribe", calls.subscription(key, consumer))
        self._subscriptions.add((key, consumer))

    def unsubscribe(self, key: str, consumer: str) -> None:
        """End listening, for all peers of the consumer id."""
        self._call("Unsubscribe", calls.subscription(key, consumer))
        self._subscriptions.discard((key, consumer))

    def observe(self, consumer: str) -> list[Record]:
        """Take the oldest records, up to 50 of each key."""
        if self._is_stale:
            self._is_stale = False
            for key, each in sorted(self._subscriptions):
                self.subscribe(key, each)
        return calls.records_of(self._call("Observe", calls.observe_request(consumer)))

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _call(self, method: str, request: bytes) -> bytes:
        try:
            return self._methods[method](request, timeout=self._timeout_s, metadata=self._metadata)
        except grpc.RpcError as error:
            raise calls.error_of(error) from error

    def _note_state(self, state: grpc.ChannelConnectivity) -> None:
        is_ready = state is grpc.ChannelConnectivity.READY
        self._is_stale = self._is_stale or (self._was_ready and not is_ready)
        self._was_ready = is_ready


class AsyncGomqClient:
    """One connection, for one event loop."""

    def __init__(
        self,
        target: str = calls.DEFAULT_TARGET,
        *,
        token: str | None = None,
        credentials: grpc.ChannelCredentials | None = None,
        timeout_s: float = calls.DEFAULT_TIMEOUT_S,
    ) -> None:
        """As `GomqClient`."""
        if credentials is None:
            self._channel = grpc.aio.insecure_channel(target, options=calls.CHANNEL_OPTIONS)
        else:
            self._channel = grpc.aio.secure_channel(target, credentials, options=calls.CHANNEL_OPTIONS)
        self._methods: dict[str, grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]] = {
            method: self._channel.unary_unary(calls.method_path(method)) for method in METHODS
        }
        self._metadata = calls.metadata_of(token)
        self._timeout_s = timeout_s
        self._subscriptions: set[tuple[str, str]] = set()

    async def publish(self, key: str, payload: bytes | str) -> None:
        """Append a payload to a key; when this returns, it is stored."""
        await self._call("Publish", calls.publish_request(key, payload))

    async def subscribe(self, key: str, consumer: str) -> None:
        """Listen to a key under a consumer id."""
        await self._call("Subscribe", calls.subscription(key, consumer))
        self._subscriptions.add((key, consumer))

    async def unsubscribe(self, key: str, consumer: str) -> None:
        """End listening, for all peers of the consumer id."""
        await self._call("Unsubscribe", calls.subscription(key, consumer))
        self._subscriptions.discard((key, consumer))

    async def observe(self, consumer: str) -> list[Record]:
        """Take the oldest records, up to 50 of each key."""
        if self._subscriptions and self._channel.get_state() is not grpc.ChannelConnectivity.READY:
            for key, each in sorted(self._subscriptions):
                await self.subscribe(key, each)
        return calls.records_of(await self._call("Observe", calls.observe_request(consumer)))

    async def close(self) -> None:
        """Close the connection."""
        await self._channel.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _call(self, method: str, request: bytes) -> bytes:
        try:
            return await self._methods[method](request, timeout=self._timeout_s, metadata=self._metadata)
        except grpc.RpcError as error:
            raise calls.error_of(error) from error
