"""The sync connection to a cluster: finds the node that owns a key and follows redirections."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from mqworker.errors import ConfigurationError, MqworkerError, StoreUnavailable
from mqworker.model.clock import SystemClock
from mqworker.store.command import Command, Reply
from mqworker.store.link.address import Cluster, HostPort
from mqworker.store.link.hung_server import HungServer
from mqworker.store.link.options import Limits, access_of, table_limits
from mqworker.store.link.pool import Link, LinkPool, open_link
from mqworker.store.link.server_errors import ServerName, each_settled, settled, was_executed
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
from mqworker.store.link.subscription import Subscription
from mqworker.store.outage import SLOT_PAUSE_S

_monotonic_s = SystemClock().monotonic_s


class ClusterConnection:
    """Routes by slot. The slot table is asked for at the first call, and again after trouble with a node."""

    def __init__(
        self, address: Cluster, limits: Limits, name: ServerName, *, leaves_hung: bool = False
    ) -> None:
        """`leaves_hung`: of a node that hangs only the first call waits; see hung_server.py."""
        self._address = address
        self._limits = limits
        self._name = name
        self._leaves_hung = leaves_hung
        self._pool_by_place: dict[HostPort, LinkPool] = {}
        self._guard_by_place: dict[HostPort, HungServer] = {}
        self._table: SlotTable | None = None
        self._silent: set[HostPort] = set()
        """Nodes that did not tell their slots when they were last asked; the others are asked first."""

    def execute(self, commands: Sequence[Command], key: str | None) -> list[Reply]:
        """All commands in one round trip to the owner of `key`; without a key, to some primary."""
        place = self._place_of(key)
        raw = self._exchange(Send(place, tuple(range(len(commands)))), commands)
        if any(isinstance(reply, Exception) for reply in raw):
            self._follow_redirections(place, raw, commands)
        return settled(raw, self._pool(place).name)

    def execute_each(
        self, commands: Sequence[Command], keys: Sequence[str | None]
    ) -> list[Reply | MqworkerError]:
        """One round trip to each node that owns some of the keys."""
        indexes_by_tag: dict[object, list[int]] = {}
        for index, key in enumerate(keys):
            indexes_by_tag.setdefault(self._tag_of(key), []).append(index)
        outcome: dict[int, Reply | MqworkerError] = {}
        for indexes in indexes_by_tag.values():
            some = [commands[index] for index in indexes]
            outcome |= zip(indexes, self._execute_some(some, keys[indexes[0]]), strict=True)
        return [outcome[index] for index in range(len(commands))]

    def _tag_of(self, key: str | None) -> object:
        """Commands of one tag go to one node; while nobody knows which, those of one slot do."""
        try:
            return self._place_of(key)
        except MqworkerError:
            return None if key is None else slot_of(key)

    def _execute_some(self, commands: Sequence[Command], key: str | None) -> Sequence[Reply | MqworkerError]:
        try:
            place = self._place_of(key)
            raw = self._exchange(Send(place, tuple(range(len(commands)))), commands)
            if any(isinstance(reply, Exception) for reply in raw):
                self._follow_redirections(place, raw, commands)
            return each_settled(raw, self._pool(place).name)
        except MqworkerError as trouble:
            return [trouble] * len(commands)

    def each_primary(self, commands: Sequence[Command]) -> Mapping[str, list[Reply]]:
        """Every primary of a freshly asked slot table."""
        self._table = self._fetch_table()
        pools = [self._pool(place) for place in self._table.primaries]
        return {pool.name.text: settled(pool.exchange(commands), pool.name) for pool in pools}

    def attempt_each_primary(self, commands: Sequence[Command]) -> Mapping[str, list[Reply] | MqworkerError]:
        """The same, with the trouble of those that do not answer."""
        self._table = self._fetch_table()
        outcomes: dict[str, list[Reply] | MqworkerError] = {}
        for pool in [self._pool(place) for place in self._table.primaries]:
            try:
                outcomes[pool.name.text] = settled(pool.exchange(commands), pool.name)
            except MqworkerError as error:
                outcomes[pool.name.text] = error
        return outcomes

    def subscribe(self, channels: Sequence[str]) -> Subscription:
        """Listen to sharded channels, each at the node that owns its slot."""
        return Subscription(channels, self.pools_of)

    def pools_of(self, keys: Sequence[str]) -> list[tuple[LinkPool, list[str]]]:
        """The owners of keys or channels, by a slot table that is asked for anew."""
        self._table = None  # asked when subscribing for the first time, and after trouble
        keys_by_place: dict[HostPort, list[str]] = {}
        for key in keys:
            keys_by_place.setdefault(self._place_of(key), []).append(key)
        return [(self._pool(place), wanted) for place, wanted in keys_by_place.items()]

    def close(self) -> None:
        """Close the idle links to all nodes."""
        for guard in list(self._guard_by_place.values()):
            guard.close()
        for pool in list(self._pool_by_place.values()):
            pool.close()

    def _follow_redirections(self, place: HostPort, raw: list[object], commands: Sequence[Command]) -> None:
        """Send again, elsewhere, what was not executed; replaces those replies in `raw`."""
        sends = self._learn(Send(place, tuple(range(len(commands)))), raw)
        for _ in range(MAX_ROUNDS):
            if not sends:
                return
            if wants_pause(raw):
                time.sleep(SLOT_PAUSE_S)
            following: list[Send] = []
            try:
                for send in sends:
                    following += self._send_again(send, raw, commands)
            except StoreUnavailable as trouble:
                # Other commands of the call may have run already, at another node.
                trouble.maybe_executed = trouble.maybe_executed or any(map(was_executed, raw))
                raise
            sends = following
        self._table = None
        endless = unsettled(raw, self._name)
        if endless is not None:
            raise endless

    def _send_again(self, send: Send, raw: list[object], commands: Sequence[Command]) -> list[Send]:
        replies = self._exchange(send, commands)
        for index, reply in zip(send.indexes, replies, strict=True):
            raw[index] = reply
        return self._learn(send, replies)

    def _exchange(self, send: Send, commands: Sequence[Command]) -> list[object]:
        return replies_of(send, self._ask(send.place, commands_of(send, commands)))

    def _ask(self, place: HostPort, commands: Sequence[Command]) -> list[object]:
        began_s = _monotonic_s()
        try:
            return self._pool(place).exchange(commands)
        except StoreUnavailable:
            self._table = None
            if place in self._guard_by_place:
                self._guard_by_place[place].note_trouble(began_s)
            raise

    def _learn(self, send: Send, raw: Sequence[object]) -> list[Send]:
        sends, moves = next_sends(send, raw)
        for slot, place in moves:
            self._table = self._table and self._table.moved(slot, place)
        if shows_stale_table(raw):
            self._table = None
        return sends

    def _place_of(self, key: str | None) -> HostPort:
        table = self._table or self._fetch_table()
        self._table = table
        place = table.primaries[0] if key is None else table.owner(slot_of(key))
        if place is None:
            self._table = None
            raise no_owner(self._name)
        return place

    def _fetch_table(self) -> SlotTable:
        troubles: list[MqworkerError] = []
        places = dict.fromkeys([*self._address.nodes, *self._pool_by_place])
        for place in sorted(places, key=self._silent.__contains__):
            try:
                table = self._ask_for_table(place, table_limits(self._limits, len(places)))
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

    def _ask_for_table(self, place: HostPort, limits: Limits) -> SlotTable:
        """On a link of its own, which waits no longer than for a connection: others may know as well."""
        name, guard = self._pool(place).name, self._guard_by_place.get(place)
        connect = partial(open_link, place, access_of(self._address), limits, name)
        pool = LinkPool(name, connect if guard is None else partial(guard.instead, connect))
        began_s = _monotonic_s()
        try:
            return parse_slots(settled(pool.exchange([CLUSTER_SLOTS]), name)[0], place)
        except StoreUnavailable:
            if guard is not None:
                guard.note_trouble(began_s)
            raise
        finally:
            pool.close()

    def _pool(self, place: HostPort) -> LinkPool:
        pool = self._pool_by_place.get(place)
        if pool is None:
            name = ServerName(f"cluster node {place}", self._name.secrets)
            access, limits = access_of(self._address), self._limits
            # `setdefault`: two threads may get here at once, and one pool must win.
            pool = self._pool_by_place.setdefault(
                place,
                LinkPool(name, self._guarded(place, name, lambda: open_link(place, access, limits, name))),
            )
        return pool

    def _guarded(self, place: HostPort, name: ServerName, connect: Callable[[], Link]) -> Callable[[], Link]:
        if not self._leaves_hung:
            return connect
        return self._guard_by_place.setdefault(place, HungServer(name, connect)).connect
