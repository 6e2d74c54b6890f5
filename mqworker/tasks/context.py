"""Context: what a running task may know about its delivery, and what it may say about itself."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from contextvars import ContextVar
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from mqworker.errors import InvalidArgument, LeaseLost, NotSupported, RateLimited, TaskCancelled
from mqworker.log import Logger, get_logger
from mqworker.model.delivery import Delivery
from mqworker.model.envelope import decode_call
from mqworker.model.names import MessageId, TaskName, shown
from mqworker.model.trace_context import TraceContext
from mqworker.tasks.celery_names import NamesOfCelery

if TYPE_CHECKING:
    from mqworker.tasks.job import Job
    from mqworker.tasks.signature import Signature

R = TypeVar("R")

NO_HEADERS: Mapping[str, str] = {}
Seconds: TypeAlias = "float | timedelta"


class LimitLink(Protocol):
    """The server as it hears of limits from a running task."""

    def close(self, queue: str, delivery: Delivery, key: str | None, seconds: object, why: str) -> int:
        """Let nothing of that key start for so long."""

    def close_own(self, queue: str, delivery: Delivery, key: str | None, seconds: float, why: str) -> bool:
        """The same for the key that the call is about; False when the task has no limits."""

    def spent(self, queue: str, delivery: Delivery, amount: object, of: str | None) -> bool:
        """Keep what the call cost in truth."""


class State:
    """What an app keeps open in a process: attributes that its lifespan yields, or that anybody sets."""

    # Any: the application's own objects.
    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - see above
        """Called where there is no such attribute."""
        known = ", ".join(sorted(vars(self))) or "nothing: no lifespan has yielded anything in this process"
        raise AttributeError(f"the state of the app has no {name}; it holds {known}")

    def __setattr__(self, name: str, value: Any) -> None:  # noqa: ANN401 - see above
        """Any name."""
        object.__setattr__(self, name, value)


class TaskLink(Protocol):
    """The server as a running task sees it: stores progress, knows of cancellations and lost leases."""

    @property
    def state(self) -> State:
        """What the app keeps open in this process."""

    @property
    def limits(self) -> LimitLink | None:
        """What it may say about its limits; None where it may not."""

    def start(self, queue: str, delivery: Delivery) -> bool:
        """Acknowledge what runs at most once, at its start; False if it is not ours, and must not begin."""

    async def astart(self, queue: str, delivery: Delivery) -> bool:
        """The same on an event loop."""

    def report_progress(self, queue: str, delivery: Delivery, done: float, total: float | None) -> None:
        """Keep how far the delivery has come, for whoever asks; on an event loop, without waiting."""

    async def areport_progress(
        self, queue: str, delivery: Delivery, done: float, total: float | None
    ) -> None:
        """The same, over when it was sent."""

    def is_cancelled(self, queue: str, delivery: Delivery) -> bool:
        """Whether somebody asked that this message be stopped; on an event loop, as far as is known."""

    async def ais_cancelled(self, queue: str, delivery: Delivery) -> bool:
        """The same, with the answer of now."""

    def spawn(
        self,
        queue: str,
        delivery: Delivery,
        key: str,
        calls: Sequence[Signature[Any]],  # Any: each returns what its own task does
        then: Signature[Any] | None,
    ) -> list[Job[Any]]:
        """Add calls to the workflow of the delivery, or begin its tree; the same for the same key."""

    def is_mine(self, queue: str, delivery: Delivery) -> bool:
        """Whether the delivery is still leased to whoever runs it; on an event loop, as far as is known."""

    async def ais_mine(self, queue: str, delivery: Delivery) -> bool:
        """The same, with the answer of now."""


class Context(NamesOfCelery):
    """One delivery as its task sees it."""

    __slots__ = (
        "_delivery",
        "_has_lease",
        "_is_lost",
        "_link",
        "_spawns",
        "_waits",
        "headers",
        "is_closing",
        "is_stop_requested",
        "queue",
    )

    def __init__(
        self,
        delivery: Delivery,
        queue: str,
        headers: Mapping[str, str] = NO_HEADERS,
        link: TaskLink | None = None,
        has_lease: bool = True,  # noqa: FBT001, FBT002 - positional: made for each delivery
    ) -> None:
        """`has_lease` is False for what was acknowledged before it began: no other run can have it."""
        self._delivery = delivery
        self._link = link
        self._has_lease = has_lease
        self._is_lost = False
        self._spawns: dict[str, None] | None = None
        self.is_stop_requested = False
        """Whether it is known here that the job is to stop; the server is not asked."""
        self._waits: dict[tuple[str, str], int] | None = None
        self.queue = queue
        self.headers = headers

    is_closing: bool
    """Set when a run begins to clean up: from then on a cancellation does not interrupt it."""

    @property
    def state(self) -> State:
        """What the app keeps open in this process: what its lifespan yields, as attributes."""
        return _NO_STATE if self._link is None else self._link.state

    @property
    def id(self) -> MessageId:
        """The id of the message; the same for all attempts."""
        return self._delivery.id

    @property
    def task(self) -> TaskName:
        """The name of the task."""
        return self._delivery.task

    @property
    def attempt(self) -> int:
        """Which hand-over this is, from 1: retries, releases and crashes all count."""
        return self._delivery.attempt

    @property
    def failures(self) -> int:
        """How often the task failed on this message before."""
        return self._delivery.failures

    @property
    def fence(self) -> int:
        """The token of this delivery: it grows, so a resource can refuse a delivery that was overtaken."""
        return self._delivery.fence

    @property
    def deadline_at_ms(self) -> int | None:
        """The instant until which it had to start, in milliseconds since 1970, if there is one."""
        return self._delivery.deadline_at_ms

    @property
    def enqueued_at_ms(self) -> int:
        """The instant at which it was enqueued, in milliseconds since 1970, by the server's clock."""
        return self._delivery.enqueued_at_ms

    def arguments(self) -> tuple[list[Any], dict[str, Any]]:  # Any: the user's values
        """The arguments of the call as they were sent, by position and by name."""
        call = decode_call(self._delivery.body)
        return call.args, call.kwargs

    @property
    def is_cancelled(self) -> bool:
        """Whether somebody asked this job to stop. Asks the server, at most twice a second.

        In an async task it does not wait for the answer, which the next look knows; `ais_cancelled` does.
        """
        if not self.is_stop_requested and self._link is not None:
            self.is_stop_requested = self._link.is_cancelled(self.queue, self._delivery)
        return self.is_stop_requested

    async def ais_cancelled(self) -> bool:
        """`is_cancelled` for async tasks."""
        if not self.is_stop_requested and self._link is not None:
            self.is_stop_requested = await self._link.ais_cancelled(self.queue, self._delivery)
        return self.is_stop_requested

    def is_mine(self) -> bool:
        """Whether this delivery is still leased to this run. Asks the server: one round trip.

        A node that was cut off or stopped for longer than its heartbeat loses its leases, and others run its
        messages again; what an overtaken run returns is refused. Ask before an effect that must not happen
        twice, or give `ctx.fence` to a resource that can compare it, which is safer: a lease may be lost in
        the instant after the answer. While the server does not answer, the newest answer counts. In an async
        task this does not wait for the answer, which the next look knows; `ais_mine` does. Always True for a
        task that runs at most once: nobody else can have its message.
        """
        if not self._is_lost and self._has_lease and self._link is not None:
            self._is_lost = not self._link.is_mine(self.queue, self._delivery)
        return not self._is_lost

    async def ais_mine(self) -> bool:
        """`is_mine` for async tasks."""
        if not self._is_lost and self._has_lease and self._link is not None:
            self._is_lost = not await self._link.ais_mine(self.queue, self._delivery)
        return not self._is_lost

    def stop_if_lost(self) -> None:
        """Raise `LeaseLost` when this delivery was given to somebody else; see `is_mine`.

        A run that learns of it this way ends without a failure and without a retry: its message is elsewhere.
        An async task whose node notices that the lease is lost is cancelled, as by `asyncio.Task.cancel`.
        """
        if not self.is_mine():
            raise LeaseLost(f"{self.task} {self.id} was given to somebody else while it ran")

    async def astop_if_lost(self) -> None:
        """`stop_if_lost` for async tasks."""
        if not await self.ais_mine():
            self.stop_if_lost()

    @property
    def is_known_lost(self) -> bool:
        """Whether it is known here that the lease was lost; nobody is asked."""
        return self._is_lost

    @property
    def log(self) -> Logger:
        """A logger that names the message in every event."""
        facts = {"task": self.task, "task_id": self.id, "queue": self.queue, "attempt": self.attempt}
        return get_logger(**facts, **trace_facts())

    def progress(self, done: float, total: float | None = None) -> None:
        """Say how far it has come; `job.progress()` shows it. Cheap to call often: few reports are sent.

        In a sync task one that is sent costs a round trip, five times a second at the most. In an async task
        it never waits: the newest report goes out beside the task.
        """
        _check_progress(done, total)
        if self._link is not None:
            self._link.report_progress(self.queue, self._delivery, done, total)

    async def aprogress(self, done: float, total: float | None = None) -> None:
        """`progress` for async tasks that want to know the report on the server when they go on."""
        _check_progress(done, total)
        if self._link is not None:
            await self._link.areport_progress(self.queue, self._delivery, done, total)

    def close(self, key: str | None, *, for_: Seconds, why: str = "") -> None:
        """Start no call of this key anywhere for so long: `ctx.close("{tenant}", for_=30)`.

        `key` is one that a limit of the task has (max_running, rate, breaker), None for its limits without
        one. What was on its way to a worker may still start, within `permit_s`. Waits for the server;
        `aclose` does not block the event loop.
        """
        if self._link is not None and self._link.limits is not None:
            self._link.limits.close(self.queue, self._delivery, key, for_, why or f"closed by {self.id}")

    async def aclose(self, key: str | None, *, for_: Seconds, why: str = "") -> None:
        """`close` for async tasks."""
        await asyncio.to_thread(partial(self.close, key, for_=for_, why=why))

    def close_for_retry(self, error: RateLimited) -> bool:
        """Close what `RateLimited` is about; False when the task has no limits. For the worker."""
        limits = None if self._link is None else self._link.limits
        if limits is None:
            return False
        return limits.close_own(self.queue, self._delivery, error.key, error.retry_after, str(error))

    def spent(self, amount: float, *, of: str | None = None) -> None:
        """Say what this call cost in truth, of a `Rate(..., cost="{tokens}")`; the rate is corrected.

        `of="{tokens}"` where the task has rates with different costs. Waits for the server; `aspent` does
        not block the event loop.
        """
        if self._link is not None and self._link.limits is not None:
            self._link.limits.spent(self.queue, self._delivery, amount, of)

    async def aspent(self, amount: float, *, of: str | None = None) -> None:
        """`spent` for async tasks."""
        await asyncio.to_thread(partial(self.spent, amount, of=of))

    def spawn(
        self, call: Signature[R], *, name: str | None = None, then: Signature[Any] | None = None
    ) -> Job[R]:
        """Add a call while this task runs: it belongs to the run's job, and is cancelled with it.

        A run that is repeated gets the same child, by `name` or, without one, by the number of the spawn in
        the run: what it has spawned is not spawned again. So spawn in the same order each time, or name it.
        `then` is called once, when the children of this spawn and this run have ended, with the list of their
        results, a `MemberFailure` for each that failed; not if this job is given up. Waits for the server;
        `aspawn` does not block the event loop.
        """
        return self.spawn_many([call], name=name, then=then)[0]

    def spawn_many(
        self, calls: Iterable[Signature[R]], *, name: str | None = None, then: Signature[Any] | None = None
    ) -> list[Job[R]]:
        """`spawn` for many calls, as one spawn: a child is known by its place in it."""
        return self._spawn(self._spawn_key(name), list(calls), then)

    async def aspawn(
        self, call: Signature[R], *, name: str | None = None, then: Signature[Any] | None = None
    ) -> Job[R]:
        """`spawn` for async tasks."""
        return (await self.aspawn_many([call], name=name, then=then))[0]

    async def aspawn_many(
        self, calls: Iterable[Signature[R]], *, name: str | None = None, then: Signature[Any] | None = None
    ) -> list[Job[R]]:
        """`spawn_many` for async tasks."""
        return await asyncio.to_thread(self._spawn, self._spawn_key(name), list(calls), then)

    def _spawn_key(self, name: str | None) -> str:
        known = self._spawns = self._spawns or {}
        key = str(len(known) + 1) if name is None else f"-{name}"  # never one of the numbers
        if key in known:
            raise InvalidArgument(
                f"name is {name!r}, by which this run has spawned already; accepted is another for each spawn"
            )
        known[key] = None
        return key

    def _spawn(self, key: str, calls: Sequence[Signature[R]], then: Signature[Any] | None) -> list[Job[R]]:
        if self._link is None or not self._has_lease:
            raise NotSupported(
                f"spawn: {self.task} runs at most once, or outside of a worker; accepted is a task with "
                'delivery="at_least_once" that a worker runs; elsewhere task.enqueue(...) stores a call'
            )
        return self._link.spawn(self.queue, self._delivery, key, calls, then)

    def stop_if_cancelled(self) -> None:
        """Raise `TaskCancelled` when somebody asked this job to stop, `LeaseLost` when somebody else has it.

        The second only where the node noticed it: it looks every few seconds. `stop_if_lost` asks.
        """
        if self._is_lost:
            self.stop_if_lost()
        if self.is_cancelled:
            raise TaskCancelled(f"{self.task} {self.id} was cancelled while it ran")

    async def astop_if_cancelled(self) -> None:
        """`stop_if_cancelled` for async tasks."""
        if self._is_lost or await self.ais_cancelled():
            self.stop_if_cancelled()

    def request_cancel(self) -> None:
        """Note that the job is to stop; called by the worker, which knows first."""
        self.is_stop_requested = True

    def note_lost(self) -> None:
        """Note that somebody else has the message; for the worker, as above."""
        self._is_lost = self._has_lease

    def begin_wait(self, queue: str, message: str, now_ms: int) -> None:
        """Note that the task waits for the result of another message from now on."""
        self._waits = {**(self._waits or {}), (queue, message): now_ms}

    def end_wait(self, queue: str, message: str) -> None:
        """Note that it does so no longer."""
        self._waits = {key: since for key, since in (self._waits or {}).items() if key != (queue, message)}

    @property
    def waits(self) -> Mapping[tuple[str, str], int]:
        """For what it waits, by queue and id: since when."""
        return self._waits or {}

    def stop_if_requested(self) -> None:
        """Raise `TaskCancelled` when it is known here that the job is to stop."""
        if self.is_stop_requested:
            raise TaskCancelled(f"{self.task} {self.id} was cancelled while it ran")


