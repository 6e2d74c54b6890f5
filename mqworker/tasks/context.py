"""Context: what a running task may know about its delivery, and what it may say about itself."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Protocol

from mqworker.errors import InvalidArgument, TaskCancelled
from mqworker.log import Logger, get_logger
from mqworker.model.delivery import Delivery
from mqworker.model.names import MessageId, TaskName, shown

NO_HEADERS: Mapping[str, str] = {}


class TaskDesk(Protocol):
    """Whom a running task talks to: keeps progress, knows of cancellations."""

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


class Context:
    """One delivery as its task sees it."""

    __slots__ = ("_delivery", "_desk", "_is_cancelled", "headers", "queue")

    def __init__(
        self,
        delivery: Delivery,
        queue: str,
        headers: Mapping[str, str] = NO_HEADERS,
        desk: TaskDesk | None = None,
    ) -> None:
        self._delivery = delivery
        self._desk = desk
        self._is_cancelled = False
        self.queue = queue
        self.headers = headers

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
    def is_cancelled(self) -> bool:
        """Whether somebody asked this job to stop. Asks the server, at most twice a second.

        In an async task it does not wait for the answer, which the next look knows; `ais_cancelled` does.
        """
        if not self._is_cancelled and self._desk is not None:
            self._is_cancelled = self._desk.is_cancelled(self.queue, self._delivery)
        return self._is_cancelled

    async def ais_cancelled(self) -> bool:
        """`is_cancelled` for async tasks."""
        if not self._is_cancelled and self._desk is not None:
            self._is_cancelled = await self._desk.ais_cancelled(self.queue, self._delivery)
        return self._is_cancelled

    @property
    def log(self) -> Logger:
        """A logger that names the message in every event."""
        return get_logger(task=self.task, task_id=self.id, queue=self.queue, attempt=self.attempt)

    def progress(self, done: float, total: float | None = None) -> None:
        """Say how far it has come; `job.progress()` shows it. Cheap to call often: few reports are sent.

        In a sync task one that is sent costs a round trip, five times a second at the most. In an async task
        it never waits: the newest report goes out beside the task.
        """
        _check_progress(done, total)
        if self._desk is not None:
            self._desk.report_progress(self.queue, self._delivery, done, total)

    async def aprogress(self, done: float, total: float | None = None) -> None:
        """`progress` for async tasks that want to know the report on the server when they go on."""
        _check_progress(done, total)
        if self._desk is not None:
            await self._desk.areport_progress(self.queue, self._delivery, done, total)

    def stop_if_cancelled(self) -> None:
        """Raise `TaskCancelled` when somebody asked this job to stop."""
        if self.is_cancelled:
            raise TaskCancelled(f"{self.task} {self.id} was cancelled while it ran")

    async def astop_if_cancelled(self) -> None:
        """`stop_if_cancelled` for async tasks."""
        if await self.ais_cancelled():
            self.stop_if_cancelled()

    def request_cancel(self) -> None:
        """Note that the job is to stop; for the worker, which hears of it first."""
        self._is_cancelled = True


current: ContextVar[Context | None] = ContextVar("mqworker_context", default=None)


def current_context() -> Context | None:
    """The context of the task that runs here; None outside of one."""
    return current.get()


def local_context(task: TaskName) -> Context:
    """For a task that is called like a function: nothing was delivered, nobody listens."""
    delivery = Delivery(fence=0, id=MessageId("local"), task=task, body=b"", enqueued_at_ms=0)
    return Context(delivery, "local")


def _check_progress(done: float, total: float | None) -> None:
    for name, value in (("done", done), ("total", total)):
        if value is not None and not (_is_number(value) and 0 <= value <= 2**53):
            raise InvalidArgument(f"{name} is {shown(value)}; accepted is a number from 0 to 2**53")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
