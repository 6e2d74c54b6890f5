"""The roster: all queues that anybody ever used on this server, as the caretaking actors go through them."""

from __future__ import annotations

from collections.abc import Iterator

from mqworker.model.names import QueueName, parse_queue_name
from mqworker.queues.work.calls import WorkQueueCalls, WorkQueueOptions
from mqworker.queues.work.keys import queues_key
from mqworker.queues.work.queue import WorkQueue
from mqworker.store.store import Store

REFRESH_MS = 1_000
"""How often the registry is asked whether it grew."""
READ_AGAIN_MS = 30_000
"""How often it is read though it did not: one name may have taken the place of another."""


class QueueRoster:
    """Knows the queues by the registry in Redis. It holds names; the rest is made when it is needed."""

    def __init__(self, store: Store, options: WorkQueueOptions) -> None:
        self._store = store
        self._registry = queues_key(options.namespace)
        self._options = options
        self._names: dict[bytes, QueueName] = {}
        self._bad: list[bytes] = []
        """What stands in the registry and is not a name of a queue."""
        self._queue_by_name: dict[str, WorkQueue] = {}
        self._refresh_at_ms = 0
        self._read_at_ms = 0
        self._size: object = None

    def __iter__(self) -> Iterator[QueueName]:
        return iter(list(self._names.values()))

    def __len__(self) -> int:
        return len(self._names)

    @property
    def prefix(self) -> str:
        """What the keys of all queues begin with."""
        return f"{self._options.namespace}:"

    def queue(self, name: QueueName) -> WorkQueue:
        """One queue by its name, known already or not."""
        if name not in self._queue_by_name:
            self._queue_by_name[name] = WorkQueue(name, self._store, self._options)
        return self._queue_by_name[name]

    def calls(self, name: QueueName) -> WorkQueueCalls:
        """The calls of a queue, not kept: of thousands of queues few are busy at a time."""
        known = self._queue_by_name.get(name)
        return WorkQueueCalls(name, self._options) if known is None else known.calls

    def refresh(self, now_ms: int, *, at_once: bool = False) -> list[QueueName]:
        """Read the registry, if it is time to or must be; the names that are new."""
        if now_ms < self._refresh_at_ms and not at_once:
            return []
        self._refresh_at_ms = now_ms + REFRESH_MS
        for bad in self._bad:
            note = self._store.quarantine.note
            note("queue name", self._registry, "no name of a queue", bad, remove_by="SREM")
        size = self._store.send([("SCARD", self._registry)], self._registry)[0]
        if size == self._size and now_ms < self._read_at_ms and not at_once:
            return []
        self._read_at_ms = now_ms + READ_AGAIN_MS
        found = self._store.send([("SMEMBERS", self._registry)], self._registry)[0]
        members = [member for member in found if isinstance(member, bytes)] if isinstance(found, list) else []
        self._size = len(members)
        parsed = {member: parse_queue_name(member) for member in members if member not in self._names}
        self._bad = [member for member, name in parsed.items() if name is None]
        new = {member: name for member, name in parsed.items() if name is not None}
        self._names |= new
        return list(new.values())
