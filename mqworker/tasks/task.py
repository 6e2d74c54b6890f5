"""Task: a function that can also be enqueued. A call becomes a message here."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from typing import Any, Concatenate, Generic, Never, ParamSpec, Self, TypeAlias, TypeVar, overload

from mqworker.errors import ConfigurationError, InvalidArgument, InvalidMessage, NotSupported
from mqworker.model.assembled_call import Origin
from mqworker.model.envelope import CallOptions, decode_call, encode_call, explain, with_headers
from mqworker.model.guard import Guard, chosen_id_guard
from mqworker.model.limits import limits_of, with_queue_limit
from mqworker.model.message import Enqueued, Message
from mqworker.model.names import MessageId, TaskName, queue_name, shown
from mqworker.model.unique import Unique, guard_of
from mqworker.model.value_codec import NotAccepted
from mqworker.tasks import celery_names
from mqworker.tasks.batch_call import batch_key_of, context_of_call
from mqworker.tasks.celery_names import NamesOfCelery
from mqworker.tasks.connections import Connections, Sender
from mqworker.tasks.context import Context
from mqworker.tasks.foreign_queues import ModelJob, ModelSender, check_call
from mqworker.tasks.hooks import Hooks, OutgoingCall
from mqworker.tasks.ids import next_id, next_ids
from mqworker.tasks.job import Job
from mqworker.tasks.options import AS_SET, CallPlan, Seconds, Wishes, plan_of, plan_with
from mqworker.tasks.registry import TaskDefinition
from mqworker.tasks.running.direct_call import call_here
from mqworker.tasks.signature import Signature

P = ParamSpec("P")
Rest = ParamSpec("Rest")
R = TypeVar("R")

BATCH = 1_000

_POSITIONAL = (tuple, list)
_Arguments: TypeAlias = tuple[Sequence[Any], Mapping[str, Any]]
_Call: TypeAlias = Sequence[Any] | Mapping[str, Any] | Signature[R]


class Task(NamesOfCelery, Generic[P, R]):
    """A registered function. Called like one it runs here; enqueued it runs in a worker."""

    def __init__(
        self, definition: TaskDefinition, connections: Connections, hooks: Hooks, plan: CallPlan | None = None
    ) -> None:
        functools.update_wrapper(self, definition.function)
        self.definition = definition
        self.plan = plan or plan_of(definition.options)
        self.connections = connections
        self._hooks = hooks
        self._check = definition.binding.check
        self._is_limited = definition.options.is_limited
        self._batch = definition.options.batch
        unique = self.plan.unique
        self._due = self.plan.due or (None if unique is None else unique.due)
        # Nearly all calls want nothing but their turn.
        self._is_plain = self.plan.id is None and self.plan.unique is None

    @property
    def name(self) -> TaskName:
        """The name under which it is registered and stored."""
        return self.definition.name

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run it here and now, like the function that it is."""
        result: R = self._call(args, kwargs)
        return result

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Store the call as a message; a worker runs it. The arguments are checked here."""
        if self._hooks.wrapping:
            return self._enqueue_wrapped(args, kwargs)
        return self._enqueue(args, kwargs)

    # Any: the user's own values, typed by the methods that call this.
    def _enqueue(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Job[R]:
        if self.plan.queue in self.connections.models:
            return self._send_to_model([(args, kwargs)])[0]
        sender = self.connections.sender(self.plan.queue, within=self.plan.connection)
        if sender.tracer is None:
            stored = sender.send(self.message(args, kwargs, sender))
        else:
            with sender.tracer.sending(self.plan.queue, self.name) as sending:
                stored = sender.send(self.message(args, kwargs, sender, headers=sending.headers))
                sending.stored_as(stored.id)
        return sender.job(stored, self.definition)

    def delay(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """`enqueue` by the name that Celery has for it."""
        return self.enqueue(*args, **kwargs)

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """`enqueue` for asyncio."""
        if self._hooks.wrapping:
            with self._hooks.sending(self._outgoing(args, kwargs)) as call:
                job = await Task._aenqueue(self._hooked_by(call), args, kwargs)
                call.id = job.id
                return job
        return await self._aenqueue(args, kwargs)

    async def _aenqueue(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Job[R]:  # Any: as above
        if self.plan.queue in self.connections.models:
            if self.plan.connection is not None:  # the caller's, who would not like it in another thread
                return self._enqueue(args, kwargs)
            return await asyncio.to_thread(self._enqueue, args, kwargs)
        sender = await self._asender()
        if sender.tracer is None:
            stored = (await sender.asend(self.message(args, kwargs, sender)))[0]
        else:
            with sender.tracer.sending(self.plan.queue, self.name) as sending:
                message = self.message(args, kwargs, sender, headers=sending.headers)
                stored = (await sender.asend(message))[0]
                sending.stored_as(stored.id)
        return sender.job(stored, self.definition)

    def using(
        self,
        *,
        delay: Seconds | datetime | None = None,
        deadline: Seconds | datetime | None = None,
        priority: int | None = None,
        queue: str | None = None,
        id: str | None = None,  # noqa: A002 - what it is called everywhere else
        headers: Mapping[str, str] | None = None,
        timeout: Seconds | None = None,
        unique: Unique | str | bool | None = None,
        connection: object | None = None,
        tags: Iterable[str] = (),
        session: object | None = None,
    ) -> Self:
        """The same task with other options for its calls: `send.using(delay=60, priority=9).enqueue(...)`.

        `delay` and `deadline` are seconds from now or aware datetimes. A repeated `id` is not stored again.
        `tags` are words to find the job by, on top of those of the task.
        With a `session` (or `connection`, the same) the call joins its transaction, by `app.outbox(...)` or
        in a queue with `model=Gq(url=...)`: it is there when that commits, and not if it rolls back.
        """
        connection = connection if session is None else session
        wishes = Wishes(
            delay, deadline, priority, queue, id, headers or {}, timeout, unique, connection, tags
        )
        plan = plan_with(self.plan, wishes)
        if queue is not None:
            self.connections.note_queue(plan.queue)
        if connection is not None and plan.queue not in self.connections.models:
            self.connections.check_outbox(plan.queue)
        return self.planned(plan)

    def apply_async(
        self,
        args: Sequence[Any] = (),  # Any: as in Celery, nobody checks these types
        kwargs: Mapping[str, Any] | None = None,
        *,
        countdown: Seconds | None = None,
        eta: datetime | None = None,
        expires: Seconds | datetime | None = None,
        priority: int | None = None,
        queue: str | None = None,
        task_id: str | None = None,
        headers: Mapping[str, str] | None = None,
        **others: Never,
    ) -> Job[R]:
        """`using(...).enqueue(...)` with the keywords of Celery, of which 9 is the most urgent priority."""
        celery_names.check_call(countdown, eta, others)
        wishes = Wishes(
            eta if countdown is None else countdown, expires, priority, queue, task_id, headers or {}
        )
        if queue is not None:
            self.connections.note_queue(queue_name(queue))
        task: Task[..., R] = self.planned(plan_with(self.plan, wishes))
        return task.enqueue(*args, **(kwargs or {}))

    def enqueue_many(self, calls: Iterable[Sequence[Any] | Mapping[str, Any] | Signature[R]]) -> list[Job[R]]:
        """Store many calls, one round trip per thousand: each a tuple of arguments, or a dict by name.

        `task.si(...)` will do as well, whose arguments a type checker looks at. All arguments of a thousand
        are checked before any of it is stored. When one thousand cannot be stored, the error is raised and
        those before it stay.
        """
        self._refuse_one_id()
        if self.plan.queue in self.connections.models:
            return self._send_many_to_model(calls)
        sender = self.connections.sender(self.plan.queue, within=self.plan.connection)
        jobs: list[Job[R]] = []
        remaining = iter(calls)
        while batch := [self._arguments(call) for call in islice(remaining, BATCH)]:
            with self._sending_batch(sender, batch) as sending:
                stored = sending.stored = sender.send_many(sending.messages)
            jobs += [sender.job(each, self.definition) for each in stored]
        return jobs

    async def aenqueue_many(
        self, calls: Iterable[Sequence[Any] | Mapping[str, Any] | Signature[R]]
    ) -> list[Job[R]]:
        """`enqueue_many` for asyncio."""
        self._refuse_one_id()
        if self.plan.queue in self.connections.models:
            return await asyncio.to_thread(self._send_many_to_model, calls)
        sender = await self._asender()
        jobs: list[Job[R]] = []
        remaining = iter(calls)
        while batch := [self._arguments(call) for call in islice(remaining, BATCH)]:
            with self._sending_batch(sender, batch) as sending:
                stored = sending.stored = await sender.asend(*sending.messages)
            jobs += [sender.job(each, self.definition) for each in stored]
        return jobs

    def map(self, values: Iterable[Any]) -> list[Job[R]]:
        """One call for each value, which is its only argument."""
        return self.enqueue_many((value,) for value in values)

    # Any: a DataFrame of PySpark, which mqworker itself never imports.
    def map_on_spark(self, frame: Any, *, column: str = "result") -> Any:  # noqa: ANN401 - same
        """The frame with one more column, what the task returns for each row; its columns are the arguments.

        Spark runs it, not a worker: there is no message, hence no ack, retry, rate limit or deadline.
        """
        try:
            from mqworker_services.pipeline.mapping import map_on_spark  # noqa: PLC0415 - optional
        except ImportError as error:
            raise ConfigurationError("map_on_spark needs PySpark: pip install 'mqworker[spark]'") from error
        return map_on_spark(self.definition.function, frame, column)

    @overload
    def s(self, *args: P.args, **kwargs: P.kwargs) -> Signature[R]: ...
    @overload
    def s(self: Task[Concatenate[Any, Rest], R], *args: Rest.args, **kwargs: Rest.kwargs) -> Signature[R]: ...
    @overload
    def s(
        self: Task[Concatenate[Any, Any, Rest], R], *args: Rest.args, **kwargs: Rest.kwargs
    ) -> Signature[R]: ...
    def s(self, *args: Any, **kwargs: Any) -> Signature[R]:  # Any: the overloads say what
        """The call as a value, for workflows: with all arguments, or without the first, its inputs."""
        self.definition.binding.check_with_inputs(args, kwargs)
        return Signature(self, args, kwargs)

    def si(self, *args: P.args, **kwargs: P.kwargs) -> Signature[R]:
        """The same for a call that takes no input from the step before it."""
        self._check(args, kwargs)
        return Signature(self, args, kwargs, is_immutable=True)

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
        """The call as a message, checked; for whoever stores it. `fresh` is an id for one that has none.

        `headers` go along if there is room for them: a trace must not make a call fail. `origin` says of a
        call that a broker makes later, under which id and with which input.
        """
        plan, name = self.plan, self.definition.name
        self._check(args, kwargs)
        extra = self._hooked(plan) if self._hooks.enqueueing else plan.extra
        try:
            body = encode_call(args, kwargs, extra)
        except NotAccepted as refused:
            raise explain(refused, name, self.definition.binding.as_given(args, kwargs)) from refused
        if self.definition.rebuilds:
            self._check_values(body, plan)
        if len(body) > sender.max_message_bytes:
            sender.check_size(name, len(body))
        if headers:
            longer = with_headers(body, headers)
            body = longer if len(longer) <= sender.max_message_bytes else body
        message = plan.id or fresh or next_id()
        if sender.payloads is not None:
            body = sender.payloads.close_message(plan.queue, name, message, body, origin)
        max_crashes = sender.max_crashes if plan.max_crashes == AS_SET else plan.max_crashes
        guard = None if self._is_plain else self._guard(args, kwargs)
        most_of_queue = self.connections.running_by_queue.get(plan.queue)
        limits = None
        if self._is_limited or most_of_queue is not None:
            limits = self._limits(args, kwargs, sender, most_of_queue)
        key = None if self._batch is None else batch_key_of(self.definition, plan, args, kwargs)
        due, deadline = self._due, plan.deadline
        return Message(message, body, name, plan.priority, due, deadline, guard, max_crashes, limits, key)

    def wrapped_message(
        self,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        sender: Sender,
        headers: Mapping[str, str] | None = None,
        *,
        origin: Origin | None = None,
    ) -> Message:
        """The same within the middleware, for whoever stores it later: a workflow, a buffer."""
        if self.plan.connection is not None:
            raise NotSupported(f"{self.name}: session has no place in a workflow or a producer's buffer")
        if not self._hooks.wrapping:
            return self.message(args, kwargs, sender, headers=headers, origin=origin)
        with self._hooks.sending(self._outgoing(args, kwargs)) as call:
            message = self._hooked_by(call).message(args, kwargs, sender, headers=headers, origin=origin)
            call.id = message.id
            return message

    def planned(self, plan: CallPlan) -> Self:
        """The same task with another plan for its calls."""
        return type(self)(self.definition, self.connections, self._hooks, plan)

    def __repr__(self) -> str:
        """Name and queue."""
        return f"<{type(self).__name__} {self.name} on {self.plan.queue}>"

    # Any: what the function returns; the public methods give it its type back.
    def _call(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:  # noqa: ANN401 - same
        binding = self.definition.binding
        if not binding.takes_context and not binding.injected:
            return self.definition.function(*args, **kwargs)
        context = context_of_call(self.definition, args)
        if binding.injected:
            return call_here(self.definition, args, kwargs, context)
        positional, named = list(args), dict(kwargs)
        if not any(isinstance(value, Context) for value in (*args, *kwargs.values())):
            self.definition.binding.inject(positional, named, context)
        return self.definition.function(*positional, **named)

    def _check_values(self, body: bytes, plan: CallPlan) -> None:
        """What a worker will do with the arguments is done here: what it would refuse is not stored."""
        call = decode_call(body)
        is_member = plan.extra is not None and plan.extra.workflow is not None
        # None holds the place of each input of a workflow's member, which only its broker knows.
        first = call.count_of_places() if is_member else 0
        try:
            self.definition.rebuild(call.args, call.kwargs, first=first)
        except InvalidMessage as error:
            raise InvalidArgument(f"{self.name}: {error}") from error

    def _send_to_model(self, calls: Sequence[_Arguments]) -> list[Job[R]]:
        sender = self.connections.model_sender(self.plan.queue)
        assert sender is not None  # noqa: S101 - the caller has looked
        check_call(self.name, self.plan, self.definition.options, sender.model)
        tracer = self.connections.tracer
        if tracer is None:
            messages = [self.message(args, kwargs, sender) for args, kwargs in calls]
            ids = sender.send(messages, self.plan.connection)
        else:
            count = None if len(calls) == 1 else len(calls)
            with tracer.sending(self.plan.queue, self.name, count=count) as sending:
                messages = [self.message(*each, sender, headers=sending.headers) for each in calls]
                ids = sender.send(messages, self.plan.connection)
        return [ModelJob(each, sender, is_new=True) for each in ids]

    async def _asender(self) -> Sender:
        # Finding the server may take a while, or start one: not on the event loop.
        known = self.connections.known_sender(self.plan.queue, within=self.plan.connection)
        return await asyncio.to_thread(self.connections.sender, self.plan.queue) if known is None else known

    @contextmanager
    def _sending_batch(self, sender: Sender, batch: Sequence[_Arguments]) -> Iterator[_SentBatch]:
        """Around the storing of a batch: its messages, within their spans and their middleware."""
        queue, tracer = self.plan.queue, sender.tracer
        fresh = next_ids(len(batch))
        with ExitStack() as around:
            headers: Callable[[MessageId], Mapping[str, str] | None] = lambda _id: None  # noqa: E731
            if tracer is not None:
                span = around.enter_context(tracer.sending(queue, self.name, count=len(batch)))
                headers = (
                    (lambda each: tracer.created(queue, self.name, each))
                    if tracer.creates
                    else (lambda _id: span.headers)
                )
            calls = (
                [around.enter_context(self._hooks.sending(self._outgoing(*each))) for each in batch]
                if self._hooks.wrapping
                else []
            )
            tasks = [self._hooked_by(call) for call in calls] or [self] * len(batch)
            sending = _SentBatch(
                [
                    task.message(*arguments, sender, each, headers(each))
                    for task, arguments, each in zip(tasks, batch, fresh, strict=True)
                ]
            )
            yield sending
            for call, stored in zip(calls, sending.stored, strict=False):
                call.id = stored.id

    def _send_many_to_model(self, calls: Iterable[_Call[R]]) -> list[Job[R]]:
        jobs: list[Job[R]] = []
        remaining = iter(calls)
        while batch := [self._arguments(call) for call in islice(remaining, BATCH)]:
            jobs += self._send_to_model(batch)
        return jobs

    def _refuse_one_id(self) -> None:
        if self.plan.id is not None:
            raise InvalidArgument("id: one id cannot serve many calls; accepted is enqueue_many without it")

    def _arguments(self, call: _Call[R]) -> _Arguments:
        if isinstance(call, _POSITIONAL):
            return call, {}
        if isinstance(call, Mapping):
            return (), call
        if isinstance(call, Signature):
            if call.call.definition is not self.definition or call.plan != self.plan:
                raise InvalidArgument(f"calls hold a call of {call.call!r}; accepted are calls of {self!r}")
            return call.args, call.kwargs
        raise InvalidArgument(
            f"calls hold {shown(call)}; accepted are tuples of arguments, dicts of arguments by name, and "
            f"{self.name}.si(...)"
        )

    def _limits(
        self,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        sender: Sender | ModelSender,
        most_of_queue: int | None,
    ) -> str:
        options, arguments = self.definition.options, self.definition.arguments_for_keys(args, kwargs)
        if sender.is_cluster and any(each.name is not None for each in options.running):
            raise NotSupported(
                f"{self.name}: max_running has a name, to be shared by queues, and redis_url is a cluster, "
                "which keeps queues apart; accepted there is max_running without a name, and "
                "app.queue(..., max_running=...) for all tasks of one queue"
            )
        limits = limits_of(
            self.name,
            options.rates,
            arguments,
            options.fair,
            running=options.running,
            breaker=options.breaker,
        )
        if most_of_queue is None:
            return limits
        if options.delivery == "at_most_once":
            raise NotSupported(
                f"{self.name} runs at most once and its queue {self.plan.queue} has max_running: what is "
                'acknowledged before it runs is not counted; accepted is delivery="at_least_once" there'
            )
        return with_queue_limit(limits, most_of_queue)

    def _guard(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Guard | None:
        plan = self.plan
        if plan.unique is not None:
            return guard_of(plan.unique, self.name, self.definition.arguments_for_keys(args, kwargs))
        return None if plan.id is None else chosen_id_guard(plan.id)

    def _enqueue_wrapped(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Job[R]:
        with self._hooks.sending(self._outgoing(args, kwargs)) as call:
            job = Task._enqueue(self._hooked_by(call), args, kwargs)
            call.id = job.id
            return job

    def _outgoing(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> OutgoingCall:
        headers = {} if self.plan.extra is None else dict(self.plan.extra.headers)
        return OutgoingCall(self.name, self.plan.queue, headers, args, kwargs)

    def _hooked_by(self, call: OutgoingCall) -> Self:
        """The same task with the headers that its middleware wants."""
        known = self.plan.extra or CallOptions()
        if call.headers == known.headers:
            return self
        return self.planned(replace(self.plan, extra=replace(known, headers=call.headers)))

    def _hooked(self, plan: CallPlan) -> CallOptions | None:
        known = plan.extra or CallOptions()
        call = OutgoingCall(self.name, plan.queue, dict(known.headers))
        for hook in self._hooks.enqueueing:
            hook(call)
        extra = replace(known, headers=call.headers)
        return None if extra == CallOptions() else extra


class AsyncTask(Task[P, R]):
    """A task that is a coroutine function: in a worker it runs on an event loop, beside many others."""

    # Called like the function that it is, it gives a coroutine: the one way in which it differs from a Task.
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:  # type: ignore[override]
        """Run it here: `await task(...)`."""
        coroutine: Coroutine[Any, Any, R] = self._call(args, kwargs)
        return coroutine


@dataclass(slots=True)
class _SentBatch:
    messages: list[Message]
    stored: Sequence[Enqueued] = ()
