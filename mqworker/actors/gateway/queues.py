"""The work queues that gateways named: their calls and steps, made once each."""

from __future__ import annotations

from mqworker.errors import QueueFull
from mqworker.model.names import queue_name, shown
from mqworker.queues.work.calls import WorkQueueCalls, WorkQueueOptions
from mqworker.queues.work.keys import queues_key
from mqworker.queues.work.steps import WorkQueueSteps
from mqworker.store.procedure import Commands, Procedure

_MOST_KEPT = 10_000


class GatewayQueues:
    """Knows the steps of a queue by its name; forgets them all when strangers name too many."""

    def __init__(self, options: WorkQueueOptions, most: int = 10_000) -> None:
        """`most` queues there may be: what would make one more is refused."""
        self._options = options
        self._most = most
        self._registry = queues_key(options.namespace)
        self._steps_by_name: dict[str, WorkQueueSteps] = {}
        self._admitted: set[str] = set()

    def __getitem__(self, name: str) -> WorkQueueSteps:
        steps = self._steps_by_name.get(name)
        if steps is None:
            calls = WorkQueueCalls(queue_name(name), self._options)
            if len(self._steps_by_name) >= _MOST_KEPT:
                self._steps_by_name.clear()
            steps = self._steps_by_name[name] = WorkQueueSteps(calls, self._options.namespace)
        return steps

    def admit(self, name: str) -> Procedure[None]:
        """Before something is put into a queue: QueueFull if it would be one too many.

        Nodes that look at the same moment may pass the number by a few.
        """
        if name in self._admitted:
            return
        asked = (("SISMEMBER", self._registry, queue_name(name)), ("SCARD", self._registry))
        is_known, count = yield Commands(asked, self._registry)
        if not is_known and count >= self._most:
            raise QueueFull(
                f"queue {shown(name)} would be one more than gateway_max_queues, which is {self._most:,}; "
                "accepted are those that there are"
            )
        if len(self._admitted) >= _MOST_KEPT:
            self._admitted.clear()
        self._admitted.add(name)

    @property
    def namespace(self) -> str:
        """What all keys begin with."""
        return self._options.namespace

    def channel(self, name: str) -> str:
        """Where the scripts of this queue call out that it is not empty any more."""
        return self[name].calls.keys.meta
