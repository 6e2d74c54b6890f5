"""What a lake holds, for assertions: read by the table's own list of files, without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from mqworker_services.pipeline.lake import Lake
from mqworker_services.pipeline.lake_reading import read_columns
from mqworker_services.pipeline.schema import ARROW_SCHEMA
from mqworker_services.pipeline.table import LakeFile, LakeTable


def rows_of(lake: Lake, schema: Any = ARROW_SCHEMA) -> Any:  # noqa: ANN401 - pyarrow ships no types
    """All rows of the table."""
    tables = [read_columns(lake, file, schema) for file in LakeTable.open(lake).files()]
    return pa.concat_tables([schema.empty_table(), *tables])


def keys_of(lake: Lake) -> list[tuple[object, ...]]:
    """What names each row for good, in order."""
    rows = rows_of(lake)
    return sorted(zip(*(rows[name].to_pylist() for name in ("shard", "block", "seq")), strict=True))


def path_of(lake: Lake, file: LakeFile) -> Path:
    """Where a file of a local lake lies."""
    return Path(lake.storage.path(lake.file(file.path)))


def paths_of(lake: Lake) -> list[Path]:
    """The files of a local lake."""
    return [path_of(lake, file) for file in LakeTable.open(lake).files()]
