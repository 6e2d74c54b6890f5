"""The sync connection to Redis: raw commands in, one round trip, raw replies out, trouble as our errors.

`execute` never sends a command a second time once bytes may have reached a server; the one exception is a
redirection in a cluster, after which the command surely did not run. StoreUnavailable says in
`maybe_executed` whether a call that failed may have been executed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, assert_never

from mqworker.errors import MqworkerError
from mqworker.store.command import Command, Reply
from mqworker.store.link.address import (
    Cluster,
    Sentinel,
    ServerAddress,
    Standalone,
    UnixSocket,
    describe,
    secrets_of,
)
from mqworker.store.link.cluster_connection import ClusterConnection
from mqworker.store.link.options import Limits, Place, access_of
from mqworker.store.link.pool import Link, LinkPool, open_link
from mqworker.store.link.sentinel import find_primary
from mqworker.store.link.server_errors import FirstWrite, ServerName, each_settled, settled
from mqworker.store.link.subscription import Subscription


class Connection(Protocol):
    """A server, a primary behind sentinels, or a cluster.

    Threads may share it: each concurrent call has a link of its own. A forked child opens its own links.
    """

    def execute(self, commands: Sequence[Command], key: str | None) -> list[Reply]:
        """Send all commands in one round trip to the server that owns `key`, and return their replies.

        NOSCRIPT and MQW_… stand in the list as ReplyError. Anything else that is an error raises
        StoreUnavailable, StoreFull or StoreRefused, after all replies were read. While a cluster moves the
        slot of `key`, commands of one call may run in another order.
        """

    def execute_each(
        self, commands: Sequence[Command], keys: Sequence[str | None]
    ) -> list[Reply | MqworkerError]:
        """Send commands of many callers in one round trip to each server, by the key of each.

        As `execute`, but trouble stands in the place of the command that met it: one caller's key of a
        foreign type is nothing to the others, nor is a shard that does not answer.
        """

    def each_primary(self, commands: Sequence[Command]) -> Mapping[str, list[Reply]]:
        """Send the commands to every primary; the replies by the name of the server."""

    def subscribe(self, channels: Sequence[str]) -> Subscription:
        """Listen to sharded channels, on links apart from those of `execute`."""

    def pools_of(self, keys: Sequence[str]) -> list[tuple[LinkPool, list[str]]]:
        """The servers that own these keys, as of now, each with its own: for links apart from `execute`."""

    def close(self) -> None:
        """Close the idle links. Subscriptions are closed on their own."""


def open_connection(
    address: ServerAddress,
    *,
    connect_timeout_s: float,
    read_timeout_s: float,
    client_name: str | None,
    leaves_hung: bool = False,
) -> Connection:
    """A connection to `address`; the first call opens the first link, so this never fails or blocks.

    `leaves_hung` is for actors, which serve all shards of a cluster in turn: for a node that hangs only the
    first call waits; the others fail at once until it answers a probe.
    """
    limits = Limits(connect_timeout_s, read_timeout_s, client_name)
    name = ServerName(describe(address), secrets_of(address))
    match address:
        case Standalone(place):
            return SingleConnection(_fixed_pool(address, place, limits, name), is_fixed=True)
        case UnixSocket(path):
            return SingleConnection(_fixed_pool(address, path, limits, name), is_fixed=True)
        case Sentinel():
            return SingleConnection(_sentinel_pool(address, limits, name))
        case Cluster():
            return ClusterConnection(address, limits, name, leaves_hung=leaves_hung)
        case _:
            assert_never(address)


class SingleConnection:
    """One server takes everything: standalone, on a unix socket, or the primary that sentinels name."""

    def __init__(self, pool: LinkPool, *, is_fixed: bool = False) -> None:
        """`is_fixed`: no failover leads elsewhere than to this address."""
        self._pool = pool
        self._first = FirstWrite(pool.name) if is_fixed else None

    def execute(self, commands: Sequence[Command], key: str | None) -> list[Reply]:
        """All commands in one round trip."""
        del key  # one server owns them all
        raw = self._pool.exchange(commands)
        if self._first is not None:
            self._first = self._first.judge(commands, raw)
        return settled(raw, self._pool.name)

    def execute_each(
        self, commands: Sequence[Command], keys: Sequence[str | None]
    ) -> list[Reply | MqworkerError]:
        """All commands in one round trip; trouble with the server is everybody's."""
        del keys
        try:
            return each_settled(self._pool.exchange(commands), self._pool.name)
        except MqworkerError as trouble:
            return [trouble] * len(commands)

    def each_primary(self, commands: Sequence[Command]) -> Mapping[str, list[Reply]]:
        """The one server there is."""
        return {self._pool.name.text: self.execute(commands, None)}

    def subscribe(self, channels: Sequence[str]) -> Subscription:
        """Listen to sharded channels."""
        return Subscription(channels, self.pools_of)

    def pools_of(self, keys: Sequence[str]) -> list[tuple[LinkPool, list[str]]]:
        """The one server there is."""
        return [(self._pool, list(keys))]

    def close(self) -> None:
        """Close the idle links."""
        self._pool.close()


def _fixed_pool(address: ServerAddress, place: Place, limits: Limits, name: ServerName) -> LinkPool:
    access = access_of(address)
    return LinkPool(name, lambda: open_link(place, access, limits, name))


def _sentinel_pool(address: Sentinel, limits: Limits, name: ServerName) -> LinkPool:
    access = access_of(address)

    def connect() -> Link:
        # Asked anew for every link: after a failover all old links are dropped, and this finds the primary.
        return open_link(find_primary(address, limits, name), access, limits, name)

    return LinkPool(name, connect)
