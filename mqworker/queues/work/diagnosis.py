"""Diagnosis: what lies in the keys of a namespace and should not. Reads, and removes what it is told to.

Nodes skip what they cannot use and say so in their snapshots; this looks itself as well, so that it also
finds what no node has come by, and works while no node runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from mqworker.errors import StoreRefused
from mqworker.model.names import ConsumerName, parse_consumer_name, parse_queue_name, parse_whole, shown
from mqworker.model.quarantine import BadEntry, BadPlace, Removal, merged
from mqworker.model.view import NodeView
from mqworker.queues.work.keys import TYPE_BY_PART, WorkQueueKeys, nodes_key, queues_key, schedules_key
from mqworker.queues.work.snapshots import read_nodes
from mqworker.store.store import Store

_NOTHING = b"none"
KEY_KIND = "key"


def find_bad_entries(store: Store, namespace: str) -> list[BadEntry]:
    """What nodes skip at the moment, and what is wrong with keys; each once."""
    found = [*_skipped(_nodes(store, namespace)), *_wrong_keys(store, namespace)]
    return list({(bad.kind, bad.where, bad.entry): bad for bad in found}.values())


def find_unnamed(store: Store, namespace: str, named: Iterable[BadEntry]) -> list[BadPlace]:
    """Places where nodes skip more than is named here; `entries` is how many more."""
    count_by_place = Counter((bad.kind, bad.where) for bad in named)
    places = merged(place for node in _nodes(store, namespace) for place in node.bad_places)
    left = [
        BadPlace(place.kind, place.where, more, place.skipped, place.is_more)
        for place in places
        if (more := place.entries - count_by_place[place.kind, place.where]) > 0 or place.is_more
    ]
    return sorted(left, key=lambda place: (place.kind, place.where))


def remove(store: Store, bad: BadEntry) -> bool:
    """Remove exactly this entry; whether it was there."""
    removal = bad.removal
    if removal is None:
        return False
    if removal.command == "DEL":
        # Only what is still of the type that was seen: somebody may have mended it.
        (kind,) = store.send([("TYPE", removal.key)], removal.key)
        if kind != removal.member:
            return False
        return bool(store.send([("DEL", removal.key)], removal.key)[0])
    return bool(store.send([(removal.command, removal.key, removal.member)], removal.key)[0])


def _nodes(store: Store, namespace: str) -> Sequence[NodeView]:
    try:
        return read_nodes(store, namespace)
    except StoreRefused:
        return ()  # told as a wrong key


def _skipped(nodes: Sequence[NodeView]) -> Iterator[BadEntry]:
    for node in nodes:
        yield from node.quarantined


def _wrong_keys(store: Store, namespace: str) -> Iterator[BadEntry]:
    registry = queues_key(namespace)
    singles = [(registry, "set"), (nodes_key(namespace), "set"), (schedules_key(namespace), "hash")]
    for key, kind in singles:
        yield from _of_type(store, key, kind)
    nodes = nodes_key(namespace)
    for raw in _members(store, ("SMEMBERS", nodes)):
        if parse_queue_name(raw) is None:  # as `snapshots` reads them
            yield _bad("node name", nodes, "no name of a node", Removal("SREM", nodes, raw))
    for raw in _members(store, ("SMEMBERS", registry)):
        name = parse_queue_name(raw)
        if name is None:
            yield _bad("queue name", registry, "no name of a queue", Removal("SREM", registry, raw))
        else:
            yield from _of_queue(store, WorkQueueKeys.of(namespace, name))


def _of_queue(store: Store, keys: WorkQueueKeys) -> Iterator[BadEntry]:
    expected = [(keys.named(part), kind) for part, kind in TYPE_BY_PART.items()]
    types = store.send([("TYPE", key) for key, _ in expected], keys.meta)
    for (key, kind), found in zip(expected, types, strict=True):
        yield from _if_wrong(key, kind, found)
    consumers = keys.named("consumers")
    for raw in _members(store, ("ZRANGE", consumers, 0, -1)):
        if parse_consumer_name(raw) is None:
            yield _bad("consumer", consumers, "no name of a consumer", Removal("ZREM", consumers, raw))
        else:
            yield from _of_held(store, keys.held(ConsumerName(raw.decode())))


def _of_held(store: Store, key: str) -> Iterator[BadEntry]:
    yield from _of_type(store, key, "hash")
    for raw in _members(store, ("HKEYS", key)):
        if parse_whole(raw) is None:
            yield _bad("fence", key, "no fence", Removal("HDEL", key, raw))


def _of_type(store: Store, key: str, kind: str) -> Iterator[BadEntry]:
    yield from _if_wrong(key, kind, store.send([("TYPE", key)], key)[0])


def _if_wrong(key: str, kind: str, found: object) -> Iterator[BadEntry]:
    if isinstance(found, bytes) and found not in {_NOTHING, kind.encode()}:
        why = f"is a {found.decode(errors='replace')}; a {kind} is expected"
        yield BadEntry(KEY_KIND, key, "", why, 0, Removal("DEL", key, found))


def _members(store: Store, command: tuple[str | int, ...]) -> list[bytes]:
    try:
        found = store.send([command], str(command[1]))[0]
    except StoreRefused:
        return []  # of another type, which is told as such
    return [each for each in found if isinstance(each, bytes)] if isinstance(found, list) else []


def _bad(kind: str, where: str, why: str, removal: Removal) -> BadEntry:
    # The same name as a node would give it, so that nothing is told twice.
    return BadEntry(kind, where, shown(removal.member), why, 0, removal)
