"""The verbs of the RedisMQ document for gateways: taken in by the broker, handed out by the dispatcher. Pure.

Calls of many clients on one queue become one script: ids, elements and acknowledgements are then dealt out in
the order of the calls, just as if each had come alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

from mqworker.actors.gateway.queues import GatewayQueues
from mqworker.actors.gateway.size import count_that_fits
from mqworker.actors.gateway.verbs.verb import Arguments, Verb
from mqworker.errors import InvalidArgument
from mqworker.model.names import MessageId, whole_number
from mqworker.queues.work.steps import LARGEST_BATCH
from mqworker.store.procedure import Procedure


def verbs_of_intake(queues: GatewayQueues) -> dict[str, Verb]:
    """For the broker's node: push, ack, recover, inspect, inspect_pending."""
    verbs = _Verbs(queues)
    return {
        "push": Verb(verbs.push, verbs.push_together, lambda call: len(call[1])),
        "ack": Verb(verbs.ack, verbs.ack_together, lambda call: len(call[1])),
        "recover": Verb(verbs.recover),
        "inspect": Verb(verbs.inspect),
        "inspect_pending": Verb(verbs.inspect_pending),
    }


def verbs_of_output(queues: GatewayQueues) -> dict[str, Verb]:
    """For the dispatcher's node: pop, pop_any, put_back."""
    verbs = _Verbs(queues)
    return {
        "pop": Verb(verbs.pop, verbs.pop_together, lambda call: call[1]),
        "pop_any": Verb(verbs.pop_any),
        "put_back": Verb(verbs.put_back),
    }


class _Verbs:
    def __init__(self, queues: GatewayQueues) -> None:
        self._queues = queues

    def push(self, queue: str, elements: Sequence[bytes]) -> Procedure[Any]:
        yield from self._queues.admit(queue)
        ids = yield from self._queues[queue].push(elements)
        return ids

    def push_together(self, calls: Sequence[Arguments]) -> Procedure[list[Any]]:
        _refuse_empty(calls)
        yield from self._queues.admit(calls[0][0])
        elements = [element for _, some in calls for element in some]
        ids = iter((yield from self._queues[calls[0][0]].push(elements)))
        return [list(islice(ids, len(some))) for _, some in calls]

    def pop(self, queue: str, count: int) -> Procedure[Any]:
        popped = yield from self._pop(queue, count)
        return popped

    def pop_together(self, calls: Sequence[Arguments]) -> Procedure[list[Any]]:
        count = sum(whole_number("count", wanted, least=1, most=LARGEST_BATCH) for _, wanted in calls)
        popped = yield from self._pop(calls[0][0], count)
        if popped is None:
            return [None] * len(calls)
        elements = iter(popped)
        return [list(islice(elements, wanted)) for _, wanted in calls]

    def pop_any(self, count: int, queues: Sequence[str]) -> Procedure[Any]:
        """From several queues in order: (queue, id, element) each, None when there is none of them."""
        taken: list[tuple[str, str, bytes]] = []
        is_known = False
        for queue in queues:
            popped = yield from self._pop(queue, count - len(taken))
            is_known = is_known or popped is not None
            taken += [(queue, item, element) for item, element in popped or ()]
            if len(taken) == count:
                break
        return taken if is_known else None

    def _pop(self, queue: str, count: int) -> Procedure[list[tuple[MessageId, bytes]] | None]:
        """Pop; what is too much for one answer is put back."""
        popped = yield from self._queues[queue].pop(count)
        if not popped:
            return popped
        fitting = count_that_fits(popped)
        if fitting < len(popped):
            yield self._queues[queue].calls.put_back([item for item, _ in popped[fitting:]])
        return popped[:fitting]

    def put_back(self, queue: str, ids: Sequence[str]) -> Procedure[Any]:
        """For a caller who is gone."""
        count = yield self._queues[queue].calls.put_back(ids)
        return count

    def ack(self, queue: str, ids: Sequence[str]) -> Procedure[Any]:
        acked = yield from self._queues[queue].ack(ids)
        return acked

    def ack_together(self, calls: Sequence[Arguments]) -> Procedure[list[Any]]:
        _refuse_empty(calls)
        acked = yield from self._queues[calls[0][0]].ack([item for _, ids in calls for item in ids])
        if acked is None:
            return [None] * len(calls)
        left: set[str] = set(acked)
        return [[item for item in ids if _take(left, item)] for _, ids in calls]

    def recover(self, queue: str, count: int, elapsed_ms: int) -> Procedure[Any]:
        recovered = yield from self._queues[queue].recover(count, elapsed_ms)
        # What is too much for one answer stays delivered: recovering again finds it.
        return recovered and recovered[: count_that_fits(recovered)]

    def inspect(self, queue: str, start: int, count: int) -> Procedure[Any]:
        elements = yield from self._queues[queue].inspect(start, count)
        return elements[: count_that_fits(elements)]

    def inspect_pending(self, queue: str, start: int, count: int) -> Procedure[Any]:
        elements = yield from self._queues[queue].inspect_pending(start, count)
        rows = [
            (each.id, each.element, each.last_delivery_ms, each.elapsed_ms, each.deliveries)
            for each in elements
        ]
        return rows[: count_that_fits(rows)]


def _refuse_empty(calls: Sequence[Arguments]) -> None:
    """A call that asks for nothing gets an error; that only happens when it is carried out alone."""
    if not all(some for _, some in calls):
        raise InvalidArgument("a call names nothing to push or to acknowledge; accepted is at least one")


def _take(left: set[str], item: str) -> bool:
    """Whether it was there; of two who acknowledge the same, only the first is told so."""
    if item not in left:
        return False
    left.remove(item)
    return True
