"""Writing is enqueueing: each row becomes one task, its columns the arguments by name.

Spark may run a task of its own twice, and a streaming writer is not told which batch it writes. A column of
the frame may tell rows apart: then an id is stored once, whoever stored it. Without one, in batch writes, the
server notes how far each partition is stored; one that comes out otherwise when tried again is refused.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from mqworker import App
from mqworker.errors import InvalidArgument
from mqworker.queues.work.bulk import BATCH, BulkPart, BulkRun, NamedCalls, end_run
from mqworker.queues.work.queue import WorkQueue
from mqworker_services.pipeline.options import WriteOptions
from mqworker_services.pipeline.row_encoding import call_bodies

# Any: arguments are whatever the columns hold.
NamedCall = tuple[str, dict[str, Any]]


@dataclass
class RowsWritten(WriterCommitMessage):
    """What one Spark task did."""

    rows: int


class TaskWriter(DataSourceArrowWriter):
    """Batch write."""

    def __init__(self, options: WriteOptions, columns: Sequence[str]) -> None:
        _check_columns(options, columns)
        self._options = options
        # Chosen once, on the driver: the same for every attempt of every Spark task.
        self._run = options.run or secrets.token_hex(8)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Enqueue the rows of one partition."""
        if self._options.id_column is not None:
            return enqueue_named_rows(self._options, self._options.id_column, iterator)
        context = TaskContext.get()
        return enqueue_part(self._options, iterator, self._run, context.partitionId() if context else 0)

    # None: Spark's own signature has it for tasks that failed, of which there are none here.
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:  # noqa: ARG002 - Spark's signature
        """All rows are stored: what is noted of the run has done its service."""
        if self._options.id_column is None:
            with _queue(self._options) as work:
                end_run(work, self._run, round(self._options.settings.dedup_window_s * 1000))


class TaskStreamWriter(DataSourceStreamArrowWriter):
    """Streaming write."""

    def __init__(self, options: WriteOptions, columns: Sequence[str]) -> None:
        if options.id_column is None:
            raise InvalidArgument(
                "option id is missing; a streaming write needs the column whose value tells rows apart, "
                "or a batch that is repeated would be enqueued twice"
            )
        _check_columns(options, columns)
        self._options = options
        self._id_column = options.id_column

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Enqueue the rows of one partition of one batch."""
        return enqueue_named_rows(self._options, self._id_column, iterator)


def enqueue_named_rows(
    options: WriteOptions, id_column: str, batches: Iterator[pa.RecordBatch]
) -> RowsWritten:
    """Enqueue all rows but those whose id is known, whoever stored it."""
    rows = 0
    with _queue(options) as work:
        calls = NamedCalls(
            work,
            options.task,
            max_crashes=options.settings.max_crashes,
            max_message_bytes=options.settings.max_message_bytes,
        )
        for batch in batches:
            rows += batch.num_rows
            named = _named_calls(batch, id_column)
            while some := list(islice(named, BATCH)):
                calls.enqueue(some)
    return RowsWritten(rows)


def enqueue_part(
    options: WriteOptions, batches: Iterator[pa.RecordBatch], run: str, number: int
) -> RowsWritten:
    """Enqueue all rows of a partition but those that another attempt at it has stored."""
    settings = options.settings
    with _queue(options) as work:
        part = BulkPart(
            BulkRun(
                keys=work.calls.keys,
                name=run,
                task=options.task,
                namespace=settings.namespace,
                events_kept=settings.events_kept,
                max_crashes=settings.max_crashes,
                max_body_bytes=settings.max_message_bytes,
            ),
            number,
        )
        for batch in batches:
            for bodies in call_bodies(batch, options.task):
                work.store.follow(part.add(bodies))
        part.end()
    return RowsWritten(part.rows)


@contextmanager
def _queue(options: WriteOptions) -> Iterator[WorkQueue]:
    app = App("pipeline", settings=options.settings)
    try:
        yield app.work_queue(options.queue)
    finally:
        app.close()


def _named_calls(batch: pa.RecordBatch, id_column: str) -> Iterator[NamedCall]:
    names = tuple(name for name in batch.schema.names if name != id_column)
    columns = [batch.column(name).to_pylist() for name in names]
    ids: list[str] = batch.column(id_column).cast(pa.string()).to_pylist()
    rows = zip(*columns, strict=True) if names else iter([()] * batch.num_rows)
    for call_id, values in zip(ids, rows, strict=True):
        yield call_id, dict(zip(names, values, strict=True))


def _check_columns(options: WriteOptions, columns: Sequence[str]) -> None:
    if options.id_column is not None and options.id_column not in columns:
        raise InvalidArgument(
            f"option id is {options.id_column!r}; accepted are the columns of the rows: {', '.join(columns)}"
        )
    if options.run is not None and not (options.run.isascii() and options.run.isalnum()):
        raise InvalidArgument(f"option run is {options.run!r}; accepted are letters and digits")
