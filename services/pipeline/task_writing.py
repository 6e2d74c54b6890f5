"""Writing is enqueueing: each row becomes one task, its columns the arguments by name.

Spark may run a task of its own twice, and a streaming writer is not told which batch it writes. So each row
has an id, and an id is stored once: from a column of the frame, or, for a batch whose partitions come out the
same when tried again, from the run, the partition and the position in it.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from mqworker import App
from mqworker.errors import InvalidArgument
from mqworker.queues.work_named_calls import BATCH, NamedCalls
from services.pipeline.options import WriteOptions

# Any: arguments are whatever the columns hold.
NamedCall = tuple[str, dict[str, Any]]

LONGEST_RUN: Final = 40


@dataclass
class RowsWritten(WriterCommitMessage):
    """What one Spark task did."""

    rows: int
    new: int


class TaskWriter(DataSourceArrowWriter):
    """Batch write."""

    def __init__(self, options: WriteOptions, columns: Sequence[str]) -> None:
        _check_columns(options, columns)
        self._options = options
        # Chosen once, on the driver: the same for every attempt of every Spark task.
        self._run = options.run or secrets.token_hex(8)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Enqueue the rows of one partition."""
        context = TaskContext.get()
        partition = context.partitionId() if context else 0
        return enqueue_rows(self._options, iterator, f"{self._run}-{partition}")


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

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Enqueue the rows of one partition of one batch."""
        return enqueue_rows(self._options, iterator, "")


def enqueue_rows(options: WriteOptions, batches: Iterator[pa.RecordBatch], prefix: str) -> RowsWritten:
    """Enqueue all rows; those that are known by their id are left alone."""
    app = App("pipeline", settings=options.settings)
    rows = new = 0
    try:
        calls = NamedCalls(
            app.work_queue(options.queue),
            options.task,
            max_crashes=options.settings.max_crashes,
            max_message_bytes=options.settings.max_message_bytes,
        )
        for batch in batches:
            named = _named_calls(batch, options.id_column, prefix, rows)
            rows += batch.num_rows
            while some := list(islice(named, BATCH)):
                new += calls.enqueue(some)
    finally:
        app.close()
    return RowsWritten(rows, new)


def _named_calls(
    batch: pa.RecordBatch, id_column: str | None, prefix: str, first: int
) -> Iterator[NamedCall]:
    columns = {name: batch.column(name).to_pylist() for name in batch.schema.names if name != id_column}
    if id_column is None:
        ids: list[str] = [f"{prefix}-{position}" for position in range(first, first + batch.num_rows)]
    else:
        ids = batch.column(id_column).cast(pa.string()).to_pylist()
    names = tuple(columns)
    rows = zip(*columns.values(), strict=True) if names else iter([()] * batch.num_rows)
    for call_id, values in zip(ids, rows, strict=True):
        yield call_id, dict(zip(names, values, strict=True))


def _check_columns(options: WriteOptions, columns: Sequence[str]) -> None:
    if options.id_column is not None and options.id_column not in columns:
        raise InvalidArgument(
            f"option id is {options.id_column!r}; accepted are the columns of the rows: {', '.join(columns)}"
        )
    if options.run is not None and not (options.run.isascii() and options.run.isalnum()):
        raise InvalidArgument(f"option run is {options.run!r}; accepted are letters and digits")
