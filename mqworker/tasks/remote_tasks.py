"""Tasks whose code is elsewhere: made of what their workers published, for `app.send` and for the console."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mqworker.model.assembled_call import Origin
from mqworker.model.clock import Clock
from mqworker.model.message import Message
from mqworker.model.names import MessageId, TaskName, task_name
from mqworker.queues.work.keys import tasks_key
from mqworker.store.script import RawReply
from mqworker.store.store import Store
from mqworker.tasks.connections import Connections, Sender
from mqworker.tasks.foreign_queues import ModelSender
from mqworker.tasks.hooks import Hooks
from mqworker.tasks.options import CallPlan, TaskOptions
from mqworker.tasks.published_tasks import PublishedTask, decode_published_tasks
from mqworker.tasks.registry import TaskDefinition
from mqworker.tasks.task import Task

READ_AGAIN_MS, MISSED_AGAIN_MS = 10_000, 1_000


# Any: what it takes and returns is known to its code, which is elsewhere.
class RemoteTask(Task[..., Any]):
    """A task that can only be enqueued."""

    def __init__(
        self, published: PublishedTask, connections: Connections, hooks: Hooks, plan: CallPlan | None = None
    ) -> None:
        super().__init__(published.definition, connections, hooks, plan)
        self._published = published

    def message(
        self,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        sender: Sender | ModelSender,
        fresh: MessageId | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        origin: Origin | None = None,
    ) -> Message:
        """The call as a message, checked against what was published."""
        self._published.check(args, kwargs)
        return super().message(args, kwargs, sender, fresh, headers, origin=origin)

    def planned(self, plan: CallPlan) -> RemoteTask:
        """The same task with another plan for its calls."""
        return RemoteTask(self._published, self.connections, self._hooks, plan)


class RemoteTasks:
    """What is published, read when it is needed and kept for a moment."""

    def __init__(self, connections: Connections, hooks: Hooks, clock: Clock) -> None:
        self._connections = connections
        self._hooks = hooks
        self._clock = clock
        self._tasks: dict[str, PublishedTask] = {}
        self._read_at_ms: int | None = None

    def task(self, name: str) -> Task[..., Any]:
        """A task by its name; one that nobody published takes any arguments, in the default queue."""
        now_ms = self._clock.monotonic_ms()
        # One that is not known may be published in this very moment: its workers start.
        age_ms = MISSED_AGAIN_MS if task_name(name) not in self._tasks else READ_AGAIN_MS
        if self._read_at_ms is None or now_ms - self._read_at_ms >= age_ms:
            self._tasks = read_published_tasks(self._connections.store, self._connections.namespace)
            self._read_at_ms = now_ms
        found = self._tasks.get(task_name(name))
        if found is not None:
            if found.queue_running is not None:
                queue = found.definition.options.queue
                self._connections.running_by_queue.setdefault(queue, found.queue_running)
            return RemoteTask(found, self._connections, self._hooks)
        return Task(_unchecked(task_name(name)), self._connections, self._hooks)


def read_published_tasks(store: Store, namespace: str) -> dict[str, PublishedTask]:
    """All tasks that workers published, by name."""
    key = tasks_key(namespace)
    reply: RawReply = store.send([("HGETALL", key)], key)[0]
    return decode_published_tasks(dict(zip(reply[::2], reply[1::2], strict=True)))


def _unchecked(name: TaskName) -> TaskDefinition:
    def call(*args: object, **kwargs: object) -> None:
        """Nothing is known of it."""
        del args, kwargs

    return TaskDefinition(name, call, TaskOptions())
