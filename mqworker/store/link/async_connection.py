"""The asyncio connection to Redis: `connection.py` for producers that live on an event loop.

Same replies, same errors, same promise: nothing is sent twice, redirections in a cluster apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, assert_never

from mqworker.errors import ConfigurationError, MqworkerError
from mqworker.store.command import Command, Reply
from mqworker.store.link.address import (
    Cluster,
    HostPort,
    Sentinel,
    ServerAddress,
    Standalone,
    UnixSocket,
    describe,
    secrets_of,
)
from mqworker.store.link.async_cluster_connection import AsyncClusterConnection
from mqworker.store.link.async_pool import AsyncLink, AsyncLinkPool, open_async_link
from mqworker.store.link.options import Limits, Place, access_of, sentinel_access
from mqworker.store.link.sentinel import no_primary, parse_primary, primary_query, unknown_service
from mqworker.store.link.server_errors import FirstWrite, ServerName, settled


class AsyncConnection(Protocol):
    """A server, a primary behind sentinels, or a cluster. Tasks may share it."""

    async def execute(self, commands: Sequence[Command], key: str | None) -> list[Reply]:
        """Send all commands in one round trip to the server that owns `key`: see `Connection.execute`."""

    async def close(self) -> None:
        """Close the idle links; to be awaited before the event loop ends."""


def open_async_connection(
    address: ServerAddress, *, connect_timeout_s: float, read_timeout_s: float, client_name: str | None
) -> AsyncConnection:
    """A connection to `address`; the first call opens the first link, so this never fails or blocks."""
    limits = Limits(connect_timeout_s, read_timeout_s, client_name)
    name = ServerName(describe(address), secrets_of(address))
    match address:
        case Standalone(place):
            return AsyncSingleConnection(_fixed_pool(address, place, limits, name), is_fixed=True)
        case UnixSocket(path):
            return AsyncSingleConnection(_fixed_pool(address, path, limits, name), is_fixed=True)
        case Sentinel():
            return AsyncSingleConnection(_sentinel_pool(address, limits, name))
        case Cluster():
            return AsyncClusterConnection(address, limits, name)
        case _:
            assert_never(address)


class AsyncSingleConnection:
    """One server takes everything: standalone, on a unix socket, or the primary that sentinels name."""

    def __init__(self, pool: AsyncLinkPool, *, is_fixed: bool = False) -> None:
        """`is_fixed`: no failover leads elsewhere than to this address."""
        self._pool = pool
        self._first = FirstWrite(pool.name) if is_fixed else None

    async def execute(self, commands: Sequence[Command], key: str | None) -> list[Reply]:
        """All commands in one round trip."""
        del key  # one server owns them all
        raw = await self._pool.exchange(commands)
        if self._first is not None:
            self._first = self._first.judge(commands, raw)
        return settled(raw, self._pool.name)

    async def close(self) -> None:
        """Close the idle links."""
        await self._pool.close()


def _fixed_pool(address: ServerAddress, place: Place, limits: Limits, name: ServerName) -> AsyncLinkPool:
    access = access_of(address)
    return AsyncLinkPool(name, limits.read_timeout_s, lambda: open_async_link(place, access, limits, name))


def _sentinel_pool(address: Sentinel, limits: Limits, name: ServerName) -> AsyncLinkPool:
    access = access_of(address)

    async def connect() -> AsyncLink:
        return await open_async_link(await _find_primary(address, limits, name), access, limits, name)

    return AsyncLinkPool(name, limits.read_timeout_s, connect)


async def _find_primary(address: Sentinel, limits: Limits, name: ServerName) -> HostPort:
    reasons: list[str] = []
    for place in address.sentinels:
        sentinel = _sentinel(place, address, limits, name)
        try:
            reply = settled(await sentinel.exchange([primary_query(address)]), sentinel.name)[0]
        except ConfigurationError:
            raise
        except MqworkerError as error:
            reasons.append(str(error))
            continue
        finally:
            await sentinel.close()
        if reply is not None:
            return parse_primary(reply)
        reasons.append(unknown_service(address, place))
    raise no_primary(address, reasons)


def _sentinel(place: HostPort, address: Sentinel, limits: Limits, name: ServerName) -> AsyncLinkPool:
    sentinel_name = ServerName(f"sentinel {place}", name.secrets)
    access = sentinel_access(address)
    return AsyncLinkPool(
        sentinel_name, limits.read_timeout_s, lambda: open_async_link(place, access, limits, sentinel_name)
    )
