"""Connections of an app: made when first needed, shared by all its tasks; asynchronous ones per loop."""

from __future__ import annotations

import asyncio
import difflib
import os
import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from mqworker.errors import InvalidArgument, MqworkerError, NotSupported, StoreUnavailable
from mqworker.log import get_logger
from mqworker.model.clock import Clock
from mqworker.model.keyring import Keyring
from mqworker.model.message import Enqueued, Message
from mqworker.model.names import QueueName
from mqworker.queues.catalogue import Model, open_queue
from mqworker.queues.work.async_queue import AsyncWorkQueue
from mqworker.queues.work.calls import WorkQueueOptions
from mqworker.queues.work.keys import queues_key
from mqworker.queues.work.queue import WorkQueue
from mqworker.queues.work.steps import WorkQueueSteps
from mqworker.settings import Settings, refuse_embedded
from mqworker.store.async_store import AsyncStore
from mqworker.store.embedded.share import ensure_server, find_server
from mqworker.store.link.address import ServerAddress, parse_address
from mqworker.store.link.async_connection import open_async_connection
from mqworker.store.link.cluster_connection import ClusterConnection
from mqworker.store.link.connection import open_connection
from mqworker.store.link.subscription import Subscription
from mqworker.store.procedure import Procedure, ResultT
from mqworker.store.store import Store
from mqworker.tasks.foreign_queues import ModelSender
from mqworker.tasks.job import Job, ResultWatch
from mqworker.tasks.job_steps import JobSteps
from mqworker.tasks.offload.places import Place
from mqworker.tasks.payloads import Payloads, check_size, payloads_of
from mqworker.tasks.registry import TaskDefinition

if TYPE_CHECKING:
    from mqworker.tasks.outbox.outbox import Outbox
    from mqworker.tasks.tracing.sending import SendTracer


class Sender:
    """Sends to one queue, and has what a job of that queue needs."""

    def __init__(
        self,
        work: WorkQueue,
        watch: ResultWatch,
        settings: Settings,
        async_work: Callable[[], AsyncWorkQueue],
        tracer: SendTracer | None = None,
        *,
        payloads: Payloads | None = None,
        connections: Connections | None = None,
    ) -> None:
        """`async_work` is the same queue for the event loop that runs there."""
        self.connections = connections
        """Of the app, for what leads from this queue to others."""
        self.payloads = payloads
        """None where payloads are stored as they are."""
        self.tracer = tracer
        """None while tracing is off."""
        self.work = work
        self.steps = JobSteps(WorkQueueSteps(work.calls, settings.namespace), payloads)
        self.watch = watch
        self.max_message_bytes = settings.max_message_bytes
        self.max_crashes = settings.max_crashes
        self.is_cluster = isinstance(work.store.connection, ClusterConnection)
        self._async_work = async_work
        self._is_registered = False
        self._calls = work.calls
        self._run = work.store.run

    def check_size(self, task: str, size: int) -> None:
        """Refuse arguments that are too large, here and where large ones are kept."""
        check_size(task, size, self.max_message_bytes, self.payloads)

    def send(self, message: Message) -> Enqueued:
        """Store one message: the shortest way there is, after the first."""
        try:
            if not self._is_registered:
                self.register()
            return self._run(self._calls.enqueue_one(message))
        except StoreUnavailable as error:
            raise whether_stored(error) from error

    def register(self) -> None:
        """Make the queue known, for those who store by calls of their own."""
        if not self._is_registered:
            namespace, queue = self.work.calls.keys.prefix.partition(":{")[0], self.work.name
            self.work.store.send([("SADD", queues_key(namespace), queue)], queues_key(namespace))
            self._is_registered = True

    def send_many(self, messages: Sequence[Message]) -> list[Enqueued]:
        """Store messages, one round trip per thousand."""
        try:
            return self.work.enqueue(*messages)
        except StoreUnavailable as error:
            raise whether_stored(error) from error

    async def asend(self, *messages: Message) -> list[Enqueued]:
        """The same from an event loop."""
        return await send_async(self._async_work(), *messages)

    def job(
        self, stored: Enqueued, definition: TaskDefinition
    ) -> Job[Any]:  # Any: the task gives it its type
        """The handle of what was sent."""
        return Job(stored.id, self, definition, is_new=stored.is_new)

    def follow(self, procedure: Procedure[ResultT]) -> ResultT:
        """Carry out a procedure of a job."""
        return self.work.store.follow(procedure)

    async def afollow(self, procedure: Procedure[ResultT]) -> ResultT:
        """The same without blocking the event loop that runs here."""
        return await self._async_work().store.follow(procedure)


