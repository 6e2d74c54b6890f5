"""The lake: where the archive stands, how its folders are named, and how it is read.

LAKE/events/date=2026-01-31/batch=0000000012/part-….parquet   plain Parquet for Spark, DuckDB, pandas
LAKE/_mqworker/                                               checkpoint, journal of compaction, lock
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from mqworker.errors import InvalidArgument, MqworkerError
from mqworker_services.pipeline.schema import LAKE_SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COMPACTED: Final = "c"
"""What the name of a compacted batch begins with; those that the archiver wrote are digits alone."""

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")


class EmptyLake(MqworkerError):
    """Archive first: there is nothing in this lake."""


@dataclass(frozen=True, slots=True)
class Lake:
    """The folders of one lake."""

    root: Path

    @classmethod
    def at(cls, place: str) -> Lake:
        """The lake in a folder of this machine, given as a path or as `file:///…`."""
        scheme = _SCHEME.match(place)
        if scheme is not None and scheme.group(1).lower() != "file":
            raise InvalidArgument(
                f"--lake is {place!r}; accepted is a folder, which all executors share, as a path or as "
                "file:///…"
            )
        if scheme is not None:
            url = urlsplit(place)
            if url.netloc not in {"", "localhost"} or url.query or url.fragment or not url.path:
                raise InvalidArgument(f"--lake is {place!r}; accepted is file:/// and an absolute path")
            place = unquote(url.path)
        return cls(Path(place).absolute())

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


def url_of(path: Path) -> str:
    """A path for Spark, which takes one without a scheme for a path of its default filesystem."""
    return f"file://{path}"


def emptiness(lake: Lake) -> str:
    """What to tell of a lake without files."""
    if any((lake.checkpoint / "commits").glob("*.json")):
        return f"batches were committed to the lake {lake.root}, and their files are gone: restore them"
    return f"the lake {lake.root} is empty; `mqworker pipeline archive --once` fills it"


def read_lake(spark: SparkSession, lake: Lake) -> DataFrame:
    """All archived events, each once, with `date` and `batch`; raises EmptyLake when there are none."""
    if not lake.events.is_dir() or next(lake.batches(), None) is None:
        raise EmptyLake(emptiness(lake))
    rows = spark.read.schema(LAKE_SCHEMA).parquet(url_of(lake.events))
    for date, batch in lake.superseded():
        rows = rows.where(f"NOT (date = DATE'{date}' AND batch = '{batch}')")
    return rows
