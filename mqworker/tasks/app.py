"""App: the tasks, queues and hooks of an application, and its connections, which open when first needed."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from mqworker.errors import ConfigurationError, InvalidArgument, NotSupported
from mqworker.model.annotation import Rebuild
from mqworker.model.clock import Clock, SystemClock
from mqworker.model.keyring import Keyring
from mqworker.model.names import QueueName, TaskName, message_id, queue_name, shown, task_name, whole_number
from mqworker.model.running import MOST_RUNNING
from mqworker.queues.catalogue import MODEL_TYPES, Model, check_name
from mqworker.queues.work.keys import workflow_key
from mqworker.queues.work.queue import WorkQueue
from mqworker.settings import Settings, load_settings
from mqworker.tasks.celery_names import NamesOfCelery
from mqworker.tasks.connections import Connections
from mqworker.tasks.context import State
from mqworker.tasks.decorator import TaskDecorator
from mqworker.tasks.events.publisher import EventPublisher
from mqworker.tasks.events.subscription import SubscribeDecorator, Subscriptions
from mqworker.tasks.foreign_queues import ModelJob, check_task
from mqworker.tasks.hooks import Hooks
from mqworker.tasks.injection import Injection
from mqworker.tasks.job import Job
from mqworker.tasks.offload.places import Place
from mqworker.tasks.options import DEFAULT_QUEUE
from mqworker.tasks.outbox.outbox import Outbox
from mqworker.tasks.producer import Producer
from mqworker.tasks.registry import Registry
from mqworker.tasks.remote_tasks import RemoteTasks
from mqworker.tasks.schedules.schedule import ScheduleDecorator
from mqworker.tasks.schedules.schedules import Schedules
from mqworker.tasks.surroundings import Surroundings
from mqworker.tasks.task import Task
from mqworker.tasks.workflows.job import WorkflowJob
from mqworker.tasks.workflows.plan import stored_plan


@dataclass(frozen=True, slots=True)
class QueueDeclaration:
    """What an app says about a queue."""

    name: QueueName
    weight: int = 1
    """Its share beside the other queues of a node: one of weight 3 is asked three times as often."""
    limit: int | None = None
    """How many messages may wait in it; one more is refused with `QueueFull`."""
    model: Model | None = None
    """By which rules it delivers; None for a work queue."""
    max_running: int | None = None
    """How many of its messages run at once, over all nodes."""


class App(NamesOfCelery):
    """An application: `app = App("shop")`, then `@app.task`."""

    def __init__(
        self,
        name: str = "app",
        *,
        settings: Settings | None = None,
        redis_url: str | None = None,
        clock: Clock | None = None,
        queues_known_only: bool = False,
        keys: Keyring | None = None,
        offload: Place | None = None,
    ) -> None:
        """Settings are read when they are first needed, unless given; `redis_url` wins over what they say.

        Without any URL the embedded server of the directory is used, and started if need be. With
        `queues_known_only` a call to a queue that no task and no `app.queue` names is refused; without it, a
        warning is logged. `keys` sign or encrypt what the app stores; `offload`, Files(...) or S3(...), keeps
        large payloads elsewhere. Both win over the settings of these names.
        """
        self.name = task_name(name)
        self.hooks = Hooks()
        self.injection = Injection()
        """Its providers, middleware and lifespans, as they are declared."""
        around = Surroundings(self.injection, self.hooks)
        self.lifespan, self.override, self.codec = around.lifespan, around.override, around.codec
        self.middleware, self.enqueue_middleware = around.middleware, around.enqueue_middleware
        self.queues: dict[QueueName, QueueDeclaration] = {}
        self.clock = clock or SystemClock()
        self.connections = Connections(lambda: self.settings, self.clock)
        self.connections.queues_known_only = queues_known_only
        self.connections.declared_queues = self._declared_queues
        self.connections.keyring, self.connections.place = keys, offload
        self.task = TaskDecorator(lambda: self)
        self.schedule = ScheduleDecorator(lambda: self)
        self.schedules = Schedules(self.connections)
        """Those of the code, and those that are made at run time."""
        self.subscribe = SubscribeDecorator(lambda: self)
        self.subscriptions: Subscriptions = {}
        events = EventPublisher(self.connections, lambda: self.settings)
        self.publish, self.apublish = events.publish, events.apublish
        self._given_settings = settings
        self._redis_url = redis_url
        self.registry = Registry()
        self._remote = RemoteTasks(self.connections, self.hooks, self.clock)

    @cached_property
    def settings(self) -> Settings:
        """All settings, read once."""
        settings = self._given_settings or load_settings({"redis_url": self._redis_url})
        if self._redis_url is not None:
            settings = replace(settings, redis_url=self._redis_url)
        self.registry.default_result_ttl_ms = round(settings.result_ttl_s * 1000)
        return settings

    def adopt(self, settings: Settings) -> None:
        """Go by a node's settings, as a worker does; what the app itself was given wins."""
        if self._given_settings is None and self._redis_url is None:
            self._given_settings = settings
            self.__dict__.pop("settings", None)  # in case the module of the app asked for them
        self.connections.is_patient = True
        _ = self.settings  # what follows from them is known from here on

    @property
    def state(self) -> State:
        """What the app keeps open in this process; `ctx.state` in its tasks."""
        return self.injection.state

    def queue(
        self,
        name: str,
        *,
        model: Model | None = None,
        weight: int = 1,
        limit: int | None = None,
        max_running: int | None = None,
    ) -> QueueDeclaration:
        """Declare a queue. Only one that wants another model, a weight or a limit needs it.

        `limit` is how many messages may wait in it, `max_running` how many run at once, over all nodes.
        """
        whole_number("weight", weight, least=1, most=1_000)
        if limit is not None:
            whole_number("limit", limit, least=1, most=2**53)
        if max_running is not None:
            whole_number("max_running", max_running, least=1, most=MOST_RUNNING)
        declared = QueueDeclaration(queue_name(name), weight, limit, model, max_running)
        known = self.queues.get(declared.name)
        if known is not None and known.model != model:
            raise ConfigurationError(
                f"queue {name} is declared twice, as {_title(known.model)} and as {_title(model)}; "
                "accepted is one model for a queue: declare it once, or alike"
            )
        if model is not None:
            self._follow_model(declared.name, model, limit)
        self._limit_running(declared)
        self.queues[declared.name] = declared
        if limit is not None:
            self.connections.limit_by_queue[declared.name] = limit
        return declared

    # Any: an Engine or AsyncEngine of SQLAlchemy, which is an extra.
    def outbox(self, engine: Any = None) -> Outbox:  # noqa: ANN401 - same
        """Let `task.using(session=...)` write calls into the transaction of a database of yours.

        They run once it has committed, and never if it rolls back: nodes with the setting outbox_url move
        them into Redis. With `engine`, `create_table()` of what is returned makes the tables, and jobs whose
        calls wait there say so.
        """
        self.connections.outbox = Outbox(engine)
        return self.connections.outbox

    def work_queue(self, name: str = DEFAULT_QUEUE) -> WorkQueue:
        """The queue itself, with all its verbs."""
        return self.connections.sender(queue_name(name)).work

    # Any: only whoever enqueued it knows what its task returns.
    def job(self, id: str, queue: str = DEFAULT_QUEUE) -> Job[Any]:  # noqa: A002 - what it is called
        """The handle of a message by its id."""
        sender = self.connections.model_sender(queue_name(queue))
        if sender is not None:
            return ModelJob(message_id(id), sender, is_new=None)
        return Job(message_id(id), self.connections.sender(queue_name(queue)), is_new=None)

    def workflow(self, id: str) -> WorkflowJob[Any]:  # noqa: A002 - what it is called
        """The handle of a workflow by its id, as long as the server knows of it."""
        workflow = message_id(id)
        key = workflow_key(self.connections.namespace, workflow)
        return WorkflowJob(
            workflow, self.connections, lambda: stored_plan(self.connections.store, key, self._rebuild_of)
        )

    # Any: what a task takes and returns is known to its code, which need not be here.
    def named(self, name: str) -> Task[..., Any]:
        """A task by its name, whether its code is here or not: `app.named("x").using(...).enqueue()`.

        One whose code is elsewhere is taken as its workers published it; read again after ten seconds. One
        that nobody published goes to the default queue, its arguments unchecked.
        """
        definition = self.registry.get(task_name(name))
        if definition is not None:
            return Task(definition, self.connections, self.hooks)
        return self._remote.task(name)

    def send(self, name: str, /, *args: object, **kwargs: object) -> Job[Any]:
        """Call a task by its name; the arguments are checked against what its workers published."""
        return self.named(name).enqueue(*args, **kwargs)

    # Any: as in Celery, nobody checks these types.
    def send_task(
        self,
        name: str,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        **options: Any,  # noqa: ANN401 - see above
    ) -> Job[Any]:
        """`named(name).apply_async(...)` by the name that Celery has for it."""
        return self.named(name).apply_async(args, kwargs, **options)

    async def asend(self, name: str, /, *args: object, **kwargs: object) -> Job[Any]:
        """`send` for asyncio."""
        task = await asyncio.to_thread(self.named, name)
        return await task.aenqueue(*args, **kwargs)

    def producer(self, *, push_batch: int = 500, linger: float = 0.05) -> Producer:
        """A producer that gathers calls and sends them in batches; see `Producer`."""
        return Producer(self.connections, self.clock, push_batch=push_batch, linger=linger)

    def close(self) -> None:
        """Close the synchronous connections."""
        self.connections.close()

    async def aclose(self) -> None:
        """Close the connections of the event loop that runs here."""
        await self.connections.aclose()

    def __repr__(self) -> str:
        """Its name."""
        return f"<App {self.name}>"

    def _follow_model(self, queue: QueueName, model: Model, limit: int | None) -> None:
        """Whatever was declared before must fit: a task, a schedule, a subscription."""
        if not isinstance(model, MODEL_TYPES):
            raise InvalidArgument(
                f"model is {shown(model)}; accepted are Rsmq(...), Gq(...) and CeleryQueue(...)"
            )
        check_name(queue, model)
        if limit is not None:
            raise NotSupported(
                f"limit: queue {queue} is {model.title}, which has no limit; accepted is a work queue"
            )
        for task in self.registry:
            if task.options.queue == queue:
                check_task(task.name, task.options, model)
        subscribers = [task for tasks in self.subscriptions.values() for task in tasks.values()]
        for each in [*subscribers, *(schedule.task for schedule in self.schedules.declared.values())]:
            if each.plan.queue == queue:
                raise NotSupported(
                    f"{each.name} has a schedule or a subscription and uses queue {queue}, which is "
                    f"{model.title}; accepted is a work queue"
                )
        self.connections.models[queue] = model
        if not model.reports_results:
            self.registry.queues_without_results.add(queue)

    def _limit_running(self, declared: QueueDeclaration) -> None:
        if declared.max_running is None:
            return
        if declared.model is not None:
            raise NotSupported(
                f"max_running: queue {declared.name} is {declared.model.title}, which cannot count what "
                "runs; accepted is a work queue"
            )
        self.connections.running_by_queue[declared.name] = declared.max_running

    def _declared_queues(self) -> set[QueueName]:
        of_tasks = {task.options.queue for task in self.registry}
        return {*self.queues, *of_tasks, DEFAULT_QUEUE} if self.queues or of_tasks else set()

    def _rebuild_of(self, task: TaskName) -> Rebuild | None:
        definition = self.registry.get(task)
        return None if definition is None else definition.rebuild_result


def _title(model: Model | None) -> str:
    return "a work queue" if model is None else repr(model)
