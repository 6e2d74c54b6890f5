"""`format("mqworker").option("table", "archive")`: the lake as a table of Spark, by its list of files.

Needs neither the jars of Delta nor those of a bucket: executors read the files through pyarrow.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from mqworker_services.pipeline.lake import Lake
from mqworker_services.pipeline.lake_reading import read_columns
from mqworker_services.pipeline.options import ReadOptions
from mqworker_services.pipeline.schema import ARROW_SCHEMA
from mqworker_services.pipeline.table import LakeFile, lake_files

_ROWS_AT_ONCE: Final = 50_000


class FilePartition(InputPartition):
    """A file on its way to an executor."""

    def __init__(self, file: LakeFile) -> None:
        super().__init__(file.path)
        self.file = file


class ArchiveReader(DataSourceReader):
    """All events of a lake, or those of some queues; one Spark task for each file."""

    def __init__(self, options: ReadOptions) -> None:
        self._queues = options.queues
        self._lake = Lake.at(options.lake, dict(options.storage))

    def partitions(self) -> list[InputPartition]:
        """The files of the table, as they are when the query is planned."""
        return [FilePartition(file) for file in lake_files(self._lake, queues=self._queues)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The events of one file."""
        if not isinstance(partition, FilePartition):  # what Spark makes of no partitions at all
            return
        rows = read_columns(self._lake, partition.file, ARROW_SCHEMA)
        if self._queues:
            rows = rows.filter(pa.compute.is_in(rows["queue"], pa.array(self._queues, pa.string())))
        yield from rows.to_batches(_ROWS_AT_ONCE)
