"""Enqueue: one task for each row of a file, once, even if the command is repeated after it was killed."""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

from mqworker import App
from mqworker.errors import InvalidArgument
from mqworker.queues.work.bulk import rows_stored
from mqworker.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMATS: Final = {
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".parquet": "parquet",
}
# Rows are told apart by file part and position: the parts must not depend on how many cores there are.
_SPLIT: Final = {
    "spark.sql.files.minPartitionNum": "16",
    "spark.sql.files.maxPartitionBytes": "134217728",
    "spark.sql.files.openCostInBytes": "4194304",
}


_LONGEST_LINE: Final = 100


@dataclass(frozen=True, slots=True)
class EnqueuePlan:
    """What is enqueued, and where."""

    settings: Settings
    file: Path
    task: str
    queue: str
    id_column: str | None = None
    format: str | None = None
    run: str | None = None
    """A name for this enqueueing, by which it is taken up again; by default made from the file."""


@dataclass(frozen=True, slots=True)
class EnqueuedRows:
    """What became of the rows of a file."""

    rows: int
    known: int
    """How many of them had been enqueued before, by the same run."""


def enqueue_file(spark: SparkSession, plan: EnqueuePlan) -> EnqueuedRows:
    """Enqueue one task for each row, but for those that an earlier try of the same run enqueued."""
    from pyspark.sql import Observation  # noqa: PLC0415 - optional, and seconds to import
    from pyspark.sql.functions import count, lit  # noqa: PLC0415 - same

    rows = _checked_rows(spark, plan)
    run = plan.run or run_of(plan)
    known = _known_rows(plan, run)
    seen = Observation("enqueue")
    writer = (
        rows.observe(seen, count(lit(1)).alias("rows"))
        .write.format("mqworker")
        .mode("append")
        .option("task", plan.task)
        .option("queue", plan.queue)
        .option("redis_url", plan.settings.redis_url or "")
        .option("namespace", plan.settings.namespace)
        .option("run", run)
    )
    if plan.id_column is not None:
        writer = writer.option("id", plan.id_column)
    writer.save()
    return EnqueuedRows(int(seen.get["rows"]), known)


def read_rows(spark: SparkSession, plan: EnqueuePlan) -> DataFrame:
    """The rows of the file; its columns are the arguments of the task."""
    for key, value in _SPLIT.items():
        spark.conf.set(key, value)
    kind = file_format(plan.file, plan.format)
    if not plan.file.exists():
        raise InvalidArgument(f"FILE is {plan.file}, which does not exist")
    reader = spark.read
    if kind == "csv":
        reader = reader.option("header", "true").option("inferSchema", "true").option("mode", "FAILFAST")
    elif kind == "json":
        reader = reader.option("mode", "FAILFAST")
    rows = reader.format(kind).load(f"file://{plan.file.absolute()}")
    if plan.id_column is not None and plan.id_column not in rows.columns:
        raise InvalidArgument(
            f"--id is {plan.id_column!r}; accepted are the columns of {plan.file.name}: "
            f"{', '.join(rows.columns)}"
        )
    return rows


def _checked_rows(spark: SparkSession, plan: EnqueuePlan) -> DataFrame:
    """The rows; a text is parsed to its end before anything is enqueued.

    Half of a file would be there twice once it is mended.
    """
    from py4j.protocol import Py4JError  # noqa: PLC0415 - comes with PySpark, which is optional
    from pyspark.errors import PySparkException  # noqa: PLC0415 - same

    kind = file_format(plan.file, plan.format)
    try:
        rows = read_rows(spark, plan)
        if kind != "parquet":
            rows.write.format("noop").mode("overwrite").save()
    except (PySparkException, Py4JError) as error:
        place = None if kind == "parquet" else bad_row(plan.file, kind)
        if place is None:
            raise
        raise InvalidArgument(
            f"FILE {plan.file.name} cannot be read at {place}; nothing was enqueued"
        ) from error
    return rows


def bad_row(file: Path, kind: str) -> str | None:
    """Where a text is not what its format wants, as `line N: …`; None when no place is found."""
    if file.is_dir():
        return None
    with file.open(encoding="utf-8", errors="replace", newline="") as text:
        for number, line, is_good in _checked_csv(text) if kind == "csv" else _checked_json(text):
            if not is_good:
                return f"line {number:,}: {line.strip()[:_LONGEST_LINE]}"
    return None


def _checked_csv(text: TextIO) -> Iterator[tuple[int, str, bool]]:
    rows = csv.reader(text)
    width = len(next(rows, []))
    for row in rows:
        yield rows.line_num, ",".join(row), len(row) in {0, width}


def _checked_json(text: TextIO) -> Iterator[tuple[int, str, bool]]:
    for number, line in enumerate(text, 1):
        try:
            is_good = not line.strip() or isinstance(json.loads(line), dict)
        except ValueError:
            is_good = False
        yield number, line, is_good


def _known_rows(plan: EnqueuePlan, run: str) -> int:
    app = App("pipeline", settings=plan.settings)
    try:
        return rows_stored(app.work_queue(plan.queue), run)
    finally:
        app.close()


def file_format(file: Path, given: str | None) -> str:
    """The format of a file by its name, unless it was given."""
    kind = given or FORMATS.get(file.suffix.lower())
    if kind is None:
        raise InvalidArgument(
            f"FILE is {file.name}, whose name does not tell the format; accepted is --format csv, json "
            "or parquet"
        )
    return kind


def run_of(plan: EnqueuePlan) -> str:
    """A name for enqueueing this file to this task: the same when the command is repeated."""
    parts = sorted(plan.file.rglob("*")) if plan.file.is_dir() else [plan.file]
    state = [(str(part), part.stat().st_size, part.stat().st_mtime_ns) for part in parts if part.is_file()]
    text = repr((plan.task, plan.queue, str(plan.file.absolute()), state))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