_NO_STATE = State()
current: ContextVar[Context | None] = ContextVar("mqworker_context", default=None)
current_trace: ContextVar[TraceContext | None] = ContextVar("mqworker_trace", default=None)
"""The span of the run, where it is recorded."""


def current_context() -> Context | None:
    """The context of the task that runs here; None outside of one."""
    return current.get()


# Any: structlog's own types of a processor.
def name_task(_logger: Any, _method: str, facts: MutableMapping[str, Any]) -> MutableMapping[str, Any]:  # noqa: ANN401
    """A processor of structlog: which task writes a line. Looked up when one does: most tasks write none."""
    context = current.get()
    if context is not None:
        own = {"task": context.task, "task_id": context.id, "attempt": context.attempt, **trace_facts()}
        for name, value in own.items():
            facts.setdefault(name, value)
    return facts


def trace_facts() -> dict[str, str]:
    """For a line of the log: the ids of the run's span, where it is recorded."""
    trace = current_trace.get()
    return {} if trace is None else {"trace_id": f"{trace.trace_id:032x}", "span_id": f"{trace.span_id:016x}"}


def local_context(task: TaskName, state: State | None = None) -> Context:
    """For a task that is called like a function: nothing was delivered, and reports go nowhere."""
    delivery = Delivery(fence=0, id=MessageId("local"), task=task, body=b"", enqueued_at_ms=0)
    return Context(delivery, "local", link=_LocalLink(state or State()))


