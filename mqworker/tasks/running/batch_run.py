"""A batch that runs: its rows as one call, and what its end says of each of them.

A function that takes batches returns a list, one result for each row; or nothing; or it raises `BatchFailed`
with the rows that failed. Anything else that it raises is what each of its rows would have raised.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from mqworker.errors import BatchFailed, LeaseLost, TaskCancelled
from mqworker.model.delivery import Delivery
from mqworker.model.envelope import Envelope
from mqworker.model.names import shown
from mqworker.model.settlement import Run, Settlement
from mqworker.model.value_codec import Value
from mqworker.tasks.batch_context import BatchContext
from mqworker.tasks.context import NO_HEADERS, Context, TaskLink, current
from mqworker.tasks.running.failure import cancelled, is_being_cancelled
from mqworker.tasks.running.prepared_task import PreparedTask
from mqworker.tasks.running.result import ResultRefused


class Member(NamedTuple):
    """One call of a batch, opened."""

    delivery: Delivery
    envelope: Envelope
    context: Context
    run: Run


class StartedBatch(NamedTuple):
    """The calls that run together."""

    members: Sequence[Member]
    envelope: Envelope
    """The one call that is made of them."""
    context: BatchContext

    @property
    def size(self) -> int:
        """How many they are."""
        return len(self.members)


class Returned(NamedTuple):
    """What the function gave for a row."""

    value: Value


End: TypeAlias = Returned | ResultRefused | BaseException


def begun_batch(
    opened: Iterable[Member | Settlement], queue: str, link: TaskLink | None
) -> StartedBatch | None:
    """Those that can run, as one call; None when there is none."""
    members = [each for each in opened if isinstance(each, Member)]
    if not members:
        return None
    rows = [_row(each.envelope) for each in members]
    contexts = [each.context for each in members]
    return StartedBatch(
        members, Envelope([rows], {}, NO_HEADERS), BatchContext(contexts, members[0].delivery, queue, link)
    )


def kept_of(opened: Iterable[Member | Settlement]) -> list[Settlement]:
    """What became of those that cannot run."""
    return [each for each in opened if not isinstance(each, Member)]


def _row(envelope: Envelope) -> Value:
    return envelope.args[0] if envelope.args else next(iter(envelope.kwargs.values()))


def ends_of(value: Value, size: int) -> Sequence[End]:
    """What a returned value says of each row."""
    if value is None:
        return [Returned(None)] * size
    if isinstance(value, list | tuple) and len(value) == size:
        return [Returned(each) for each in value]
    told = f"{len(value):,} results" if isinstance(value, list | tuple) else shown(value)
    return _refused(
        f"a batch of {size:,} returned {told}; accepted are a list with one for each row, or None", size
    )


def ends_after(error: BaseException, size: int) -> Sequence[End]:
    """What a raised error says of each row."""
    if not isinstance(error, BatchFailed):
        return [error] * size
    if (last := max(error.errors)) >= size:
        told = f"a batch of {size:,} raised BatchFailed with row {last:,}"
        return _refused(f"{told}; accepted are rows from 0 to {size - 1:,}", size)
    others = ends_of(error.results, size)
    return [error.errors.get(row, others[row]) for row in range(size)]


def _refused(problem: str, size: int) -> Sequence[End]:
    """Nobody knows which result belongs to which row, and a second run would give the same."""
    return [ResultRefused("result_not_accepted", problem)] * size


def is_about_another(error: BaseException, context: Context, batch: BatchContext) -> bool:
    """Whether a batch ended because another of its members was cancelled or lost: this one did nothing."""
    if isinstance(error, TaskCancelled):
        return not context.is_stop_requested and any(each.is_stop_requested for each in batch.members)
    if isinstance(error, LeaseLost):
        return not context.is_known_lost and batch.is_known_lost
    return False


class MemberSteps(Protocol):
    """What a task runner does with each member of a batch, and where it notes what runs."""

    interruptible: Context | None
    passes: tuple[type[BaseException], ...]
    link: TaskLink | None
    monotonic_s: Callable[[], float]

    @property
    def may_fetch(self) -> bool:
        """Whether opening a member may have to wait for bytes that are kept elsewhere."""

    def open_member(self, task: PreparedTask, delivery: Delivery, queue: str) -> Member | Settlement:
        """One of a batch, ready to run; or what becomes of it, because it cannot be."""

    def leave(self, batch: StartedBatch) -> None:
        """None of its members runs any more."""

    def end_members(
        self, task: PreparedTask, batch: StartedBatch, ends: Sequence[End], began_s: float
    ) -> Iterator[Settlement]:
        """What becomes of each."""


class BatchRunner:
    """Runs deliveries of a task in one call: as a task runner does with one delivery."""

    def __init__(self, steps: MemberSteps) -> None:
        self._steps = steps

    def run(self, task: PreparedTask, deliveries: Sequence[Delivery], queue: str) -> list[Settlement]:
        """In this thread; one settlement for each."""
        opened = [self._steps.open_member(task, each, queue) for each in deliveries]
        batch = begun_batch(opened, queue, self._steps.link)
        if batch is None:
            return kept_of(opened)
        began_s, token = self._steps.monotonic_s(), current.set(batch.context)
        try:
            # Two blocks: what a signal raises while the inner one ends is still caught by the outer one.
            try:
                self._steps.interruptible = batch.context
                if batch.context.is_stop_requested:
                    batch.context.stop_if_requested()
                ends = ends_of(task.call(batch.envelope, batch.context), batch.size)
            finally:
                self._steps.interruptible = None
        except self._steps.passes:
            raise
        except BaseException as error:  # noqa: BLE001 - SystemExit and the like end the task, not the worker
            ends = ends_after(error, batch.size)
        finally:
            current.reset(token)
            self._steps.leave(batch)
        return [*kept_of(opened), *self._steps.end_members(task, batch, ends, began_s)]

    async def arun(self, task: PreparedTask, deliveries: Sequence[Delivery], queue: str) -> list[Settlement]:
        """The same on this event loop."""

        def open_all() -> list[Member | Settlement]:
            return [self._steps.open_member(task, each, queue) for each in deliveries]

        opened = await asyncio.to_thread(open_all) if self._steps.may_fetch else open_all()
        batch = begun_batch(opened, queue, self._steps.link)
        if batch is None:
            return kept_of(opened)
        began_s, token = self._steps.monotonic_s(), current.set(batch.context)
        try:
            ends = ends_of(await task.acall(batch.envelope, batch.context), batch.size)
        except self._steps.passes:
            raise
        except BaseException as error:
            if is_being_cancelled(error):
                if not batch.context.is_stop_requested:
                    raise  # the worker stops this run; the deliveries are its to release
                error = cancelled(batch.context)
            ends = ends_after(error, batch.size)
        finally:
            current.reset(token)
            self._steps.leave(batch)
        return [*kept_of(opened), *self._steps.end_members(task, batch, ends, began_s)]
