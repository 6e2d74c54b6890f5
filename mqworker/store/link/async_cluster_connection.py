"""The asyncio connection to a cluster: `cluster_connection.py` with awaits; `slots.py` decides for both."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from mqworker.errors import ConfigurationError, MqworkerError, StoreUnavailable
from mqworker.store.command import Command, Reply
from mqworker.store.link.address import Cluster, HostPort
from mqworker.store.link.async_pool import AsyncLinkPool, open_async_link
from mqworker.store.link.options import Limits, access_of, table_limits
from mqworker.store.link.server_errors import ServerName, settled, was_executed
from mqworker.store.link.slots import (
    CLUSTER_SLOTS,
    MAX_ROUNDS,
    Send,
    SlotTable,
    commands_of,
    next_sends,
    no_owner,
    no_table,
    parse_slots,
    replies_of,
    shows_stale_table,
    slot_of,
    slotless,
    unsettled,
    wants_pause,
)
from mqworker.store.outage import SLOT_PAUSE_S


class AsyncClusterConnection:
    """Routes by slot. The slot table is asked for at the first call, and again after trouble with a node."""

    def __init__(self, address: Cluster, limits: Limits, name: ServerName) -> None:
        self._address = address
        self._limits = limits
        self._name = name
        self._pool_by_place: dict[HostPort, AsyncLinkPool] = {}
        self._table: SlotTable | None = None
        self._silent: set[HostPort] = set()
        """As in cluster_connection.py."""

    async def execute(self, commands: Sequence[Command], key: str | None) -> list[Reply]:
        """All commands in one round trip to the owner of `key`; without a key, to some primary."""
        place = await self._place_of(key)
        raw = await self._exchange(Send(place, tuple(range(len(commands)))), commands)
        if any(isinstance(reply, Exception) for reply in raw):
            await self._follow_redirections(place, raw, commands)
        return settled(raw, self._pool(place).name)

    async def close(self) -> None:
        """Close the idle links to all nodes."""
        for pool in list(self._pool_by_place.values()):
            await pool.close()

    async def _follow_redirections(
        self, place: HostPort, raw: list[object], commands: Sequence[Command]
    ) -> None:
        """Send again, elsewhere, what was not executed; replaces those replies in `raw`."""
        sends = self._learn(Send(place, tuple(range(len(commands)))), raw)
        for _ in range(MAX_ROUNDS):
            if not sends:
                return
            if wants_pause(raw):
                await asyncio.sleep(SLOT_PAUSE_S)
            following: list[Send] = []
            try:
                for send in sends:
                    following += await self._send_again(send, raw, commands)
            except StoreUnavailable as trouble:
                # Other commands of the call may have run already, at another node.
                trouble.maybe_executed = trouble.maybe_executed or any(map(was_executed, raw))
                raise
            sends = following
        self._table = None
        endless = unsettled(raw, self._name)
        if endless is not None:
            raise endless

    async def _send_again(self, send: Send, raw: list[object], commands: Sequence[Command]) -> list[Send]:
        replies = await self._exchange(send, commands)
        for index, reply in zip(send.indexes, replies, strict=True):
            raw[index] = reply
        return self._learn(send, replies)

    async def _exchange(self, send: Send, commands: Sequence[Command]) -> list[object]:
        try:
            return replies_of(send, await self._pool(send.place).exchange(commands_of(send, commands)))
        except StoreUnavailable:
            self._table = None
            raise

    def _learn(self, send: Send, raw: Sequence[object]) -> list[Send]:
        sends, moves = next_sends(send, raw)
        for slot, place in moves:
            self._table = self._table and self._table.moved(slot, place)
        if shows_stale_table(raw):
            self._table = None
        return sends

    async def _place_of(self, key: str | None) -> HostPort:
        table = self._table or await self._fetch_table()
        self._table = table
        place = table.primaries[0] if key is None else table.owner(slot_of(key))
        if place is None:
            self._table = None
            raise no_owner(self._name)
        return place

    async def _fetch_table(self) -> SlotTable:
        troubles: list[MqworkerError] = []
        places = dict.fromkeys([*self._address.nodes, *self._pool_by_place])
        for place in sorted(places, key=self._silent.__contains__):
            try:
                table = await self._ask_for_table(place, table_limits(self._limits, len(places)))
            except ConfigurationError:
                raise
            except MqworkerError as error:
                self._silent.add(place)
                troubles.append(error)
                continue
            self._silent.discard(place)
            if table.ranges:
                return table
            troubles.append(slotless(place))
        raise no_table(self._name, troubles)

    async def _ask_for_table(self, place: HostPort, limits: Limits) -> SlotTable:
        name, access = self._pool(place).name, access_of(self._address)
        pool = AsyncLinkPool(
            name, limits.read_timeout_s, lambda: open_async_link(place, access, limits, name)
        )
        try:
            return parse_slots(settled(await pool.exchange([CLUSTER_SLOTS]), name)[0], place)
        finally:
            await pool.close()

    def _pool(self, place: HostPort) -> AsyncLinkPool:
        if place not in self._pool_by_place:
            name = ServerName(f"cluster node {place}", self._name.secrets)
            access, limits = access_of(self._address), self._limits
            self._pool_by_place[place] = AsyncLinkPool(
                name, limits.read_timeout_s, lambda: open_async_link(place, access, limits, name)
            )
        return self._pool_by_place[place]
