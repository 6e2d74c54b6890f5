"""A task runner that traces: the same runs, each between the beginning and the end of a span."""

from __future__ import annotations

from typing import Any

from mqworker.model.delivery import Delivery
from mqworker.model.envelope import Envelope
from mqworker.model.settlement import Settlement
from mqworker.tasks.context import Context
from mqworker.tasks.running.prepared import PreparedTask
from mqworker.tasks.running.run import TaskRunner
from mqworker.tasks.tracing.runs import RunTracer


class TracedTaskRunner(TaskRunner):
    """Used where tracing is on, so that it costs nothing where it is not."""

    # Any: whatever a TaskRunner takes.
    def __init__(self, tracer: RunTracer, *arguments: Any, **options: Any) -> None:  # noqa: ANN401 - see above
        super().__init__(*arguments, **options)
        self._tracer = tracer

    def run(self, delivery: Delivery, queue: str) -> Settlement:
        """Run a delivery to its end in this thread."""
        if self.is_async(delivery.task):
            return super().run(delivery, queue)  # which comes to `arun`
        settlement = None
        try:
            settlement = super().run(delivery, queue)
        finally:
            self._tracer.end(delivery, queue, settlement)
        return settlement

    async def arun(self, delivery: Delivery, queue: str) -> Settlement:
        """Run a delivery of an async task to its end on this event loop."""
        settlement = None
        try:
            settlement = await super().arun(delivery, queue)
        finally:
            self._tracer.end(delivery, queue, settlement)
        return settlement

    def _enter(self, task: PreparedTask, delivery: Delivery, queue: str, envelope: Envelope) -> Context:
        # First of all: the hooks of the application are part of the run.
        self._tracer.begin(delivery, queue, envelope.headers, envelope.workflow)
        return super()._enter(task, delivery, queue, envelope)
