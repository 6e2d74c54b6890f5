"""`format("mqworker")`: events, queues, dead letters and the archive as tables, a table of calls as tasks.

Found by Spark without registration through the package `pyspark_mqworker`, which must be installed wherever
executors run. Spark starts a process for each question that it has about a source, so each imports only what
it needs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from mqworker.errors import InvalidArgument
from mqworker.events import with_server
from mqworker_services.pipeline.options import ReadOptions, WriteOptions, read_options, write_options
from mqworker_services.pipeline.schema import ARROW_SCHEMA, DEAD_LETTER_SCHEMA, QUEUE_SCHEMA, spark_schema

if TYPE_CHECKING:
    from mqworker_services.pipeline.archive_reading import ArchiveReader
    from mqworker_services.pipeline.event_reading import EventReader
    from mqworker_services.pipeline.event_streaming import EventStreamReader
    from mqworker_services.pipeline.task_writing import TaskStreamWriter, TaskWriter
    from mqworker_services.pipeline.view_reading import ViewReader

OptionsT = TypeVar("OptionsT", ReadOptions, WriteOptions)

SCHEMA_BY_TABLE = {
    "events": ARROW_SCHEMA,
    "queues": QUEUE_SCHEMA,
    "dead_letters": DEAD_LETTER_SCHEMA,
    "archive": ARROW_SCHEMA,
}


class DefaultSource(DataSource):
    """The data source; Spark asks for this name in `pyspark_mqworker`."""

    @classmethod
    def name(cls) -> str:
        """What stands in `format(...)`."""
        return "mqworker"

    def schema(self) -> str:
        """The columns of the table that is read."""
        return spark_schema(SCHEMA_BY_TABLE[read_options(self.options).table])

    def reader(self, schema: StructType) -> EventReader | ViewReader | ArchiveReader:  # noqa: ARG002 - ours
        """Batch read."""
        options = read_options(self.options)
        if options.table == "archive":  # needs no server
            from mqworker_services.pipeline.archive_reading import ArchiveReader  # noqa: PLC0415 - only where needed

            return ArchiveReader(options)
        options = _located(options)
        if options.table == "events":
            from mqworker_services.pipeline.event_reading import EventReader  # noqa: PLC0415 - only where needed

            return EventReader(options)
        from mqworker_services.pipeline.view_reading import ViewReader  # noqa: PLC0415 - only where needed

        return ViewReader(options)

    def streamReader(self, schema: StructType) -> EventStreamReader:  # noqa: ARG002, N802 - Spark's name
        """Streaming read."""
        options = self._read_options()
        if options.table != "events":
            raise InvalidArgument(f"option table is {options.table!r}; only events can be read as a stream")
        from mqworker_services.pipeline.event_streaming import EventStreamReader  # noqa: PLC0415 - only where needed

        return EventStreamReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> TaskWriter:  # noqa: FBT001 - Spark's signature
        """Batch write."""
        if overwrite:
            raise InvalidArgument(
                'mode is "overwrite"; accepted is "append": tasks are added to a queue, none is replaced'
            )
        from mqworker_services.pipeline.task_writing import TaskWriter  # noqa: PLC0415 - only where needed

        return TaskWriter(self._write_options(), schema.fieldNames())

    def streamWriter(self, schema: StructType, overwrite: bool) -> TaskStreamWriter:  # noqa: FBT001, N802 - Spark's
        """Streaming write."""
        if overwrite:
            raise InvalidArgument(
                'the output mode is "complete"; accepted is "append": tasks are only ever added to a queue'
            )
        from mqworker_services.pipeline.task_writing import TaskStreamWriter  # noqa: PLC0415 - only where needed

        return TaskStreamWriter(self._write_options(), schema.fieldNames())

    def _read_options(self) -> ReadOptions:
        return _located(read_options(self.options))

    def _write_options(self) -> WriteOptions:
        return _located(write_options(self.options))


def _located(options: OptionsT) -> OptionsT:
    """The options with the server's URL: executors stand in other directories, or on other machines."""
    return replace(options, settings=with_server(options.settings))
