"""The lake: where the archive stands, how its folders are named, and how it is read.

LAKE/events/date=2026-01-31/batch=0000000012/part-….parquet   plain Parquet for Spark, DuckDB, pandas
LAKE/_mqworker/                                               checkpoint, journal of compaction, lock
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mqworker.errors import MqworkerError
from mqworker_services.pipeline.schema import LAKE_SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COMPACTED: Final = "c"
"""What the name of a compacted batch begins with; those that the archiver wrote are digits alone."""


class EmptyLake(MqworkerError):
    """Archive first: there is nothing in this lake."""


@dataclass(frozen=True, slots=True)
class Lake:
    """The folders of one lake."""

    root: Path

    @property
    def events(self) -> Path:
        """The Parquet files, by day and batch."""
        return self.root / "events"

    @property
    def checkpoint(self) -> Path:
        """How far the archiver has come."""
        return self.root / "_mqworker" / "checkpoint"

    @property
    def compaction(self) -> Path:
        """What a compaction works on; empty when none is under way."""
        return self.root / "_mqworker" / "compaction"

    @property
    def lock(self) -> Path:
        """Held by the one process that may write."""
        return self.root / "_mqworker" / "lock"

    def batches(self) -> Iterator[tuple[str, str]]:
        """(date, batch) of every folder with files."""
        for folder in sorted(self.events.glob("date=*/batch=*")):
            if any(folder.glob("*.parquet")):
                yield folder.parent.name.removeprefix("date="), folder.name.removeprefix("batch=")

    def folder(self, date: str, batch: str) -> Path:
        """The folder of one batch of one day."""
        return self.events / f"date={date}" / f"batch={batch}"

    def superseded(self) -> set[tuple[str, str]]:
        """Batches whose rows stand in a compacted one already and which are about to be deleted."""
        replaced: set[tuple[str, str]] = set()
        for note in self.compaction.glob("*.json"):
            swap = json.loads(note.read_text(encoding="utf-8"))
            if self.folder(swap["date"], swap["batch"]).exists():
                replaced |= {(swap["date"], batch) for batch in swap["replaces"]}
        return replaced


def batch_name(batch: int) -> str:
    """The folder name of a batch: as wide as any number gets, so that names sort like numbers."""
    return f"{batch:010d}"


def read_lake(spark: SparkSession, lake: Lake) -> DataFrame:
    """All archived events, each once, with `date` and `batch`; raises EmptyLake when there are none."""
    if not lake.events.is_dir() or next(lake.batches(), None) is None:
        raise EmptyLake(f"the lake {lake.root} is empty; `mqworker pipeline archive --once` fills it")
    rows = spark.read.schema(LAKE_SCHEMA).parquet(str(lake.events))
    for date, batch in lake.superseded():
        rows = rows.where(f"NOT (date = DATE'{date}' AND batch = '{batch}')")
    return rows
