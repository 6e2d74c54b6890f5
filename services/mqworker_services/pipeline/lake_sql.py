"""SQL over the lake: by DuckDB in this process, or by Spark where a session is given.

The table is called `events`. DuckDB sees its files and nothing else: no other file, no network; the settings
that say so are locked.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyarrow import dataset

from mqworker.errors import ConfigurationError, InvalidArgument
from mqworker_services.pipeline.lake import Lake
from mqworker_services.pipeline.table import LakeTable
from mqworker_services.pipeline.trouble import sentence

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VIEW: Final = "events"


@dataclass(frozen=True, slots=True)
class Found:
    """Rows of an answer, at most as many as were asked for, and whether there are more."""

    columns: tuple[str, ...]
    # Any: values of whatever types the query makes.
    rows: Sequence[tuple[Any, ...]]
    has_more: bool


def query(lake: Lake, sql: str, most: int) -> Found:
    """The answer of DuckDB; raises InvalidArgument with what it has to say about the query."""
    if importlib.util.find_spec("duckdb") is None:
        raise ConfigurationError(
            "SQL without Spark needs duckdb, which is not installed: pip install 'mqworker[lake]'"
        )
    import duckdb  # noqa: PLC0415 - optional

    with duckdb.connect(":memory:") as connection:
        _show_events(connection, LakeTable.open(lake))
        try:
            connection.execute(sql)
            columns = tuple(str(each[0]) for each in connection.description or ())
            rows = connection.fetchmany(most + 1)
        except duckdb.Error as error:
            raise InvalidArgument(_wrong(sql, str(error))) from error
    return Found(columns, rows[:most], len(rows) > most)


def query_on_spark(spark: SparkSession, lake: Lake, sql: str, most: int) -> Found:
    """The answer of Spark, over the same files."""
    from pyspark.errors import PySparkException  # noqa: PLC0415 - optional

    reader = spark.read.format("mqworker").option("table", "archive").option("lake", lake.root)
    for name, value in lake.storage.options:
        reader = reader.option(name, value)
    try:
        reader.load().createOrReplaceTempView(VIEW)
        found = spark.sql(sql).limit(most + 1)
        rows = [tuple(row) for row in found.collect()]
    except PySparkException as error:
        raise InvalidArgument(_wrong(sql, sentence(str(error)))) from error
    return Found(tuple(found.columns), rows[:most], len(rows) > most)


# Any: the connection of a library without types.
def _show_events(connection: Any, table: LakeTable) -> None:  # noqa: ANN401
    """The files of the table as `events`; after that the connection can read nothing else."""
    lake = table.lake
    paths = [lake.storage.path(lake.file(file.path)) for file in table.files()]
    if paths and lake.storage.is_local:
        listed = ", ".join("'" + path.replace("'", "''") + "'" for path in paths)
        connection.execute(f"CREATE VIEW {VIEW} AS FROM read_parquet([{listed}], union_by_name = true)")
        connection.execute(f"SET allowed_paths = [{listed}]")
    elif paths:
        files = dataset.dataset(paths, schema=table.columns, filesystem=lake.storage.files, format="parquet")
        connection.register(VIEW, files)
    else:
        connection.register(VIEW, pa.Table.from_batches([], table.columns))
    for setting in ("TimeZone = 'UTC'", "enable_external_access = false", "lock_configuration = true"):
        connection.execute(f"SET {setting}")


def _wrong(sql: str, said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    reason = lines[0] if lines else "no reason given"
    return f"SQL is {sql!r}; accepted is a query over the table {VIEW}: {reason}"
