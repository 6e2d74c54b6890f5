"""Reading events on Spark's executors: one slice of one queue's stream becomes Arrow batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from mqworker.errors import UnknownQueue
from mqworker.events import EventStreams, open_event_streams
from mqworker_services.pipeline.arrow_blocks import record_batches
from mqworker_services.pipeline.event_planning import starting_mark
from mqworker_services.pipeline.offsets import EventsLost, Slice, sliced
from mqworker_services.pipeline.options import ReadOptions


class EventPartition(InputPartition):
    """A slice on its way to an executor."""

    def __init__(self, piece: Slice) -> None:
        super().__init__(asdict(piece))
        self.piece = piece


class EventReader(DataSourceReader):
    """Batch read: everything that is in the streams when the query is planned."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """The slices of all streams."""
        options = self._options
        with open_event_streams(options.settings) as streams:
            refuse_unknown(options.queues, streams.queues())
            return [
                EventPartition(piece)
                for queue in options.queues or streams.queues()
                for piece in _stream(streams, queue, options)
            ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The events of one slice."""
        return read_partition(self._options, partition)


def refuse_unknown(asked: Sequence[str], known: Sequence[str]) -> None:
    """A queue that never was has no events: its name is mistyped."""
    unknown = [queue for queue in asked if queue not in known]
    if unknown:
        names = ", ".join(sorted(known)) or "none: nothing was ever enqueued"
        raise UnknownQueue(
            f"option queues is {','.join(asked)!r}, and there is no queue {unknown[0]!r}; known are {names}"
        )


def read_partition(options: ReadOptions, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
    """The events of a slice that Spark brought here."""
    if isinstance(partition, EventPartition):  # not what Spark makes of no partitions at all
        yield from read_slice(options, partition.piece)


def read_slice(options: ReadOptions, piece: Slice) -> Iterator[pa.RecordBatch]:
    """The events of one slice; raises EventsLost when they were dropped after the query was planned."""
    found = 0
    with open_event_streams(options.settings) as streams:
        for page in streams.blocks(piece.queue, piece.after, piece.until):
            found += len(page)
            yield from record_batches(piece.queue, page)
    if found != piece.blocks and options.on_loss == "fail":
        raise EventsLost(
            f"queue {piece.queue}: {piece.blocks - found:,} of {piece.blocks:,} blocks of events were "
            "dropped while they were being read; raise events_kept, or go on without them: on_loss=skip"
        )


def _stream(streams: EventStreams, queue: str, options: ReadOptions) -> Iterator[Slice]:
    tail = streams.tail(queue)
    after = starting_mark(streams, queue, tail, options.starting).id
    listed = streams.listed(queue, after, tail.newest)
    return sliced(queue, after, listed, options.events_per_partition)
