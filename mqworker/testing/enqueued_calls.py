"""All calls that were enqueued on a bench, in order, with their arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mqworker.model.envelope import Envelope, decode_call
from mqworker.model.message import Enqueued, Message
from mqworker.model.names import MessageId, QueueName, TaskName
from mqworker.queues.work.async_queue import AsyncWorkQueue
from mqworker.queues.work.calls import WorkQueueCalls, WorkQueueOptions, alone
from mqworker.queues.work.queue import WorkQueue
from mqworker.queues.work.steps import WorkQueueSteps
from mqworker.store.async_store import AsyncStore
from mqworker.store.script import Call, RawReply
from mqworker.store.store import Store
from mqworker.tasks.payloads import Payloads
from mqworker.tasks.registry import Registry


@dataclass(frozen=True, slots=True)
class EnqueuedCall:
    """A call that was stored. The arguments are as its task gets them."""

    id: MessageId
    task: TaskName
    queue: QueueName
    args: tuple[Any, ...]  # Any: the user's values
    kwargs: dict[str, Any]
    headers: dict[str, str]
    priority: int
    is_delayed: bool


class EnqueuedCalls:
    """Messages in the order in which they were stored."""

    def __init__(self, payloads_of: Callable[[], Payloads | None] = lambda: None) -> None:
        """`payloads_of` gives what opens the calls of the app."""
        self._payloads_of = payloads_of
        self.notes: list[tuple[QueueName, Message]] = []

    def calls(self, registry: Registry, task: TaskName | None) -> list[EnqueuedCall]:
        """The calls of one task, or of all."""
        return [
            _call(registry, queue, message, self._payloads_of())
            for queue, message in self.notes
            if task in {None, message.task}
        ]

    def note(self, queue: QueueName, messages: Sequence[Message], stored: Sequence[Enqueued]) -> None:
        """Record those that were stored; duplicates were not."""
        pairs = zip(messages, stored, strict=True)
        self.notes += [(queue, message) for message, enqueued in pairs if enqueued.is_new]


class RecordedQueue(WorkQueue):
    """A work queue that records what is enqueued."""

    def __init__(
        self, name: str, store: Store, options: WorkQueueOptions, enqueued_calls: EnqueuedCalls
    ) -> None:
        super().__init__(name, store, options)
        self.calls = _RecordedCalls(self.name, options, enqueued_calls)
        self._steps = WorkQueueSteps(self.calls, options.namespace)


class AsyncRecordedQueue(AsyncWorkQueue):
    """The same for asyncio."""

    def __init__(
        self, name: str, store: AsyncStore, options: WorkQueueOptions, enqueued_calls: EnqueuedCalls
    ) -> None:
        super().__init__(name, store, options)
        self.calls = _RecordedCalls(self.name, options, enqueued_calls)
        self._steps = WorkQueueSteps(self.calls, options.namespace)


class _RecordedCalls(WorkQueueCalls):
    def __init__(self, queue: QueueName, options: WorkQueueOptions, enqueued_calls: EnqueuedCalls) -> None:
        super().__init__(queue, options)
        self._enqueued = enqueued_calls

    def enqueue_one(self, message: Message) -> Call[Enqueued]:
        return alone(self.enqueue((message,)))

    def enqueue(self, messages: Sequence[Message]) -> Call[list[Enqueued]]:
        call = super().enqueue(messages)

        def decode(reply: RawReply) -> list[Enqueued]:
            stored = call.decode(reply)
            self._enqueued.note(self.keys.queue, messages, stored)
            return stored

        return replace(call, decode=decode)


def _call(registry: Registry, queue: QueueName, message: Message, payloads: Payloads | None) -> EnqueuedCall:
    body = message.body
    if payloads is not None:
        body = payloads.open_call(queue, message.task, message.id, body)
    envelope: Envelope = decode_call(body)
    definition = registry.get(message.task)
    if definition is not None:
        definition.rebuild(envelope.args, envelope.kwargs)
    return EnqueuedCall(
        id=message.id,
        task=message.task,
        queue=queue,
        args=tuple(envelope.args),
        kwargs=envelope.kwargs,
        headers=dict(envelope.headers),
        priority=message.priority,
        is_delayed=message.due is not None,
    )
