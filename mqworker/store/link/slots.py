"""Where keys live in a cluster, and where to send what a node did not take: pure, for sync and async."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import cast

from redis import exceptions
from redis.crc import key_slot

from mqworker.errors import MqworkerError, StoreRefused, StoreUnavailable
from mqworker.store.command import Command
from mqworker.store.link.address import HostPort
from mqworker.store.link.server_errors import ServerName, was_executed

CLUSTER_SLOTS: Command = ("CLUSTER", "SLOTS")
ASKING: Command = ("ASKING",)
# A slot that moves while we look needs one or two; more means nodes that contradict one another.
MAX_ROUNDS = 8


@dataclass(frozen=True, slots=True)
class SlotRange:
    """A run of slots and the primary that serves it."""

    first: int
    last: int
    primary: HostPort


@dataclass(frozen=True, slots=True)
class SlotTable:
    """Who serves which slot, as one node told it. Ranges are sorted."""

    ranges: tuple[SlotRange, ...]

    @property
    def primaries(self) -> tuple[HostPort, ...]:
        """Each primary once."""
        return tuple(dict.fromkeys(entry.primary for entry in self.ranges))

    def owner(self, slot: int) -> HostPort | None:
        """The primary of `slot`, None when nobody serves it."""
        index = bisect_right(self.ranges, slot, key=attrgetter("first")) - 1
        if index < 0 or self.ranges[index].last < slot:
            return None
        return self.ranges[index].primary

    def moved(self, slot: int, primary: HostPort) -> SlotTable:
        """The table after a node said MOVED."""
        kept = (piece for entry in self.ranges for piece in _without(entry, slot))
        return SlotTable(_sorted([*kept, SlotRange(slot, slot, primary)]))


@dataclass(frozen=True, slots=True)
class Send:
    """Commands, by their index in the call, for one node."""

    place: HostPort
    indexes: tuple[int, ...]
    is_asking: bool = False


def slot_of(key: str) -> int:
    """The slot of a key or a channel."""
    return key_slot(key.encode())


def parse_slots(reply: object, told_by: HostPort) -> SlotTable:
    """The table out of CLUSTER SLOTS; an empty host there means the node that answers."""
    rows = cast("list[list[object]]", reply)  # [first, last, [host, port, …], replicas…]
    return SlotTable(_sorted(_slot_range(row, told_by) for row in rows))


def next_sends(send: Send, raw: Sequence[object]) -> tuple[list[Send], list[tuple[int, HostPort]]]:
    """What to send where after `raw` came back for `send`; and which slots are known to have moved.

    Only commands that were not executed are named, each kind in its old order.
    """
    sends: dict[tuple[HostPort, bool], list[int]] = {}
    moves: list[tuple[int, HostPort]] = []
    for index, reply in zip(send.indexes, raw, strict=True):
        match reply:
            case exceptions.MovedError():
                target = (_target(reply, send.place), False)
                moves.append((reply.slot_id, target[0]))
            case exceptions.AskError():
                target = (_target(reply, send.place), True)
            case exceptions.TryAgainError():
                target = (send.place, send.is_asking)
            case _:
                continue
        sends.setdefault(target, []).append(index)
    return [Send(place, tuple(indexes), is_asking) for (place, is_asking), indexes in sends.items()], moves


def commands_of(send: Send, commands: Sequence[Command]) -> list[Command]:
    """What goes over the wire for `send`: a node that imports a slot wants ASKING before each command."""
    chosen = [commands[index] for index in send.indexes]
    return [part for command in chosen for part in (ASKING, command)] if send.is_asking else chosen


def replies_of(send: Send, raw: list[object]) -> list[object]:
    """The replies to the commands themselves."""
    return raw[1::2] if send.is_asking else raw


def wants_pause(raw: Iterable[object]) -> bool:
    """Whether a node asked for a moment to finish moving the keys of a call."""
    return any(isinstance(reply, exceptions.TryAgainError) for reply in raw)


def shows_stale_table(raw: Iterable[object]) -> bool:
    """Whether the replies say that the cluster has changed."""
    return any(isinstance(reply, exceptions.ClusterDownError | exceptions.ReadOnlyError) for reply in raw)


def _target(reply: exceptions.AskError, told_by: HostPort) -> HostPort:
    return HostPort(_known_host(reply.host, told_by), reply.port)


def _slot_range(row: list[object], told_by: HostPort) -> SlotRange:
    first, last, primary = row[:3]
    host, port = cast("list[object]", primary)[:2]
    name = host.decode() if isinstance(host, bytes) else ""
    place = HostPort(_known_host(name, told_by), cast("int", port))
    return SlotRange(cast("int", first), cast("int", last), place)


def _known_host(host: str, told_by: HostPort) -> str:
    """A node that does not know its own name leaves it out or says "?": it means itself."""
    return told_by.host if host in {"", "?"} else host


def _without(entry: SlotRange, slot: int) -> list[SlotRange]:
    if not entry.first <= slot <= entry.last:
        return [entry]
    pieces = [
        SlotRange(entry.first, slot - 1, entry.primary),
        SlotRange(slot + 1, entry.last, entry.primary),
    ]
    return [piece for piece in pieces if piece.first <= piece.last]


def _sorted(ranges: Iterable[SlotRange]) -> tuple[SlotRange, ...]:
    return tuple(sorted(ranges, key=attrgetter("first")))


def unsettled(raw: Iterable[object], name: ServerName) -> StoreUnavailable | None:
    """The error for redirections that do not end; None when none is left."""
    replies = list(raw)
    if not any(isinstance(reply, exceptions.AskError) for reply in replies):
        return None
    return StoreUnavailable(
        f"The nodes of {name.text} redirect to one another; wait until its slots come to rest.",
        maybe_executed=any(map(was_executed, replies)),
    )


def no_table(name: ServerName, troubles: Sequence[MqworkerError]) -> MqworkerError:
    """No node could say who serves what; where all refuse, waiting does not help."""
    text = f"No node of {name.text} tells its slots ({' '.join(map(str, troubles))})."
    if troubles and all(isinstance(each, StoreRefused) for each in troubles):
        return StoreRefused(text)
    return StoreUnavailable(text, maybe_executed=False)


def slotless(place: HostPort) -> MqworkerError:
    """A node that belongs to no cluster yet."""
    return StoreUnavailable(f"{place} serves no slots", maybe_executed=False)


def no_owner(name: ServerName) -> StoreUnavailable:
    """A slot without a primary: a cluster that is being built, or broken."""
    return StoreUnavailable(f"{name.text} has a slot that no node serves.", maybe_executed=False)
