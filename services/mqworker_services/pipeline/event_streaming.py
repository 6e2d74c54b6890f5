"""Streaming read of events: exact offsets, a limit on each batch, and trimming behind what was committed.

Runs in a process of its own beside the driver; only `read` runs on the executors.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from mqworker.events import EventStreams, StreamTail, open_event_streams
from mqworker_services.pipeline.event_planning import next_offset, slices_between, starting_mark, trim
from mqworker_services.pipeline.event_reading import EventPartition, read_partition
from mqworker_services.pipeline.offsets import OffsetDocument, as_document, from_document
from mqworker_services.pipeline.options import ReadOptions


class EventStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The events of all queues, or of those that were named, as an endless table."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._targets: dict[str, StreamTail] | None = None

    def initialOffset(self) -> OffsetDocument:  # noqa: N802 - Spark's name
        """Before everything that is there now, or as the option `starting` says."""
        with open_event_streams(self._options.settings) as streams:
            return as_document(
                {
                    queue: starting_mark(streams, queue, tail, self._options.starting)
                    for queue, tail in self._tails(streams).items()
                }
            )

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """At most so many events a batch."""
        return ReadMaxRows(self._options.max_events_per_batch)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Note how far the streams reach now: this query goes no further."""
        with open_event_streams(self._options.settings) as streams:
            self._targets = self._tails(streams)

    def latestOffset(self, start: OffsetDocument, limit: ReadLimit) -> OffsetDocument:  # noqa: N802 - Spark's name
        """The end of the next batch."""
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        with open_event_streams(self._options.settings) as streams:
            tails = self._tails(streams) if self._targets is None else self._targets
            end = next_offset(streams, from_document(start), tails, most, self._options.on_loss)
        return as_document(end)

    def partitions(self, start: OffsetDocument, end: OffsetDocument) -> list[InputPartition]:
        """The slices between two offsets."""
        events_each = self._options.events_per_partition
        with open_event_streams(self._options.settings) as streams:
            pieces = slices_between(streams, from_document(start), from_document(end), events_each)
        return [EventPartition(piece) for piece in pieces]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The events of one slice."""
        return read_partition(self._options, partition)

    def commit(self, end: OffsetDocument) -> None:
        """What was committed may be dropped from Redis, if that was asked for."""
        if self._options.is_trimming:
            with open_event_streams(self._options.settings) as streams:
                trim(streams, from_document(end))

    def _tails(self, streams: EventStreams) -> dict[str, StreamTail]:
        return {queue: streams.tail(queue) for queue in self._options.queues or streams.queues()}