class _LocalLink:
    """For a task without a delivery: nobody hears of it, and nobody else has it."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.limits: LimitLink | None = None

    def spawn(
        self,
        queue: str,
        delivery: Delivery,
        key: str,
        calls: Sequence[Signature[Any]],
        then: Signature[Any] | None,
    ) -> list[Job[Any]]:
        """Never: there is no job to which it could belong."""
        del queue, key, calls, then
        raise NotSupported(
            f"spawn: {delivery.task} was called like a function, so there is no job to which a child could "
            "belong; accepted is a task that a worker runs; elsewhere task.enqueue(...) stores a call"
        )

    def start(self, queue: str, delivery: Delivery) -> bool:
        """Always."""
        del queue, delivery
        return True

    async def astart(self, queue: str, delivery: Delivery) -> bool:
        """Always."""
        del queue, delivery
        return True

    def report_progress(self, queue: str, delivery: Delivery, done: float, total: float | None) -> None:
        """To nobody."""

    async def areport_progress(
        self, queue: str, delivery: Delivery, done: float, total: float | None
    ) -> None:
        """The same."""

    def is_cancelled(self, queue: str, delivery: Delivery) -> bool:
        """Never."""
        del queue, delivery
        return False

    async def ais_cancelled(self, queue: str, delivery: Delivery) -> bool:
        """Never."""
        del queue, delivery
        return False

    def is_mine(self, queue: str, delivery: Delivery) -> bool:
        """Always."""
        del queue, delivery
        return True

    async def ais_mine(self, queue: str, delivery: Delivery) -> bool:
        """Always."""
        del queue, delivery
        return True


def _check_progress(done: float, total: float | None) -> None:
    for name, value in (("done", done), ("total", total)):
        if value is not None and not (_is_number(value) and 0 <= value <= 2**53):
            raise InvalidArgument(f"{name} is {shown(value)}; accepted is a number from 0 to 2**53")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
