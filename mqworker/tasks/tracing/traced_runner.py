"""A task runner that traces: runs that are recorded, each between the beginning and the end of a span."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any
from zlib import crc32

from mqworker.model.delivery import Delivery
from mqworker.model.envelope import TWO_PARTS, Envelope
from mqworker.model.settlement import Settlement
from mqworker.model.strike import Strike
from mqworker.tasks.context import Context
from mqworker.tasks.running.prepared_task import PreparedTask
from mqworker.tasks.running.run import TaskRunner
from mqworker.tasks.tracing.runs import RunTracer


class TracedTaskRunner(TaskRunner):
    """Used where tracing is on, so that it costs nothing where it is not.

    What is surely not recorded runs as it always does: it is not of the share, and has no headers in which a
    sender could have decided otherwise. The rest is left to a recording runner.
    """

    # Any: whatever a TaskRunner takes.
    def __init__(self, tracer: RunTracer, *arguments: Any, **options: Any) -> None:  # noqa: ANN401 - see above
        super().__init__(*arguments, **options)
        self._recording = _RecordingRunner(
            tracer, self._running, self._unpermitted, arguments=arguments, options=options
        )
        self._below = tracer.sampling.below
        self._run, self._arun = super().run, super().arun

    def run(self, delivery: Delivery, queue: str) -> Settlement:
        """Run a delivery to its end in this thread."""
        if crc32(delivery.id.encode()) < self._below or delivery.body[:1] != TWO_PARTS:
            return self._recording.run(delivery, queue)
        return self._run(delivery, queue)

    async def arun(self, delivery: Delivery, queue: str) -> Settlement:
        """Run a delivery of an async task to its end on this event loop."""
        if crc32(delivery.id.encode()) < self._below or delivery.body[:1] != TWO_PARTS:
            return await self._recording.arun(delivery, queue)
        return await self._arun(delivery, queue)

    def run_together(self, deliveries: Sequence[Delivery], queue: str) -> list[Settlement]:
        """Run deliveries in one call; it finds out itself which of them are recorded."""
        return self._recording.run_together(deliveries, queue)

    async def arun_together(self, deliveries: Sequence[Delivery], queue: str) -> list[Settlement]:
        """The same on this event loop."""
        return await self._recording.arun_together(deliveries, queue)

    def strike(self, strikes: Iterable[Strike]) -> None:
        """Calls that are not to be run from now on; those of before are forgotten."""
        self._strikes = tuple(strikes)
        self._recording.strike(self._strikes)

    def interrupt_if_cancelled(self) -> None:
        """Raise `TaskCancelled`, once, if the task that runs in this thread was asked to stop."""
        super().interrupt_if_cancelled()
        self._recording.interrupt_if_cancelled()


class _RecordingRunner(TaskRunner):
    """Records the runs of which the message says so, or which are of the share."""

    def __init__(
        self,
        tracer: RunTracer,
        running: set[Context],
        unpermitted: Callable[[Delivery], Settlement],
        *,
        # Any: whatever a TaskRunner takes.
        arguments: tuple[Any, ...],
        options: dict[str, Any],
    ) -> None:
        """What runs, and what came too late for its permit, is noted in one place with all others."""
        super().__init__(*arguments, **options)
        self._tracer = tracer
        self._running = running
        self._note_unpermitted = unpermitted

    def run(self, delivery: Delivery, queue: str) -> Settlement:
        settlement = None
        try:
            settlement = super().run(delivery, queue)
        finally:
            self._tracer.end(delivery, queue, settlement)
        return settlement

    async def arun(self, delivery: Delivery, queue: str) -> Settlement:
        settlement = None
        try:
            settlement = await super().arun(delivery, queue)
        finally:
            self._tracer.end(delivery, queue, settlement)
        return settlement

    def run_together(self, deliveries: Sequence[Delivery], queue: str) -> list[Settlement]:
        settlements: list[Settlement] = []
        try:
            settlements = super().run_together(deliveries, queue)
        finally:
            self._end_together(deliveries, queue, settlements)
        return settlements

    async def arun_together(self, deliveries: Sequence[Delivery], queue: str) -> list[Settlement]:
        settlements: list[Settlement] = []
        try:
            settlements = await super().arun_together(deliveries, queue)
        finally:
            self._end_together(deliveries, queue, settlements)
        return settlements

    def _end_together(
        self, deliveries: Sequence[Delivery], queue: str, settlements: Sequence[Settlement]
    ) -> None:
        # Each has its span; they began one inside of the other, so the last one ends first.
        by_fence = {each.delivery.fence: each for each in settlements}
        for delivery in reversed(deliveries):
            self._tracer.end(delivery, queue, by_fence.get(delivery.fence))

    def _enter(self, task: PreparedTask, delivery: Delivery, queue: str, envelope: Envelope) -> Context:
        # First of all: the hooks of the application are part of the run.
        self._tracer.begin(delivery, queue, envelope.headers, envelope.workflow)
        return super()._enter(task, delivery, queue, envelope)

    def _unpermitted(self, delivery: Delivery) -> Settlement:
        return self._note_unpermitted(delivery)