class Connections:
    """Stores and queues of one app. Safe between threads; a forked child may go on using them."""

    def __init__(self, settings_of: Callable[[], Settings], clock: Clock) -> None:
        self._settings_of = settings_of
        self._clock = clock
        self._lock = threading.RLock()
        self._address: ServerAddress | None = None
        self._store: Store | None = None
        self._senders: dict[QueueName, Sender] = {}
        self._async_queues: WeakKeyDictionary[
            asyncio.AbstractEventLoop, tuple[AsyncStore, dict[QueueName, AsyncWorkQueue]]
        ] = WeakKeyDictionary()
        self.is_patient = False
        """In a worker: a task that enqueues sits out an outage: nobody waits in front of a screen."""
        self.declared_queues: Callable[[], Collection[QueueName]] = tuple
        """Names that the app has given: to tasks, or by `app.queue`."""
        self.queues_known_only = False
        self._noted_queues: set[QueueName] = set()
        self.limit_by_queue: dict[QueueName, int] = {}
        self.running_by_queue: dict[QueueName, int] = {}
        """How many messages of a queue run at once, where it says so."""
        self.models: dict[QueueName, Model] = {}
        """Queues of other models than the work queue."""
        self._model_senders: dict[tuple[int, QueueName], ModelSender] = {}
        self.outbox: Outbox | None = None
        """Where calls of a transaction go; None unless the app has one."""
        self.keyring: Keyring | None = None
        self.place: Place | None = None
        """As the app was given them; else the settings say."""
        self._payloads: dict[int, Payloads | None] = {}

    @cached_property
    def tracer(self) -> SendTracer | None:
        """Makes spans of what is sent; None while tracing is off. A worker sets its own."""
        if self._settings_of().otel == "off":
            return None
        from mqworker.tasks.tracing.sending import SendTracer  # noqa: PLC0415 - only where tracing is on

        return SendTracer(creates=self._settings_of().otel_create == "yes")

    @property
    def payloads(self) -> Payloads | None:
        """Signs, encrypts or offloads what is sent; None where payloads are stored as they are."""
        settings = self._settings_of()
        if id(settings) not in self._payloads:  # a worker lets its app adopt others
            self._payloads[id(settings)] = payloads_of(settings, self.keyring, self.place)
        return self._payloads[id(settings)]

    @property
    def namespace(self) -> str:
        """What all keys begin with."""
        return self._settings_of().namespace

    @property
    def store(self) -> Store:
        """The synchronous store; the first use starts the embedded server where no URL is configured."""
        with self._lock:
            if self._store is None:
                settings = self._settings_of()
                patience = self._patience()
                connection = open_connection(
                    self._found_address(),
                    connect_timeout_s=patience.connect_s,
                    read_timeout_s=patience.read_s,
                    client_name="mqworker",
                )
                self._store = Store(
                    connection,
                    retry_for_ms=patience.retry_for_ms,
                    clock=self._clock,
                    bring_up=self._bring_up(settings),
                )
            return self._store

    def sender(self, queue: QueueName, *, within: object | None = None) -> Sender:
        """The way into a queue; `within` a transaction by way of the outbox, which asks nothing of Redis."""
        if within is not None:
            return self._sender_within(queue, within)
        known = self._senders.get(queue)
        return self._open_sender(queue) if known is None else known

    def check_outbox(self, queue: QueueName) -> None:
        """Raise `NotSupported` where calls of a transaction have no way into the queue."""
        self.refuse_other_models(queue, "the outbox")
        if self.outbox is None:
            raise NotSupported(
                f"connection has no place in queue {queue}, which is a work queue; accepted is one after "
                "app.outbox(engine), and for queues with model=Gq(url=...)"
            )

    def known_sender(self, queue: QueueName, *, within: object | None = None) -> Sender | None:
        """The same where it is open already: this never blocks."""
        return self._senders.get(queue) if within is None else self._sender_within(queue, within)

    def model_sender(self, queue: QueueName) -> ModelSender | None:
        """The way into a queue of another model; None for a work queue."""
        model = self.models.get(queue)
        if model is None:
            return None
        # By process: the pool of a database must not be shared with the child of a fork.
        at = (os.getpid(), queue)
        with self._lock:
            if at not in self._model_senders:
                opened = open_queue(queue, model, self.store, self.namespace)
                self._model_senders[at] = ModelSender(
                    queue, model, opened, self.beside(queue), self._settings_of(), payloads=self.payloads
                )
            return self._model_senders[at]

    def beside(self, queue: QueueName) -> WorkQueue:
        """Where we keep what is said about running tasks, whatever the model of their queue."""
        return WorkQueue(queue, self.store, self._queue_options())

    def note_queue(self, queue: QueueName) -> None:
        """A call names this queue: one that the app does not know may be a slip, and nobody works on it."""
        if queue in self._noted_queues:
            return
        known = self.declared_queues()
        if known and queue not in known:
            close = difflib.get_close_matches(queue, known, n=1)
            hint = f"did you mean {close[0]}?" if close else f"known are {', '.join(sorted(known))}"
            if self.queues_known_only:
                raise InvalidArgument(
                    f"queue is {queue!r}, which no task and no app.queue(...) names; {hint} "
                    "(queues_known_only)"
                )
            get_logger(part="producer").warning(
                "queue_undeclared", queue=queue, problem="no task and no app.queue(...) names it", hint=hint
            )
        self._noted_queues.add(queue)

    def refuse_other_models(self, queue: QueueName, what: str) -> None:
        """Raise `NotSupported` unless the queue is a work queue."""
        if queue in self.models:
            raise NotSupported(f"{what} needs a work queue; queue {queue} is {self.models[queue].title}")

    def _sender_within(self, queue: QueueName, session: object) -> Sender:
        from mqworker.tasks.outbox.outbox import OutboxSender  # noqa: PLC0415 - imports this module

        self.check_outbox(queue)
        usual = self._senders.get(queue) or self._new_sender(queue)
        assert self.outbox is not None  # noqa: S101 - looked at a line above
        return OutboxSender(usual, self.outbox, session)

    def _open_sender(self, queue: QueueName) -> Sender:
        self.refuse_other_models(queue, "this call")
        with self._lock:
            if queue not in self._senders:
                sender = self._new_sender(queue)
                if queue in self.limit_by_queue:
                    sender.work.limit(self.limit_by_queue[queue])
                self._senders[queue] = sender
            return self._senders[queue]

    def _new_sender(self, queue: QueueName) -> Sender:
        work = WorkQueue(queue, self.store, self._queue_options())
        return Sender(
            work,
            ResultWatch(work, self._clock),
            self._settings_of(),
            partial(self.async_queue, queue),
            self.tracer,
            payloads=self.payloads,
            connections=self,
        )

    def listen(self, channel: str) -> Subscription | None:
        """Hear what is told on a channel; None where the server does not allow it: then asking must do."""
        with suppress(MqworkerError):
            return self.store.connection.subscribe([channel])
        return None

    def async_queue(self, queue: QueueName) -> AsyncWorkQueue:
        """A queue for the event loop that runs here."""
        loop = asyncio.get_running_loop()
        with self._lock:
            if loop not in self._async_queues:
                self._async_queues[loop] = (self._async_store(), {})
            store, queues = self._async_queues[loop]
            if queue not in queues:
                queues[queue] = AsyncWorkQueue(queue, store, self._queue_options())
            return queues[queue]

    def close(self) -> None:
        """Close the synchronous connections; a later use opens them again."""
        with self._lock:
            store, self._store = self._store, None
            senders, self._senders = self._senders, {}
            others, self._model_senders = self._model_senders, {}
        for sender in senders.values():
            sender.watch.close()
        for (pid, _), other in others.items():
            if pid == os.getpid():
                other.close()
        if store is not None:
            store.close()

    async def aclose(self) -> None:
        """Close the connections of the event loop that runs here."""
        with self._lock:
            known = self._async_queues.pop(asyncio.get_running_loop(), None)
        if known is not None:
            await known[0].close()

    def _async_store(self) -> AsyncStore:
        settings, patience = self._settings_of(), self._patience()
        connection = open_async_connection(
            self._found_address(),
            connect_timeout_s=patience.connect_s,
            read_timeout_s=patience.read_s,
            client_name="mqworker",
        )
        return AsyncStore(
            connection,
            retry_for_ms=patience.retry_for_ms,
            clock=self._clock,
            bring_up=self._bring_up(settings),
        )

    def _bring_up(self, settings: Settings) -> Callable[[], object] | None:
        # The embedded server ends with the last node that shared it; a producer that lives on starts it anew.
        return None if settings.redis_url is not None else partial(ensure_server, settings.data_dir)

    def _patience(self) -> Patience:
        settings = self._settings_of()
        if self.is_patient:
            return Patience(settings.connect_timeout_s, settings.read_timeout_s, _ms(settings.retry_for_s))
        # One connection that is not answered must leave time for another try.
        limit_s = settings.send_timeout_s
        return Patience(
            min(settings.connect_timeout_s, limit_s / 3),
            min(settings.read_timeout_s, limit_s),
            min(_ms(settings.retry_for_s), _ms(limit_s)),
        )

    def _found_address(self) -> ServerAddress:
        if self._address is None:
            settings = self._settings_of()
            self._address = parse_address(settings.redis_url or self._embedded_server(settings))
        return self._address

    def _embedded_server(self, settings: Settings) -> str:
        refuse_embedded(settings)
        if find_server(settings.data_dir) is None:
            get_logger(part="producer").warning(
                "embedded_server_started",
                data_dir=str(settings.data_dir.absolute()),
                problem="no Redis is configured, so this process starts a server of its own; a node that "
                "runs elsewhere, or in another directory, never sees what is enqueued here",
                to_do="set MQWORKER_REDIS_URL; MQWORKER_EMBEDDED=never makes this an error",
            )
        return ensure_server(settings.data_dir)

    def _queue_options(self) -> WorkQueueOptions:
        settings = self._settings_of()
        return WorkQueueOptions(settings.namespace, settings.events_kept, _ms(settings.dedup_window_s))


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a connection waits for what."""

    connect_s: float
    read_s: float
    retry_for_ms: int


async def send_async(queue: AsyncWorkQueue, *messages: Message) -> list[Enqueued]:
    """Store messages from an event loop."""
    try:
        return await queue.enqueue(*messages)
    except StoreUnavailable as error:
        raise whether_stored(error) from error


def whether_stored(error: StoreUnavailable) -> StoreUnavailable:
    """The same, and whether the call is stored."""
    said = (
        "it is not known whether the call was stored: with using(id=...) it can be sent again"
        if error.maybe_executed
        else "nothing was stored"
    )
    return StoreUnavailable(f"{error}; {said}", maybe_executed=error.maybe_executed)


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
