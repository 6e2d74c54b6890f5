"""The queues that a dispatcher serves: those it was told to, or all that its workers have tasks for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mqworker.actors.dispatcher.foreign_queue import ModelLines
from mqworker.actors.dispatcher.queue import DispatchedQueue
from mqworker.actors.mail import WorkerReady
from mqworker.actors.run_slot import mark_of
from mqworker.model.names import ConsumerName, QueueName
from mqworker.queues.work.calls import WorkQueueOptions


class DispatchedQueues:
    """Work queues by name. The lines of other models are found by name, too, but not gone through."""

    def __init__(
        self, names: Iterable[str], consumer: ConsumerName, options: WorkQueueOptions, lines: ModelLines
    ) -> None:
        """Without names: all that workers speak of."""
        self._consumer = consumer
        self._options = options
        self._lines = lines
        self._queue_by_name: dict[str, DispatchedQueue] = {}
        self._fixed = frozenset(names)
        for name in names:
            self._open(name)

    def __iter__(self) -> Iterator[DispatchedQueue]:
        return iter(self._queue_by_name.values())

    def __getitem__(self, name: str) -> DispatchedQueue:
        return self._lines.get(name) or self._queue_by_name[name]

    def get(self, name: str) -> DispatchedQueue | None:
        """A queue by name, None when this node does not serve it."""
        return self._lines.get(name) or self._queue_by_name.get(name)

    def marked(self, mark: int) -> DispatchedQueue | None:
        """The work queue with this mark in a run slot."""
        return next((queue for queue in self if mark_of(queue.name) == mark), None)

    def learn(self, ready: WorkerReady) -> None:
        """What a worker says about its queues and their tasks."""
        for name, options in ready.queues.items():
            if self._fixed and name not in self._fixed:
                continue
            if "model" in options:
                self._queue_by_name.pop(name, None)
                self._lines.open(name, options["model"])
            elif name not in self._queue_by_name:
                self._open(name)
            self[name].learn(options.get("weight", 1), ready.tasks)

    def _open(self, name: str) -> None:
        self._queue_by_name[name] = DispatchedQueue(QueueName(name), self._consumer, self._options)
