"""Marks of queues that are no work queues, so that whoever pushes into one of that name is refused.

RSMQ and gq keep their messages elsewhere: what RedisMQ's `push` puts into a work queue of the same name would
wait there for ever. Workers, which alone know the declarations of an app, mark such queues when they start.
"""

from __future__ import annotations

from mqworker.model.names import QueueName
from mqworker.queues.work.keys import WorkQueueKeys
from mqworker.tasks.app import App

_MARK = "model"


def publish_models(app: App) -> int:
    """Mark the queues of other models, and take the mark off those that are work queues; how many."""
    store, namespace = app.connections.store, app.connections.namespace
    names = {task.options.queue for task in app.registry} | set(app.queues)
    for name in sorted(names):
        model = app.connections.models.get(name)
        meta = WorkQueueKeys.of(namespace, QueueName(name)).meta
        command = ("HDEL", meta, _MARK) if model is None else ("HSET", meta, _MARK, model.title)
        # Once, without patience: the caller has other things to do while Redis is away.
        store.connection.execute([command], meta)
    return len(app.connections.models)
