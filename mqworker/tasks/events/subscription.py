"""`@app.subscribe`: tasks that take every event of a topic, as a message of their own like any other.

Only workers import the application, so they register its subscriptions when they start. From then on every
event that is published (publisher.py) comes; what was kept for want of subscribers comes first. What
an app no longer has is gone with the next registration.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Protocol, cast

from mqworker.errors import ConfigurationError, InvalidArgument
from mqworker.model.assembled_call import Origin
from mqworker.model.call_template import CallTemplate
from mqworker.store.script import Call, scripts_of
from mqworker.tasks.connections import Connections
from mqworker.tasks.decorator import Attachment, TaskHome
from mqworker.tasks.events.event import SubscriberName, TopicName, subscriber_name, topic_name
from mqworker.tasks.events.keys import EventKeys, subscriptions_key
from mqworker.tasks.events.publisher import make_known
from mqworker.tasks.task import Task

script = scripts_of(__package__)

Subscriptions = dict[TopicName, dict[SubscriberName, "Task[..., Any]"]]
"""By topic: the tasks of an app that subscribe."""


class SubscriptionHome(TaskHome, Protocol):
    """What a subscription needs of its app."""

    @property
    def name(self) -> str:
        """Under which its subscriptions are registered."""

    @property
    def subscriptions(self) -> Subscriptions:
        """Where they are known."""


class SubscribeDecorator:
    """`@app.subscribe("orders.placed")`, on a function or above `@app.task`."""

    def __init__(self, home: Callable[[], SubscriptionHome]) -> None:
        self._home = home

    def __call__(self, *topics: str) -> Attachment:
        """Let a task take every event of these topics; the event is its first argument."""
        if not topics:
            raise InvalidArgument("subscribe names no topic; accepted are one or more")
        names, home = [topic_name(topic) for topic in topics], self._home()

        def subscribe(task: Task[..., Any]) -> None:
            _check_subscriber(task)
            subscriber = subscriber_name(home.name, task.name)
            for name in names:
                home.subscriptions.setdefault(name, {})[subscriber] = task

        return Attachment(home, subscribe)


def register_subscriptions(home: SubscriptionHome) -> int:
    """Tell publishers of all subscriptions of an app, in place of those it had before; how many."""
    connections = home.connections
    store, own = connections.store, subscriptions_key(connections.namespace)
    # Asked once, without patience: a worker has other things to do while Redis is away.
    before = cast("bytes | None", store.connection.execute([("HGET", own, home.name)], own)[0])
    known = {TopicName(topic) for topic in (before or b"").decode(errors="replace").split()}
    if not known and not home.subscriptions:
        return 0
    # Noted before and after, so that a topic is never subscribed without standing here.
    _note_topics(home, known | home.subscriptions.keys())
    for topic in sorted(known | home.subscriptions.keys()):
        tasks = home.subscriptions.get(topic, {})
        make_known(connections, topic)
        store.run(_subscribe(connections, home.name, topic, tasks))
    _note_topics(home, set(home.subscriptions))
    return sum(len(tasks) for tasks in home.subscriptions.values())


def _subscribe(
    connections: Connections, app: str, topic: TopicName, tasks: Mapping[SubscriberName, Task[..., Any]]
) -> Call[int]:
    arguments = [f"{app}/"]
    for name, task in tasks.items():
        sender = connections.sender(task.plan.queue)
        origin = Origin("", f":{name}", is_exact=False, source=["event", topic])
        call = CallTemplate(task.plan.queue, task.message((None,), {}, sender, origin=origin))
        arguments += (name, json.dumps(call.as_fields()))
    keys = EventKeys.of(connections.namespace, topic)
    return Call(script("subscribe_tasks"), keys.shared, tuple(arguments), int)


def _note_topics(home: SubscriptionHome, topics: set[TopicName]) -> None:
    key = subscriptions_key(home.connections.namespace)
    command = ("HSET", key, home.name, " ".join(sorted(topics))) if topics else ("HDEL", key, home.name)
    home.connections.store.send([command], key)  # the same words again change nothing


def _check_subscriber(task: Task[..., Any]) -> None:
    """What depends on the arguments cannot be worked out where events are published, without the app."""
    task.definition.binding.check((None,), {})
    task.connections.refuse_other_models(task.plan.queue, f"the subscription of {task.name}")
    options = task.definition.options
    if options.unique is not None:
        raise ConfigurationError(f"{task.name} subscribes and is unique; accepted is one of the two")
    if options.limited_keys:
        raise ConfigurationError(
            f"{task.name} subscribes and has a rate or a batch with a key, or fair_by; accepted are those "
            "without one"
        )
