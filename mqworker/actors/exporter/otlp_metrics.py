"""Metrics by OpenTelemetry's messaging convention: sums over what this node ran and what its tasks sent.

They only grow, as long as the exporter lives; a collector sees by their start that they began anew. A thread
sends them from time to time, and is never waited for.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricExporter,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from mqworker.model.clock import epoch_ns
from mqworker.model.run_span import SYSTEM
from mqworker.model.telemetry import BOUNDS_S, MOST_KINDS, OTHER, RunKind, RunTimes
from mqworker.redaction import masked_text

_CUMULATIVE = AggregationTemporality.CUMULATIVE
_MESSAGES = "{message}"


class Metrics:
    """The sums. Safe between threads."""

    def __init__(self, resource: Resource) -> None:
        self._resource = resource
        self._lock = threading.Lock()
        self._times = RunTimes()
        self._sent: dict[tuple[str, str], int] = {}
        self._start_ns = epoch_ns()

    def add_run_times(self, kind: RunKind, counts: list[int], total_s: float) -> None:
        """Runs of one kind."""
        with self._lock:
            self._times.add(kind, counts, total_s)

    def add_sent(self, queue: str, error: str, count: int) -> None:
        """Messages that tasks sent."""
        with self._lock:
            if (queue, error) not in self._sent and len(self._sent) >= MOST_KINDS:
                queue, error = OTHER, OTHER if error else ""
            self._sent[queue, error] = self._sent.get((queue, error), 0) + count

    def data(self, now_ns: int) -> MetricsData | None:
        """All of it as the SDK has it; None while there is nothing."""
        with self._lock:
            runs, sent = list(self._times), dict(self._sent)
        metrics = [*self._run_metrics(runs, now_ns), *self._sent_metrics(sent, now_ns)]
        if not metrics:
            return None
        scope = ScopeMetrics(InstrumentationScope(SYSTEM), metrics, "")
        return MetricsData([ResourceMetrics(self._resource, [scope], "")])

    def _run_metrics(self, runs: Sequence[tuple[RunKind, list[int], float]], now_ns: int) -> list[Metric]:
        if not runs:
            return []
        points = [
            HistogramDataPoint(
                _attributes("process", kind[0], kind[2], {"mqworker.task": kind[1]}),
                self._start_ns,
                now_ns,
                sum(counts),
                total_s,
                counts,
                BOUNDS_S,
                # Not known of sums; the encoder leaves them out.
                None,  # type: ignore[arg-type]
                None,  # type: ignore[arg-type]
            )
            for kind, counts, total_s in runs
        ]
        consumed: dict[tuple[str, str], int] = {}
        for kind, counts, _ in runs:
            consumed[kind[0], kind[2]] = consumed.get((kind[0], kind[2]), 0) + sum(counts)
        return [
            Metric(
                "messaging.process.duration",
                "How long tasks ran.",
                "s",
                Histogram(points, _CUMULATIVE),
            ),
            self._sum(
                "messaging.client.consumed.messages", "Deliveries that were run.", "process", consumed, now_ns
            ),
        ]

    def _sent_metrics(self, sent: Mapping[tuple[str, str], int], now_ns: int) -> list[Metric]:
        name, told = "messaging.client.sent.messages", "Messages that tasks sent, or tried to."
        return [self._sum(name, told, "send", sent, now_ns)] if sent else []

    def _sum(
        self, name: str, told: str, operation: str, counts: Mapping[tuple[str, str], int], now_ns: int
    ) -> Metric:
        points = [
            NumberDataPoint(_attributes(operation, queue, error, {}), self._start_ns, now_ns, count)
            for (queue, error), count in counts.items()
        ]
        return Metric(name, told, _MESSAGES, Sum(points, _CUMULATIVE, is_monotonic=True))


class MetricsThread:
    """Sends the sums at an interval, and once more at the end."""

    def __init__(self, metrics: Metrics, exporter: MetricExporter, *, every_s: float) -> None:
        self._metrics = metrics
        self._exporter = exporter
        self._every_s = every_s
        self._ending = threading.Event()
        self.trouble: str | None = None
        self._thread = threading.Thread(target=self._work, name="metrics", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Send the last sums, now."""
        self._ending.set()

    @property
    def is_over(self) -> bool:
        """Whether that is done."""
        return not self._thread.is_alive()

    def _work(self) -> None:
        while not self._ending.wait(self._every_s):
            self._send()
        self._send()

    def _send(self) -> None:
        data = self._metrics.data(epoch_ns())
        if data is None:
            return
        # Broad: whatever a library raises over an answer that it cannot read, the next sums are tried.
        try:
            is_sent = self._exporter.export(data) is MetricExportResult.SUCCESS
        except Exception as error:  # noqa: BLE001 - see above
            self.trouble = masked_text(f"{type(error).__name__}: {error}")
        else:
            self.trouble = None if is_sent else "the collector does not take metrics, or is away"


def _attributes(operation: str, queue: str, error: str, more: Mapping[str, str]) -> dict[str, str]:
    return {
        "messaging.system": SYSTEM,
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": queue,
        **more,
        **({"error.type": error} if error else {}),
    }
