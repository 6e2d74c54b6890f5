"""The sweep: removes blobs that no message and no result refers to any more.

A worker removes the blob of a message that it has run. What is left belongs to messages that were cancelled,
purged or never stored, to results whose time is over, and to whoever was killed in between. A blob goes when
it is old enough, nothing referred to it in two looks that lie `grace` apart, and a last search finds nothing.
Any number of sweeps may run at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from mqworker.errors import InvalidArgument, InvalidMessage
from mqworker.model.blob import Owner, owner_of
from mqworker.model.clock import Clock
from mqworker.model.names import MessageId, QueueName, message_id, parse_consumer_name, queue_name
from mqworker.model.record import id_of
from mqworker.queues.work.keys import orphans_key, queues_key, workflow_key
from mqworker.queues.work.queue import WorkQueue
from mqworker.store.store import Store
from mqworker.tasks.offload.places import TEMPORARY, Place

PAGE = 1_000
_ENDED = frozenset({"absent", "succeeded", "cancelled", "expired"})


@dataclass(slots=True)
class Swept:
    """What a sweep did."""

    young: int = 0
    needed: int = 0
    suspected: int = 0
    """Nothing refers to them; they go if that is still so when `grace` is over."""
    removed: int = 0


class Sweep:
    """Sweeps the blobs of one namespace."""

    def __init__(
        self,
        store: Store,
        namespace: str,
        place: Place,
        queue_of: Callable[[QueueName], WorkQueue],
        clock: Clock,
    ) -> None:
        self._store = store
        self._namespace = namespace
        self._place = place
        self._queue_of = queue_of
        self._clock = clock
        self._marks = orphans_key(namespace)

    def run(self, grace_s: float | None = None) -> Swept:
        """Look at all blobs once. `grace_s` is as the place has it, unless given."""
        grace_ms = round((self._place.grace_s if grace_s is None else grace_s) * 1000)
        now_ms, swept = self._clock.now_ms(), Swept()
        owners: dict[str, Owner | None] = {}
        for name, written_at_ms in self._place.names(self._namespace):
            if now_ms - written_at_ms < grace_ms:
                swept.young += 1
            elif (owner := _owner(name)) is not None or TEMPORARY in name:
                owners[name] = owner
        needed = self._needed({name: owner for name, owner in owners.items() if owner is not None})
        swept.needed = len(needed)
        self._judge([name for name in owners if name not in needed], owners, now_ms, grace_ms, swept)
        return swept

    def _judge(
        self,
        orphans: Sequence[str],
        owners: Mapping[str, Owner | None],
        now_ms: int,
        grace_ms: int,
        swept: Swept,
    ) -> None:
        marks = self._read_marks()
        for name in orphans:
            since_ms = marks.get(name, now_ms)
            if now_ms - since_ms >= grace_ms and (name in marks or grace_ms == 0):
                owner = owners[name]
                if owner is None or not self._is_found(owner):
                    self._place.remove(name)
                    swept.removed += 1
                    marks.pop(name, None)
                    continue
            swept.suspected += 1
            marks.setdefault(name, now_ms)
        known = set(orphans)
        self._write_marks({name: at_ms for name, at_ms in marks.items() if name in known})

    def _needed(self, owners: Mapping[str, Owner]) -> set[str]:
        flows = {owner.workflow for owner in owners.values() if owner.workflow is not None}
        living_flows = self._living_flows(flows)
        by_queue: dict[str, dict[str, Owner]] = {}
        for name, owner in owners.items():
            by_queue.setdefault(owner.queue, {})[name] = owner
        needed = {name for name, owner in owners.items() if owner.workflow in living_flows}
        for queue, some in by_queue.items():
            living = self._living(queue, {owner.id for owner in some.values() if owner.kind == "arguments"})
            results = self._with_result(
                queue, {owner.id for owner in some.values() if owner.kind == "result"}
            )
            needed |= {
                name
                for name, owner in some.items()
                if owner.id in (living if owner.kind == "arguments" else results)
            }
        return needed

    def _living(self, queue: str, wanted: set[str]) -> set[str]:
        """Those of the ids whose messages are in the queue, in whatever state; in one pass over it."""
        if not wanted or (work := self._queue(queue)) is None:
            return set()
        return wanted & {id_ for id_ in _ids_in(work) if id_ in wanted}

    def _with_result(self, queue: str, wanted: set[str]) -> set[str]:
        if not wanted or (work := self._queue(queue)) is None:
            return set()
        keys, ids, found = work.calls.keys, sorted(wanted), set[str]()
        for start in range(0, len(ids), PAGE):
            some = ids[start : start + PAGE]
            for key in ("results", "results:old"):
                # Any: HMGET answers texts, or nothing in their place.
                replies: Any = work.store.send([("HMGET", keys.named(key), *some)], keys.meta)[0]
                found |= {id_ for id_, result in zip(some, replies, strict=True) if result}
        return found

    def _living_flows(self, wanted: set[str]) -> set[str]:
        """Workflows that are kept, or of which a member is somewhere: it may need the result of another."""
        flows = sorted(wanted)
        keys = [workflow_key(self._namespace, flow) for flow in flows]
        replies = self._store.send_each([("EXISTS", key) for key in keys], keys) if keys else []
        living = {flow for flow, reply in zip(flows, replies, strict=True) if reply != 0}
        gone = wanted - living
        for work in self._queues() if gone else ():
            living |= gone & {id_.partition("~")[0] for id_ in _ids_in(work) if "~" in id_}
        return living

    def _is_found(self, owner: Owner) -> bool:
        """The last look, which misses nothing that is on its way from one state to another."""
        work = self._queue(owner.queue)
        if work is None:
            return False
        if owner.kind == "result":
            return bool(self._with_result(owner.queue, {owner.id}))
        return work.find(MessageId(owner.id)).state not in _ENDED

    def _queues(self) -> Iterator[WorkQueue]:
        key = queues_key(self._namespace)
        names: Any = self._store.send([("SMEMBERS", key)], key)[0]  # Any: texts
        for name in sorted(names):
            work = self._queue(name.decode(errors="replace"))
            if work is not None:
                yield work

    def _queue(self, name: str) -> WorkQueue | None:
        try:
            return self._queue_of(queue_name(name))
        except InvalidArgument:
            return None  # a foreign file

    def _read_marks(self) -> dict[str, int]:
        found: Any = self._store.send([("HGETALL", self._marks)], self._marks)[0]  # Any: texts in turn
        pairs = zip(found[::2], found[1::2], strict=True)
        return {name.decode(errors="replace"): int(at) for name, at in pairs if at.isdigit()}

    def _write_marks(self, marks: Mapping[str, int]) -> None:
        """In place of those of before; another sweep may do the same, and a lost mark only costs time."""
        commands: list[tuple[str | int, ...]] = [("DEL", self._marks)]
        items = sorted(marks.items())
        for start in range(0, len(items), PAGE):
            fields = [part for item in items[start : start + PAGE] for part in item]
            commands.append(("HSET", self._marks, *fields))
        self._store.send(commands, self._marks)


def _owner(name: str) -> Owner | None:
    try:
        owner = owner_of(name)
        message_id(owner.id)
    except (InvalidMessage, InvalidArgument):
        return None
    return owner


def _ids_in(work: WorkQueue) -> Iterator[str]:
    """The ids of all messages of a queue that have not ended."""
    keys = work.calls.keys
    yield from _texts(_reply(work, ("HKEYS", keys.named("parcels"))))
    yield from _texts(_reply(work, ("HKEYS", keys.named("letters"))))
    for read, name in (("LRANGE", "ready"), ("ZRANGE", "urgent")):
        first = 0
        # What is claimed meanwhile shortens the line: pages overlap, and what is missed the last look finds.
        while records := _reply(work, (read, keys.named(name), first, first + PAGE - 1)):
            yield from _texts(id_of(record) for record in records)
            first += PAGE // 2 if len(records) == PAGE else PAGE
    consumers = _reply(work, ("ZRANGE", keys.named("consumers"), 0, -1))
    known = [None, *filter(None, (parse_consumer_name(each) for each in consumers))]
    for consumer in known:
        yield from _texts(id_of(record) for record in _reply(work, ("HVALS", keys.held(consumer))))


def _reply(work: WorkQueue, command: tuple[str | int, ...]) -> list[bytes]:
    return cast("list[bytes]", work.store.send([command], work.calls.keys.meta)[0])


def _texts(raw: Iterable[bytes]) -> Iterator[str]:
    return (each.decode(errors="replace") for each in raw)
