"""Spawning: a running task adds calls to its workflow, or begins a tree of its own.

What was added is known by the node of the task and a key: the number of the spawn within the run, or a name.
So a run that comes after one that was killed gets the same children, and starts what is missing. Four steps,
each repeatable: see that the lease is held, reserve numbers, add the calls, let the broker begin them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from mqworker.errors import InvalidArgument, LeaseLost, NotSupported, TaskCancelled
from mqworker.model.assembled_call import Origin, Source, join_of
from mqworker.model.delivery import Delivery
from mqworker.model.envelope import decode_call
from mqworker.model.names import ConsumerName, MessageId, QueueName, shown
from mqworker.queues.work.keys import workflow_key, workflows_key
from mqworker.queues.work.queue import WorkQueue
from mqworker.store.script import Call, RawReply, scripts_of
from mqworker.tasks.job import Job
from mqworker.tasks.workflows.outcome import member_id
from mqworker.tasks.workflows.plan import LONGEST_RUN_MS

if TYPE_CHECKING:
    from mqworker.tasks.signature import Signature

script = scripts_of(__package__)

MOST_NODES = 100_000
"""Calls of one workflow or tree, with all that they spawn: a task that spawns itself for ever ends there."""
MOST_AT_ONCE = 500
KEPT_MS = 24 * 3600 * 1000
MOST_LISTED = 1_000
LONGEST_ID = 100
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,60}", re.ASCII)


@dataclass(frozen=True, slots=True)
class _Parent:
    """The run that spawns, as its workflow knows it."""

    workflow: str
    node: str
    delivery: Delivery
    queue: QueueName

    @property
    def is_root(self) -> bool:
        return self.node == "parent"


class Spawner:
    """Adds calls in the name of the deliveries that one consumer holds. Waits for the server."""

    def __init__(
        self, queue_of: Callable[[str], WorkQueue], namespace: str, consumer: ConsumerName | None
    ) -> None:
        self._queue_of = queue_of
        self._namespace = namespace
        self._consumer = consumer

    # Any: each child returns what its own task does.
    def spawn(
        self,
        queue: str,
        delivery: Delivery,
        key: str,
        calls: Sequence[Signature[Any]],
        then: Signature[Any] | None,
    ) -> list[Job[Any]]:
        """Add these calls, and one that follows when they and the run have ended; once for the same key."""
        _check(key, calls, then)
        work = self._queue_of(queue)
        parent = _parent_of(work.name, delivery)
        if not calls and then is None:
            return []
        has_spawned = self._begin(work, parent, ())
        nodes = self._reserve(parent, key, len(calls), has_spawned=has_spawned)
        children = list(zip(nodes, calls, strict=True))
        callback = None
        if then is not None:
            join, node = self._reserve(parent, f"{key}/then", 2, has_spawned=True)
            callback = _Callback(join, node, then)
        starts = [
            start
            for at in range(0, max(1, len(children)), MOST_AT_ONCE)
            for start in self._grow(parent, children[at : at + MOST_AT_ONCE], callback, children)
        ]
        if starts:
            self._begin(work, parent, starts)
        return [_job(parent, node, call) for node, call in children]

    def _begin(self, work: WorkQueue, parent: _Parent, starts: Sequence[MessageId]) -> bool:
        fence = parent.delivery.fence
        answer = work.store.run(work.calls.begin_spawn(fence, self._consumer, starts))
        if answer == 0:  # whoever took over for this consumer holds it by the same fence
            others = [each for each in (None, *work.consumers()) if each != self._consumer]
            tries = (work.store.run(work.calls.begin_spawn(fence, each, starts)) for each in others)
            answer = next((each for each in tries if each != 0), 0)
        if answer == 0:
            raise _lost(parent)
        if answer < 0:
            raise TaskCancelled(f"{parent.delivery.id} was asked to stop: it cannot spawn any more")
        return answer > 1

    def _reserve(self, parent: _Parent, key: str, count: int, *, has_spawned: bool) -> list[int]:
        queue, stamp = (parent.queue, parent.delivery.enqueued_at_ms) if parent.is_root else ("", "")
        arguments = (parent.node, parent.delivery.fence, key, count, MOST_NODES, queue, stamp)
        ranges = self._ask("reserve_nodes", parent, (*arguments, int(has_spawned), KEPT_MS, LONGEST_RUN_MS))[
            0
        ]
        spans = [span.partition("-") for span in ranges.split()]
        numbers = [number for first, _, last in spans for number in range(int(first), int(last) + 1)]
        if parent.is_root and numbers[:1] == [0]:
            self._list(parent.workflow)
        return numbers[:count]

    def _grow(
        self,
        parent: _Parent,
        some: Sequence[tuple[int, Signature[Any]]],
        callback: _Callback | None,
        everybody: Sequence[tuple[int, Signature[Any]]],
    ) -> Iterator[MessageId]:
        follows: tuple[object, ...] = ("", "", "")
        if callback is not None:
            follows = (callback.join, callback.node, callback.template(parent.workflow, everybody))
        pairs: list[object] = []
        for node, call in some:
            pairs += (node, _template(call, parent.workflow, node, inputs=0, source=None, input_from=None))
        for start in self._ask(
            "grow_workflow", parent, (parent.node, parent.delivery.fence, *follows, *pairs)
        ):
            yield member_id(parent.workflow, start)

    def _ask(self, name: str, parent: _Parent, arguments: tuple[object, ...]) -> list[str]:
        key = workflow_key(self._namespace, parent.workflow)
        call = Call(script(name), (key,), cast("Any", arguments), _texts)
        answer, *rest = self._queue_of(parent.queue).store.run(call)
        if answer == "ok":
            return rest
        raise _refusal(parent, answer, *rest)

    def _list(self, workflow: str) -> None:
        key, store = workflows_key(self._namespace), self._queue_of("default").store
        store.send([("LPUSH", key, workflow), ("LTRIM", key, 0, MOST_LISTED - 1)], key)


@dataclass(frozen=True, slots=True)
class _Callback:
    """What follows when all of them, and the run that spawned them, have ended."""

    join: int
    node: int
    call: Signature[Any]

    def template(self, workflow: str, members: Sequence[tuple[int, Signature[Any]]]) -> str:
        if self.call.is_immutable:
            return _template(self.call, workflow, self.node, inputs=0, source=None, input_from=None)
        source = join_of([["call", call.plan.queue, node, True] for node, call in members])
        return _template(self.call, workflow, self.node, inputs=1, source=source, input_from=self.join)


def _job(parent: _Parent, node: int, call: Signature[Any]) -> Job[Any]:
    sender = call.call.connections.sender(call.plan.queue)
    return Job(member_id(parent.workflow, node), sender, call.call.definition, is_new=None)


def _template(
    call: Signature[Any], workflow: str, node: int, *, inputs: int, source: Source, input_from: int | None
) -> str:
    origin = Origin(member_id(workflow, node), source=source)
    template = call.template(MessageId(workflow), inputs=inputs, origin=origin)
    return json.dumps(template.as_fields() | {"input_from": input_from})


def _check(key: str, calls: Sequence[object], then: object) -> None:
    from mqworker.tasks.signature import Signature  # noqa: PLC0415 - which knows of tasks, and they of this

    if not _NAME.fullmatch(key):
        raise InvalidArgument(
            f"name is {shown(key.removeprefix('-'))}; accepted are 1 to 60 characters of A-Z a-z 0-9 _ . -"
        )
    if len(calls) > MOST_NODES:
        raise InvalidArgument(
            f"{len(calls):,} calls to spawn; accepted are up to {MOST_NODES:,} for a whole tree"
        )
    for each in (*calls, *(() if then is None else (then,))):
        if not isinstance(each, Signature):
            raise InvalidArgument(
                f"{shown(each)} cannot be spawned; accepted are calls: task.s(...) and task.si(...)"
            )


def _parent_of(queue: QueueName, delivery: Delivery) -> _Parent:
    workflow = decode_call(delivery.body).workflow
    if workflow is not None:
        return _Parent(workflow, delivery.id.removeprefix(f"{workflow}~"), delivery, queue)
    if "~" in delivery.id or len(delivery.id) > LONGEST_ID:
        raise InvalidArgument(
            f"{delivery.id} cannot spawn: ids of what it spawns begin with its own; accepted is an id of up "
            f"to {LONGEST_ID} characters without ~"
        )
    return _Parent(delivery.id, "parent", delivery, queue)


def _refusal(parent: _Parent, answer: str, detail: str = "") -> Exception:
    name = f"{parent.delivery.task} {parent.delivery.id}"
    match answer:
        case "lost":
            return _lost(parent)
        case "cancelled":
            return TaskCancelled(f"{name} cannot spawn any more: {parent.workflow} was cancelled")
        case "over":
            return TaskCancelled(f"{name} cannot spawn any more: workflow {parent.workflow} is {detail}")
        case "full":
            return InvalidArgument(
                f"{name}: its tree has {int(detail):,} calls; accepted are up to {MOST_NODES:,}, with all "
                "that they spawn: spawn one call for many items, or enqueue them on their own"
            )
        case _:
            return InvalidArgument(
                f"{name} cannot spawn: an earlier message with this id, of {detail}, has a tree that still "
                "runs; accepted is an id that nothing else uses, or none"
            )


def _lost(parent: _Parent) -> LeaseLost:
    return LeaseLost(f"{parent.delivery.id} was given to somebody else while it ran: it cannot spawn")


def not_spawning(why: str) -> NotSupported:
    """The error of a run that has nobody to spawn for."""
    return NotSupported(
        f"spawn: {why}; accepted is a task of a work queue that a worker runs, with delivery at_least_once; "
        "elsewhere task.enqueue(...) stores a call on its own"
    )


def _texts(reply: RawReply) -> list[str]:
    return [each.decode() if isinstance(each, bytes) else str(each) for each in reply]
