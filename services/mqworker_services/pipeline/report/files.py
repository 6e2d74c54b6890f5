"""How a report reads the lake: Spark hands out the files, Arrow counts what is in them, column by column.

Before that the ends of the files are looked at, where Parquet keeps what it knows about itself: less than a
millisecond each. So a broken file is named in one sentence, and the span of the events is known before the
first job. Then each file is read by one Spark task in batches of rows, and what it answers is small: rows
that add up. So the first report of a process costs hardly more than the next, for little of it has to be
compiled by Java first; decision 11 has the measurements.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, Generic, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from mqworker.errors import MqworkerError
from mqworker_services.pipeline.checkpoint import Checkpoint, read_checkpoint
from mqworker_services.pipeline.engine import Engine
from mqworker_services.pipeline.lake import EmptyLake, Lake
from mqworker_services.pipeline.lake_reading import as_stream, opened
from mqworker_services.pipeline.parquet_files import column_limits
from mqworker_services.pipeline.report.question import Window
from mqworker_services.pipeline.schema import ARROW_SCHEMA, EVENT_KEY, SCHEMA_VERSION
from mqworker_services.pipeline.table import LakeFile, LakeTable

_READERS: Final = 4
_INDISPENSABLE: Final = (*EVENT_KEY, "event", "ts", "queue")
"""What makes a row an event of ours; any other column may be of a later version than a file."""


class UnreadableLake(MqworkerError):
    """Mend or remove the file: what it holds is not what an archive writes."""


@dataclass(frozen=True, slots=True)
class Extent:
    """What the ends of the files tell: how many rows, and between which instants."""

    files: tuple[LakeFile, ...]
    rows: int
    first_ms: int
    last_ms: int
    checkpoint: Checkpoint = field(default_factory=Checkpoint)


@dataclass(frozen=True, slots=True)
class _Footer:
    file: LakeFile
    rows: int
    first_ms: int | None
    last_ms: int | None


def look_at_files(lake: Lake, window: Window, queues: Collection[str] = ()) -> Extent:
    """Check every file that the table has of the window; raises EmptyLake, BrokenFile or UnreadableLake."""
    table = LakeTable.open(lake)
    files = table.files(window.since_ms, window.until_ms, queues)
    with ThreadPoolExecutor(_READERS) as readers:
        footers = [*readers.map(partial(_checked, lake), files)]
    if not sum(footer.rows for footer in footers):
        raise EmptyLake(_emptiness(table, window))
    return replace(_extent(footers), checkpoint=read_checkpoint(table))


def _emptiness(table: LakeTable, window: Window) -> str:
    if not table.files():
        return f"the lake {table.lake.root} is empty; `mqworker pipeline archive --once` fills it"
    first, last = window.dates
    return f"the lake {table.lake.root} has no events between {first or 'its beginning'} and {last}"


def _checked(lake: Lake, file: LakeFile) -> _Footer:
    with opened(lake, file) as parquet:
        metadata, columns = parquet.metadata, parquet.schema_arrow
        ts, versions = column_limits(metadata, "ts"), column_limits(metadata, "schema_v")
    path, version = lake.storage.url(lake.file(file.path)), 0 if versions is None else versions[1]
    # A newer version first: it explains columns that are missing or look different.
    if version > SCHEMA_VERSION:
        raise UnreadableLake(
            f"the file {path} was written by a newer mqworker (schema_v {version}, "
            f"known here up to {SCHEMA_VERSION}); update mqworker"
        )
    _check_columns(path, columns)
    if ts is None:
        return _Footer(file, metadata.num_rows, None, None)
    first_ms, last_ms = (int(each.timestamp() * 1000) for each in ts)
    return _Footer(file, metadata.num_rows, first_ms, last_ms)


# Any: pyarrow ships no types.
def _check_columns(path: str, columns: Any) -> None:  # noqa: ANN401
    missing = [name for name in _INDISPENSABLE if name not in columns.names]
    if missing:
        raise UnreadableLake(
            f"the file {path} lacks the column{'s' * (len(missing) > 1)} {', '.join(missing)}; "
            "it was not written by `mqworker pipeline archive`"
        )
    for wanted in ARROW_SCHEMA:
        if wanted.name in columns.names and not _fits(columns.field(wanted.name).type, wanted.type):
            found = columns.field(wanted.name).type
            raise UnreadableLake(f"the file {path} has {wanted.name} as {found}; accepted is {wanted.type}")


def _fits(found: Any, wanted: Any) -> bool:  # noqa: ANN401 - as above
    if pa.types.is_timestamp(wanted):
        return bool(pa.types.is_timestamp(found))
    if pa.types.is_string(wanted):
        return bool(pa.types.is_string(found) or pa.types.is_large_string(found))
    return bool(found == wanted)


def _extent(footers: list[_Footer]) -> Extent:
    first = [footer.first_ms for footer in footers if footer.first_ms is not None]
    last = [footer.last_ms for footer in footers if footer.last_ms is not None]
    return Extent(
        files=tuple(footer.file for footer in footers),
        rows=sum(footer.rows for footer in footers),
        first_ms=min(first, default=0),
        last_ms=max(last, default=0),
    )


AnswerT = TypeVar("AnswerT")

Ask = Callable[[pa.RecordBatch], pa.Table]
"""What is asked of some rows; runs on the executors."""

_ROWS_AT_ONCE: Final = 500_000
_NAMES: Final = frozenset({"event", "task", "queue", "worker", "node", "error"})
"""Columns with few different values: they stay numbers and a list of names while they are counted."""
_US_PER_MS: Final = 1_000


@dataclass(frozen=True, slots=True)
class Selection:
    """Which events of the files are meant."""

    window: Window
    tasks: Sequence[str] = ()
    queues: Sequence[str] = ()

    @property
    def columns(self) -> set[str]:
        """What must be read to know it."""
        return {"ts"} | ({"task"} if self.tasks else set()) | ({"queue"} if self.queues else set())


@dataclass(frozen=True, slots=True)
class Asked(Generic[AnswerT]):
    """A question about the events: what is read for it, what each batch says, and what that amounts to."""

    columns: frozenset[str]
    ask: Ask
    schema: pa.Schema
    answer: Callable[[pa.Table], AnswerT]
    least_run_ms: float | None = None
    """Only row groups with runs that long need to be read."""


@dataclass(frozen=True, slots=True)
class EventFiles:
    """The events that a report is about."""

    engine: Engine
    lake: Lake
    files: Sequence[LakeFile]
    selection: Selection

    # Any: each answer has the type of its question, which a list cannot say.
    def answers(self, *asked: Asked[Any]) -> list[Any]:
        """The answers to some questions, for which every file is read once."""
        least_ms = asked[0].least_run_ms if len(asked) == 1 else None
        columns = {column for each in asked for column in each.columns}
        read = partial(
            _said,
            lake=self.lake,
            selection=self.selection,
            columns=columns,
            questions=[each.ask for each in asked],
            least_run_ms=least_ms,
        )
        tables: list[list[pa.Table]] = [[each.schema.empty_table()] for each in asked]
        for position, said in enumerate(self.engine.each(read, self.files)):
            # Whatever was read, all questions were answered in turn.
            tables[position % len(asked)].append(pa.ipc.open_stream(said).read_all())
        return [each.answer(pa.concat_tables(parts)) for each, parts in zip(asked, tables, strict=True)]


def counted(
    columns: Mapping[str, pa.Array], keys: Sequence[str], measures: Sequence[tuple[str, str]] = ()
) -> pa.Table:
    """How many rows agree in the keys, as `count`, and of each (column, sum or max) that, by its name."""
    plain = {name: _numbered(column) for name, column in columns.items()}
    table = pa.table(plain).group_by(list(keys), use_threads=False)
    found = table.aggregate([([], "count_all"), *measures])
    answer = {name: _named(found[name], columns[name]) for name in keys}
    answer["count"] = found["count_all"]
    return pa.table(answer | {name: found[f"{name}_{how}"] for name, how in measures})


def added_up(table: pa.Table, keys: Sequence[str], measures: Sequence[tuple[str, str]]) -> pa.Table:
    """Rows of several files that agree in the keys become one."""
    found = table.group_by(list(keys)).aggregate(list(measures))
    return pa.table(
        {name: found[name] for name in keys} | {name: found[f"{name}_{how}"] for name, how in measures}
    )


def instants_ms(batch: pa.RecordBatch) -> pa.Array:
    """When the events happened."""
    return pc.divide(_instants_us(batch), _US_PER_MS)


def _said(
    file: LakeFile,
    *,
    lake: Lake,
    selection: Selection,
    columns: set[str],
    questions: Sequence[Ask],
    least_run_ms: float | None,
) -> Iterator[bytes]:
    """What the rows of one file answer to all questions; on an executor."""
    for rows in read_file(lake, file, selection, columns, least_run_ms):
        yield from (as_stream(ask(rows)) for ask in questions)


def read_file(
    lake: Lake, file: LakeFile, selection: Selection, columns: set[str], least_run_ms: float | None = None
) -> Iterator[pa.RecordBatch]:
    """The selected events of one file, some at a time; columns that an older file lacks are null."""
    with opened(lake, file, read_dictionary=sorted(_NAMES & columns)) as parquet:
        groups = _row_groups(parquet.metadata, least_run_ms)
        # Most files lie in the window whole: their instants need not be looked at.
        is_inside = _is_inside(parquet.metadata, selection.window)
        needed = columns | (selection.columns - ({"ts"} if is_inside else set()))
        present = needed & set(parquet.schema_arrow.names)
        for batch in parquet.iter_batches(
            _ROWS_AT_ONCE, row_groups=groups, columns=sorted(present), use_threads=False
        ):
            yield _selected(_completed(batch, needed - present), selection, is_inside=is_inside)


def _completed(batch: pa.RecordBatch, lacking: set[str]) -> pa.RecordBatch:
    for name in sorted(lacking):
        batch = batch.append_column(name, pa.nulls(batch.num_rows, ARROW_SCHEMA.field(name).type))
    return batch


def _selected(batch: pa.RecordBatch, selection: Selection, *, is_inside: bool) -> pa.RecordBatch:
    if not is_inside:
        at_us, window = _instants_us(batch), selection.window
        batch = batch.filter(pc.less(at_us, window.until_ms * _US_PER_MS))
        if window.since_ms is not None:
            batch = batch.filter(pc.greater_equal(_instants_us(batch), window.since_ms * _US_PER_MS))
    for column, names in (("task", selection.tasks), ("queue", selection.queues)):
        if names:
            wanted = pa.array(names, pa.string())
            batch = batch.filter(pc.is_in(batch.column(column).cast(pa.string()), wanted))
    return batch


# Any: pyarrow ships no types.
def _is_inside(metadata: Any, window: Window) -> bool:  # noqa: ANN401
    known = _statistics(metadata, "ts")
    if not all(each is not None and each.has_min_max and each.null_count == 0 for each in known):
        return False
    first_ms: float = min((each.min.timestamp() * 1000 for each in known), default=0.0)
    last_ms: float = max((each.max.timestamp() * 1000 for each in known), default=0.0)
    return (window.since_ms is None or first_ms >= window.since_ms) and last_ms < window.until_ms


def _row_groups(metadata: Any, least_run_ms: float | None) -> list[int]:  # noqa: ANN401 - as above
    """Those that may hold runs that long; all when nothing is known, or nothing is asked."""
    if least_run_ms is None:
        return list(range(metadata.num_row_groups))
    return [
        number
        for number, known in enumerate(_statistics(metadata, "run_ms"))
        if known is None or not known.has_min_max or known.max >= least_run_ms
    ]


def _statistics(metadata: Any, column: str) -> list[Any]:  # noqa: ANN401 - as above
    if column not in metadata.schema.names:
        return [None] * metadata.num_row_groups
    position = metadata.schema.names.index(column)
    groups = (metadata.row_group(number) for number in range(metadata.num_row_groups))
    return [group.column(position).statistics for group in groups]


def _instants_us(batch: pa.RecordBatch) -> pa.Array:
    return batch.column("ts").cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())


def _numbered(column: pa.Array) -> pa.Array:
    return column.indices if pa.types.is_dictionary(column.type) else column


def _named(found: pa.ChunkedArray, column: pa.Array) -> pa.ChunkedArray:
    if not pa.types.is_dictionary(column.type):
        return found
    return column.dictionary.cast(pa.string()).take(found)
