"""The measures of mqworker beside raw clients, one line each: write `run(rounds)` and add its line.

A module prints its tables with `benchmarks.table`, which also keeps them for the JSON file. It is imported
only when its turn comes: one whose libraries are not installed costs a line of the output, not the run.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OwnMeasure:
    """A module of this package with `run(rounds: int) -> None`; `is_quick` ones belong to `make bench`."""

    name: str
    module: str
    about: str
    is_quick: bool = True


OWN_MEASURES = (
    OwnMeasure("store", "benchmarks.store", "the work queue beside raw redis-py"),
    OwnMeasure("tasks", "benchmarks.tasks", "task.enqueue beside raw redis-py"),
    OwnMeasure("node", "benchmarks.node", "a whole node: CPU by part, mixed tasks", is_quick=False),
    OwnMeasure("sealed", "benchmarks.sealed", "a node with signed and encrypted payloads", is_quick=False),
    OwnMeasure("tracing", "benchmarks.tracing", "drain with one run in a hundred traced", is_quick=False),
    OwnMeasure("console", "benchmarks.console", "drain beside open tabs and a search", is_quick=False),
    OwnMeasure("limits", "benchmarks.limits", "limited tasks beside plain ones", is_quick=False),
    OwnMeasure("waiting", "benchmarks.waiting", "thousands of awaited jobs; queues at rest", is_quick=False),
    OwnMeasure("batches", "benchmarks.batches", "rows into SQLite by ones and by batches"),
    OwnMeasure("rsmq", "benchmarks.rsmq", "RSMQ beside PyRSMQ"),
    OwnMeasure("gateways", "benchmarks.gateways", "the gateways beside the plain server"),
    OwnMeasure("gq", "benchmarks.gq", "gq beside procrastinate", is_quick=False),
    OwnMeasure("pipeline", "benchmarks.pipeline", "the Spark pipeline", is_quick=False),
    OwnMeasure("pipeline-report", "benchmarks.pipeline_report", "the report beside DuckDB", is_quick=False),
)
