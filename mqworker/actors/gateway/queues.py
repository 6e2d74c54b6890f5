"""The work queues that gateways named: their calls and steps, made once each."""

from __future__ import annotations

from mqworker.model.names import queue_name
from mqworker.queues.work.calls import WorkQueueCalls, WorkQueueOptions
from mqworker.queues.work.steps import WorkQueueSteps

_MOST_KEPT = 10_000


class GatewayQueues:
    """Knows the steps of a queue by its name; forgets them all when strangers name too many."""

    def __init__(self, options: WorkQueueOptions) -> None:
        self._options = options
        self._steps_by_name: dict[str, WorkQueueSteps] = {}

    def __getitem__(self, name: str) -> WorkQueueSteps:
        steps = self._steps_by_name.get(name)
        if steps is None:
            calls = WorkQueueCalls(queue_name(name), self._options)
            if len(self._steps_by_name) >= _MOST_KEPT:
                self._steps_by_name.clear()
            steps = self._steps_by_name[name] = WorkQueueSteps(calls, self._options.namespace)
        return steps

    @property
    def namespace(self) -> str:
        """What all keys begin with."""
        return self._options.namespace

    def channel(self, name: str) -> str:
        """Where the scripts of this queue call out that it is not empty any more."""
        return self[name].calls.keys.meta
