"""`@app.subscribe`: tasks that take every event of a topic, as a message of their own like any other.

Only workers import the application, so they register its subscriptions when they start. From then on every
event that is published (event_publisher.py) comes; what was kept for want of subscribers comes first. What
an app no longer has is gone with the next registration.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, ParamSpec, Protocol, TypeVar, cast, overload

from mqworker.errors import ConfigurationError, InvalidArgument
from mqworker.model.call_template import CallTemplate
from mqworker.model.topic_event import SubscriberName, TopicName, subscriber_name, topic_name
from mqworker.store.event_keys import EventKeys, subscriptions_key
from mqworker.store.script import Call, script
from mqworker.tasks.connections import Connections
from mqworker.tasks.decorator import Registration, TaskHome
from mqworker.tasks.event_publisher import make_known
from mqworker.tasks.options import TaskOptions
from mqworker.tasks.task import AsyncTask, Task

P = ParamSpec("P")
R = TypeVar("R")
TaskT = TypeVar("TaskT", bound="Task[..., Any]")

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


class SubscriptionRegistration:
    """Subscribes a task, or a function that becomes one, to the topics that were given."""

    def __init__(self, home: SubscriptionHome, topics: tuple[TopicName, ...]) -> None:
        self._home = home
        self._topics = topics

    @overload
    def __call__(self, function: TaskT) -> TaskT: ...
    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]]) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R]) -> Task[P, R]: ...
    # Any: the overloads say what comes out.
    def __call__(self, function: Callable[..., Any]) -> Task[..., Any]:
        """Subscribe it; a plain function is registered as a task first."""
        if isinstance(function, Task):
            task: Task[..., Any] = function
        else:
            task = Registration(lambda: self._home, None, TaskOptions())(function)
        _check_subscriber(task)
        name = subscriber_name(self._home.name, task.name)
        for topic in self._topics:
            self._home.subscriptions.setdefault(topic, {})[name] = task
        return task


class SubscribeDecorator:
    """`@app.subscribe("orders.placed")`, on a function or above `@app.task`."""

    def __init__(self, home: Callable[[], SubscriptionHome]) -> None:
        self._home = home

    def __call__(self, *topics: str) -> SubscriptionRegistration:
        """Let a task take every event of these topics; the event is its first argument."""
        if not topics:
            raise InvalidArgument("subscribe names no topic; accepted are one or more")
        return SubscriptionRegistration(self._home(), tuple(topic_name(topic) for topic in topics))


def register_subscriptions(home: SubscriptionHome) -> int:
    """Tell publishers of all subscriptions of an app, in place of those it had before; how many."""
    connections = home.connections
    store, own = connections.store, subscriptions_key(connections.namespace)
    # Asked once, without patience: a worker has other things to do while Redis is away.
    before = cast("bytes | None", store.connection.execute([("HGET", own, home.name)], own)[0])
    known = {TopicName(topic) for topic in (before or b"").decode().split()}
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
        call = CallTemplate(task.plan.queue, task.message((None,), {}, sender))
        arguments += (name, json.dumps(call.as_fields()))
    keys = EventKeys.of(connections.namespace, topic)
    return Call(script("subscribe_tasks"), keys.shared, tuple(arguments), int)


def _note_topics(home: SubscriptionHome, topics: set[TopicName]) -> None:
    key = subscriptions_key(home.connections.namespace)
    command = ("HSET", key, home.name, " ".join(sorted(topics))) if topics else ("HDEL", key, home.name)
    home.connections.store.read([command], key)  # the same words again change nothing


def _check_subscriber(task: Task[..., Any]) -> None:
    """What depends on the arguments cannot be worked out where events are published, without the app."""
    task.definition.binding.check((None,), {})
    options = task.definition.options
    if options.unique is not None:
        raise ConfigurationError(f"{task.name} subscribes and is unique; accepted is one of the two")
    if any(rate.key is not None for rate in options.rates):
        raise ConfigurationError(
            f"{task.name} subscribes and has a rate with a key; accepted are rates without one"
        )
