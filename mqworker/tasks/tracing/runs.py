"""Runs as spans, in a worker: what is begun, what has ended and goes along with the next report.

Whether a run is recorded is known from its message (`Sampling`); one that is not costs a look and a count.
"""

from __future__ import annotations

import secrets
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from mqworker.model.clock import epoch_ns
from mqworker.model.delivery import Delivery
from mqworker.model.run_span import RunSpan, outcome_of
from mqworker.model.settlement import Ack, Bury, Release, RetryAt, Settlement
from mqworker.model.telemetry import APPLICATION_SPAN, BATCH, RUN, SENT, Entry, RunTimes
from mqworker.model.trace_context import Relation, Sampling, TraceContext, context_in, context_of_run
from mqworker.tasks.context import current_trace

MOST_APPLICATION_SPANS = 2_000
"""Between two reports; what the application makes beyond them is dropped and counted."""
NS_PER_MS = 1_000_000

Activate = Callable[[TraceContext], Callable[[], None]]
"""Makes a context the one of this thread or coroutine; what it returns ends that."""


@dataclass(slots=True)
class _Begun:
    start_ns: int
    sender: TraceContext | None
    workflow: str
    leave: Callable[[], None]


class RunTracer:
    """The spans and run times of one worker. Any thread may begin and end runs."""

    def __init__(
        self,
        sampling: Sampling,
        relation: Relation,
        *,
        worker: str,
        node: str,
        activate: Activate,
        note_start: Callable[[str, int, int], None] = lambda _queue, _fence, _at_ms: None,
    ) -> None:
        """`note_start` is told of what begins where others find it, should this process be killed."""
        self.sampling = sampling
        self._relation = relation
        self._worker = worker
        self._node = node
        self._activate = activate
        self._note_start = note_start
        self._begun: dict[tuple[str, int], _Begun] = {}
        self._ended: dict[tuple[str, int], Entry] = {}
        self._application: deque[Entry] = deque()
        self._lock = threading.Lock()
        self._sent: dict[tuple[str, str], int] = {}
        self._name, self._batches = secrets.token_hex(8), 0
        self.dropped = 0
        """How many spans of the application were not kept."""

    def begin(self, delivery: Delivery, queue: str, headers: Mapping[str, str], workflow: str | None) -> None:
        """A task is about to run."""
        sender = context_in(headers) if headers else None
        if not self.sampling.takes(delivery.id, sender):
            return
        context = context_of_run(queue, delivery.id, delivery.fence, sender, self._relation)
        start_ns = epoch_ns()
        self._note_start(queue, delivery.fence, start_ns // NS_PER_MS)
        token, leave = current_trace.set(context), self._activate(context)

        def end() -> None:
            leave()
            current_trace.reset(token)

        self._begun[queue, delivery.fence] = _Begun(start_ns, sender, workflow or "", end)

    def end(self, delivery: Delivery, queue: str, settlement: Settlement | None) -> None:
        """It ended; without a settlement, because it was stopped and is released."""
        begun = self._begun.pop((queue, delivery.fence), None)
        if begun is None:
            return  # it is not recorded
        outcome, failure = outcome_of(Release(delivery) if settlement is None else settlement)
        begun.leave()
        span = RunSpan(
            queue,
            delivery.id,
            delivery.task,
            delivery.fence,
            delivery.attempt,
            delivery.enqueued_at_ms,
            begun.start_ns,
            epoch_ns(),
            self._worker,
            self._node,
            outcome,
            failure.error,
            failure.message,
            failure.traceback,
            begun.workflow,
            begun.sender,
        )
        self._ended[queue, delivery.fence] = [RUN, *span.as_parts()]

    def note_application_span(self, parts: Entry) -> None:
        """The application ended a span of its own."""
        if len(self._application) >= MOST_APPLICATION_SPANS:
            self.dropped += 1
        else:
            self._application.append([APPLICATION_SPAN, *parts])

    def note_sent(self, queue: str, error: str, count: int) -> None:
        """A task sent messages, or tried to."""
        with self._lock:
            self._sent[queue, error] = self._sent.get((queue, error), 0) + count

    def take(
        self, queue: str, settlements: Sequence[Settlement], runs_ms_by_task: Mapping[str, Sequence[float]]
    ) -> list[Entry]:
        """What goes along with the report on these deliveries, and on their runs; each entry once."""
        entries = run_times_of(queue, settlements, runs_ms_by_task).entries()
        if self._ended:  # few of many, as a rule: so these are gone through, and not the settlements
            fences = {each.delivery.fence for each in settlements}
            keys = [key for key in list(self._ended) if key[0] == queue and key[1] in fences]
            entries += [self._ended.pop(key) for key in keys]
        while self._application:
            entries.append(self._application.popleft())
        with self._lock:
            sent, self._sent = self._sent, {}
        entries += [[SENT, [*kind], count] for kind, count in sent.items()]
        if entries:
            self._batches += 1
            entries.insert(0, [BATCH, f"{self._name}-{self._batches}"])
        return entries


def run_times_of(
    queue: str, settlements: Sequence[Settlement], runs_ms_by_task: Mapping[str, Sequence[float]]
) -> RunTimes:
    """How long the runs of a report took; worked out for many at once, for it is done for every run."""
    times = RunTimes()
    failed = [each for each in settlements if type(each) is not Ack]
    if not failed:
        for task, runs_ms in runs_ms_by_task.items():
            times.note_all((queue, task, ""), runs_ms)
        return times
    for each in settlements:
        if (
            isinstance(each, Ack | RetryAt | Bury)
            and each.run is not None
            and isinstance(each.delivery, Delivery)
        ):
            times.note_all((queue, each.delivery.task, outcome_of(each)[1].error), [each.run.run_ms])
    return times
