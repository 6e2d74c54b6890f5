"""What a running task says about its limits: close a key, or what the call cost in truth."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mqworker.errors import InvalidArgument
from mqworker.model.delivery import Delivery
from mqworker.model.envelope import decode_call
from mqworker.model.limits import names_of_key
from mqworker.model.names import ConsumerName, shown
from mqworker.model.rate import checked_cost
from mqworker.queues.work.queue import WorkQueue
from mqworker.tasks.options import TaskOptions, milliseconds
from mqworker.tasks.registry import Registry, TaskDefinition


class LimitReports:
    """Sends them to the server, once each: the task waits for one round trip."""

    def __init__(
        self, queue_of: Callable[[str], WorkQueue], registry: Registry, consumer: ConsumerName | None
    ) -> None:
        self._queue_of = queue_of
        self._registry = registry
        self._consumer = consumer

    def close(self, queue: str, delivery: Delivery, key: str | None, seconds: object, why: str) -> int:
        """Let nothing start that has this key in common with the call; how many names were closed by that."""
        for_ms = milliseconds("for_", seconds)
        names = self._names(delivery, key)
        work = self._queue_of(queue)
        return work.store.run(work.calls.close(names, for_ms, task=delivery.task, why=why))

    def close_own(self, queue: str, delivery: Delivery, key: str | None, seconds: float, why: str) -> bool:
        """The same for the key that the call is about; False when the task has no limits."""
        options = self._registry.named(delivery.task).options
        keys = _own_keys(options) if key is None else [key]
        names = [name for each in keys for name in self._names(delivery, each)]
        if not names:
            return False
        work = self._queue_of(queue)
        for_ms = milliseconds("retry_after", seconds)
        work.store.run(work.calls.close(names, for_ms, task=delivery.task, why=why))
        return True

    def spent(self, queue: str, delivery: Delivery, amount: object, of: str | None) -> bool:
        """Say what the call cost in truth; False when somebody else has the message."""
        cost = checked_cost("amount", amount)
        costs = [rate.cost for rate in self._registry.named(delivery.task).options.rates if rate.cost]
        meant = [position for position, each in enumerate(costs, start=1) if of in (None, each)]
        if not meant or (of is None and len(set(costs)) > 1):
            accepted = ", ".join(f"of={each!r}" for each in dict.fromkeys(costs)) or "a rate with cost=..."
            raise InvalidArgument(f"of is {shown(of)}; accepted for {delivery.task}: {accepted}")
        work = self._queue_of(queue)
        if self._consumer is None:
            return False
        return work.store.run(work.calls.spend(delivery.fence, cost, meant, self._consumer)) == 1

    def _names(self, delivery: Delivery, key: str | None) -> Sequence[str]:
        task = self._registry.named(delivery.task)
        names = names_of_key(
            task.name,
            key,
            _arguments(task, delivery),
            rates=task.options.rates,
            running=task.options.running,
            breaker=task.options.breaker,
        )
        if not names:
            keys = ", ".join(map(repr, dict.fromkeys(_closable_keys(task.options))))
            raise InvalidArgument(
                f"key is {shown(key)}; accepted are keys of the limits of {task.name}: {keys or 'none'}"
            )
        return names


def _arguments(task: TaskDefinition, delivery: Delivery) -> dict[str, object]:
    call = decode_call(delivery.body)
    return task.arguments_for_keys(call.args, call.kwargs)


def _closable_keys(options: TaskOptions) -> list[str | None]:
    breaker = [] if options.breaker is None else [options.breaker.key]
    return [*(each.key for each in (*options.running,)), *(each.key for each in options.rates), *breaker]


def _own_keys(options: TaskOptions) -> list[str | None]:
    """The only key, if there is one; else the task as a whole; else all keys."""
    keys = list(dict.fromkeys(_closable_keys(options)))
    named = [key for key in keys if key is not None]
    if len(named) == 1:
        return [named[0]]
    return [None] if None in keys else keys
