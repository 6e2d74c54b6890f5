"""Reading the files of a table: columns that an older one lacks are null, a damaged one is named."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from mqworker.errors import MqworkerError
from mqworker_services.pipeline.lake import Lake
from mqworker_services.pipeline.table import LakeFile


class BrokenFile(MqworkerError):
    """Restore the file: it is gone, or not Parquet, or not all of it."""


@contextmanager
def reading(lake: Lake, file: LakeFile) -> Iterator[None]:
    """Errors of reading become a sentence that names the file."""
    url = lake.storage.url(lake.file(file.path))
    try:
        yield
    except FileNotFoundError as error:
        raise BrokenFile(
            f"the file {url}, with {file.rows:,} events of {file.date}, is gone: restore it"
        ) from error
    except (pa.ArrowException, OSError) as error:
        said = (str(error).splitlines() or [type(error).__name__])[0]
        raise BrokenFile(f"the file {url} is not a readable Parquet file ({said}); restore it") from error


# Any: pyarrow ships no types.
@contextmanager
def opened(lake: Lake, file: LakeFile, **options: Any) -> Iterator[Any]:  # noqa: ANN401
    """A file of the table, for its metadata and its rows."""
    path = lake.storage.path(lake.file(file.path))
    with reading(lake, file), pq.ParquetFile(path, filesystem=lake.storage.files, **options) as parquet:
        yield parquet


def read_columns(lake: Lake, file: LakeFile, schema: Any) -> Any:  # noqa: ANN401 - as above
    """All rows of a file, as this schema has them."""
    with opened(lake, file) as parquet:
        present = set(parquet.schema_arrow.names)
        rows = parquet.read([name for name in schema.names if name in present], use_threads=False)
    columns = [
        rows[field.name].cast(field.type) if field.name in present else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def as_stream(table: Any) -> bytes:  # noqa: ANN401 - as above
    """A table on its way between an executor and the driver."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    said: bytes = sink.getvalue().to_pybytes()
    return said
