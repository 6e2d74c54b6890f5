"""Replay: dead letters chosen by SQL go back to their queue."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby, islice
from typing import TYPE_CHECKING, Final

from mqworker import App
from mqworker.errors import InvalidArgument
from mqworker.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_BATCH: Final = 500


def chosen_letters(spark: SparkSession, settings: Settings, where: str) -> DataFrame:
    """The dead letters of all queues for which a condition holds; raises when it is not a condition."""
    from pyspark.errors import AnalysisException, ParseException  # noqa: PLC0415 - optional

    letters = (
        spark.read.format("mqworker")
        .option("table", "dead_letters")
        .option("redis_url", settings.redis_url or "")
        .option("namespace", settings.namespace)
        .load()
    )
    try:
        return letters.where(where)
    except (ParseException, AnalysisException) as error:
        problem = str(error).splitlines()[0]
        raise InvalidArgument(
            f"--where is {where!r}; accepted is an SQL condition over {', '.join(letters.columns)}: {problem}"
        ) from error


def revive(letters: DataFrame, settings: Settings) -> dict[str, int]:
    """Put them back in line; how many of each queue. One that is no longer dead is left alone."""
    revived: dict[str, int] = {}
    app = App("pipeline", settings=settings)
    try:
        for queue, ids in _by_queue(letters):
            back = len(app.work_queue(queue).revive(*ids))
            revived[queue] = revived.get(queue, 0) + back
    finally:
        app.close()
    return revived


def _by_queue(letters: DataFrame) -> Iterator[tuple[str, list[str]]]:
    rows = letters.select("queue", "task_id").toLocalIterator()
    for queue, group in groupby(rows, key=lambda row: row["queue"]):
        while ids := [row["task_id"] for row in islice(group, _BATCH)]:
            yield queue, ids
