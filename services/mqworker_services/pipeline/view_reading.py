"""Read of queues and of dead letters as they are now."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from mqworker import App
from mqworker.events import open_event_streams
from mqworker.queues import WorkQueue
from mqworker_services.pipeline.options import ReadOptions
from mqworker_services.pipeline.schema import DEAD_LETTER_SCHEMA, QUEUE_SCHEMA

_PAGE: Final = 1_000

# Any: a row is a value for each column of its schema.
Row = dict[str, Any]


class QueuePartition(InputPartition):
    """One queue, for one Spark task."""

    def __init__(self, queue: str) -> None:
        super().__init__(queue)
        self.queue = queue


class ViewReader(DataSourceReader):
    """The state of queues, or their dead letters, one Spark task for each queue."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """All queues, or those that were named."""
        with open_event_streams(self._options.settings) as streams:
            return [QueuePartition(queue) for queue in self._options.queues or streams.queues()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """What is to be said of one queue."""
        if not isinstance(partition, QueuePartition):
            return  # what Spark makes of no partitions at all
        app = App("pipeline", settings=self._options.settings)
        try:
            work = app.work_queue(partition.queue)
            if self._options.table == "queues":
                yield pa.RecordBatch.from_pylist([_queue_row(work)], schema=QUEUE_SCHEMA)
            else:
                yield from _dead_letters(work)
        finally:
            app.close()


def _queue_row(work: WorkQueue) -> Row:
    counts = work.counts()
    totals = {
        f"{name}_total": counts.totals.get(name, 0) for name in ("enqueued", "succeeded", "retried", "buried")
    }
    return totals | {
        "queue": work.name,
        "model": "work",
        "ready": counts.ready,
        "delayed": counts.delayed,
        "leased": counts.leased,
        "delivered": counts.delivered,
        "dead": counts.dead,
        "is_paused": counts.is_paused,
        "length_limit": counts.limit,
    }


def _dead_letters(work: WorkQueue) -> Iterator[pa.RecordBatch]:
    start = 0
    while letters := work.dead_letters(start, _PAGE):
        start += len(letters)
        rows = [
            {
                "task_id": letter.id,
                "task": letter.message.task if letter.message else None,
                "queue": work.name,
                "buried_at": _instant(letter.buried_at_ms),
                "enqueued_at": _instant(letter.message.enqueued_at_ms) if letter.message else None,
                "attempt": letter.message.deliveries if letter.message else None,
                "reason": letter.reason,
                "error": letter.error,
                "error_msg": letter.error_message,
                "traceback": letter.traceback,
            }
            for letter in letters
        ]
        yield pa.RecordBatch.from_pylist(rows, schema=DEAD_LETTER_SCHEMA)


def _instant(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms / 1000, UTC)
