"""The roster: all queues that anybody ever used on this server, as the caretaking actors go through them."""

from __future__ import annotations

from collections.abc import Iterator

from mqworker.model.names import QueueName
from mqworker.queues.work.calls import WorkQueueOptions
from mqworker.queues.work.keys import queues_key
from mqworker.queues.work.queue import WorkQueue
from mqworker.store.store import Store

REFRESH_MS = 1_000


class QueueRoster:
    """Knows the queues by the registry in Redis, read again every second."""

    def __init__(self, store: Store, options: WorkQueueOptions) -> None:
        self._store = store
        self._options = options
        self._queue_by_name: dict[str, WorkQueue] = {}
        self._refresh_at_ms = 0

    def __iter__(self) -> Iterator[WorkQueue]:
        return iter(list(self._queue_by_name.values()))

    def queue(self, name: QueueName) -> WorkQueue:
        """One queue by its name, known already or not."""
        if name not in self._queue_by_name:
            self._queue_by_name[name] = WorkQueue(name, self._store, self._options)
        return self._queue_by_name[name]

    def refresh(self, now_ms: int, *, at_once: bool = False) -> None:
        """Read the registry, if it is time to or must be."""
        if now_ms < self._refresh_at_ms and not at_once:
            return
        self._refresh_at_ms = now_ms + REFRESH_MS
        registry = queues_key(self._options.namespace)
        names = self._store.read([("SMEMBERS", registry)], registry)[0]
        for name in names if isinstance(names, list) else []:
            if isinstance(name, bytes) and name.decode() not in self._queue_by_name:
                queue = WorkQueue(QueueName(name.decode()), self._store, self._options)
                self._queue_by_name[queue.name] = queue
