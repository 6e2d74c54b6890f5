"""The files that a report will read, looked at before Spark does: whole, complete, and of a known version.

Only the ends of the files are read, where Parquet keeps what it knows about itself: less than a millisecond
each. So a broken file is named in one sentence, and the span of the events is known before the first job.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from mqworker.errors import MqworkerError
from mqworker_services.pipeline.lake import EmptyLake, Lake
from mqworker_services.pipeline.report_window import Window
from mqworker_services.pipeline.schema import ARROW_SCHEMA, SCHEMA_VERSION

_READERS: Final = 4


class UnreadableLake(MqworkerError):
    """Mend or remove the file: what it holds is not what an archive writes."""


@dataclass(frozen=True, slots=True)
class Extent:
    """What the ends of the files tell: how many rows, and between which instants."""

    files: tuple[Path, ...]
    rows: int
    first_ms: int
    last_ms: int


@dataclass(frozen=True, slots=True)
class _Footer:
    path: Path
    rows: int
    first_ms: int | None
    last_ms: int | None
    version: int


def look_at_files(lake: Lake, window: Window) -> Extent:
    """Check every file of the window's days; raises EmptyLake or UnreadableLake."""
    files = list(_files(lake, window))
    with ThreadPoolExecutor(_READERS) as readers:
        footers = [footer for footer in readers.map(_checked, files) if footer is not None]
    if not sum(footer.rows for footer in footers):
        raise EmptyLake(_emptiness(lake, window))
    return _extent(footers)


def _files(lake: Lake, window: Window) -> Iterable[Path]:
    first, last = window.dates
    superseded = lake.superseded()
    for date, batch in lake.batches():
        if (first is None or first <= date) and date <= last and (date, batch) not in superseded:
            yield from sorted(lake.folder(date, batch).glob("[!._]*.parquet"))


def _emptiness(lake: Lake, window: Window) -> str:
    if next(lake.batches(), None) is None:
        return f"the lake {lake.root} is empty; `mqworker pipeline archive --once` fills it"
    first, last = window.dates
    return f"the lake {lake.root} has no events between {first or 'its beginning'} and {last}"


def _checked(path: Path) -> _Footer | None:
    try:
        metadata = pq.read_metadata(path)
        footer = _footer(path, metadata)
        columns = metadata.schema.to_arrow_schema()
    except FileNotFoundError:
        return None  # a compaction replaced it since it was listed
    except (pa.ArrowException, OSError) as error:
        raise UnreadableLake(
            f"the file {path} is not readable as Parquet ({_first_line(error)}); mend or remove it"
        ) from error
    # A newer version first: it explains columns that are missing or look different.
    if footer.version > SCHEMA_VERSION:
        raise UnreadableLake(
            f"the file {path} was written by a newer mqworker (schema_v {footer.version}, "
            f"known here up to {SCHEMA_VERSION}); update mqworker"
        )
    _check_columns(path, columns)
    return footer


# Any: pyarrow ships no types.
def _check_columns(path: Path, columns: Any) -> None:  # noqa: ANN401
    missing = [name for name in ARROW_SCHEMA.names if name not in columns.names]
    if missing:
        raise UnreadableLake(
            f"the file {path} lacks the column{'s' * (len(missing) > 1)} {', '.join(missing)}; "
            "it was not written by `mqworker pipeline archive`"
        )
    for field in ARROW_SCHEMA:
        found = columns.field(field.name).type
        if not _fits(found, field.type):
            raise UnreadableLake(f"the file {path} has {field.name} as {found}; accepted is {field.type}")


def _fits(found: Any, wanted: Any) -> bool:  # noqa: ANN401 - as above
    if pa.types.is_timestamp(wanted):
        return bool(pa.types.is_timestamp(found))
    if pa.types.is_string(wanted):
        return bool(pa.types.is_string(found) or pa.types.is_large_string(found))
    return bool(found == wanted)


def _footer(path: Path, metadata: Any) -> _Footer:  # noqa: ANN401 - as above
    ts, versions = _limits(metadata, "ts"), _limits(metadata, "schema_v")
    return _Footer(
        path=path,
        rows=metadata.num_rows,
        first_ms=None if ts is None else int(ts[0].timestamp() * 1000),
        last_ms=None if ts is None else int(ts[1].timestamp() * 1000),
        version=0 if versions is None else versions[1],
    )


def _limits(metadata: Any, column: str) -> tuple[Any, Any] | None:  # noqa: ANN401 - as above
    if column not in metadata.schema.names:
        return None
    position = metadata.schema.names.index(column)
    groups = (metadata.row_group(number) for number in range(metadata.num_row_groups))
    known = [group.column(position).statistics for group in groups]
    known = [each for each in known if each is not None and each.has_min_max]
    return (min(each.min for each in known), max(each.max for each in known)) if known else None


def _extent(footers: list[_Footer]) -> Extent:
    first = [footer.first_ms for footer in footers if footer.first_ms is not None]
    last = [footer.last_ms for footer in footers if footer.last_ms is not None]
    return Extent(
        files=tuple(footer.path for footer in footers),
        rows=sum(footer.rows for footer in footers),
        first_ms=min(first, default=0),
        last_ms=max(last, default=0),
    )


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
