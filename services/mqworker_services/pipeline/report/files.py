"""How a report reads the lake: Spark hands out the files, Arrow counts what is in them, column by column.

Before that the ends of the files are looked at, where Parquet keeps what it knows about itself: less than a
millisecond each. So a broken file is named in one sentence, and the span of the events is known before the
first job. Then each file is read by one Spark task in batches of rows, and what it answers is small: rows
that add up. So the first report of a process costs hardly more than the next, for little of it has to be
compiled by Java first; decision 11 has the measurements.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mqworker.errors import MqworkerError
from mqworker_services.pipeline.lake import EmptyLake, Lake, emptiness
from mqworker_services.pipeline.report.question import Window
from mqworker_services.pipeline.schema import ARROW_SCHEMA, SCHEMA_VERSION

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
        return emptiness(lake)
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


AnswerT = TypeVar("AnswerT")

Ask = Callable[[pa.RecordBatch], pa.Table]
"""What is asked of some rows; runs on the executors."""

_ROWS_AT_ONCE: Final = 500_000
_TASKS_PER_CORE: Final = 2
_SAID: Final = "question INT, said BINARY"
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

    spark: SparkSession
    files: Sequence[Path]
    selection: Selection

    # Any: each answer has the type of its question, which a list cannot say.
    def answers(self, *asked: Asked[Any]) -> list[Any]:
        """The answers to some questions, for which every file is read once."""
        least_ms = asked[0].least_run_ms if len(asked) == 1 else None
        columns = {column for each in asked for column in each.columns}
        read = _reader(
            [*map(str, self.files)], self.selection, columns, [each.ask for each in asked], least_ms
        )
        # A few tasks for each core even out files of different sizes; more would only cost.
        tasks = min(len(self.files), _TASKS_PER_CORE * self.spark.sparkContext.defaultParallelism)
        found = self.spark.range(0, len(self.files), 1, tasks).mapInArrow(read, _SAID).toArrow()
        tables: list[list[pa.Table]] = [[each.schema.empty_table()] for each in asked]
        for number, said in zip(found["question"].to_pylist(), found["said"].to_pylist(), strict=True):
            tables[number].append(pa.ipc.open_stream(said).read_all())
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


def _reader(
    files: Sequence[str],
    selection: Selection,
    columns: set[str],
    questions: Sequence[Ask],
    least_run_ms: float | None,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What a Spark task does with the numbers of the files that it got."""

    def read(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                for rows in read_file(files[number], selection, columns, least_run_ms):
                    said = [_as_bytes(ask(rows)) for ask in questions]
                    positions = pa.array(range(len(said)), pa.int32())
                    yield pa.RecordBatch.from_arrays(
                        [positions, pa.array(said, pa.binary())], ["question", "said"]
                    )

    return read


def _as_bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    said: bytes = sink.getvalue().to_pybytes()
    return said


def read_file(
    file: str, selection: Selection, columns: set[str], least_run_ms: float | None = None
) -> Iterator[pa.RecordBatch]:
    """The selected events of one file, some at a time; raises UnreadableLake when it is damaged."""
    try:
        with pq.ParquetFile(file, read_dictionary=sorted(_NAMES & columns)) as parquet:
            groups = _row_groups(parquet.metadata, least_run_ms)
            # Most files lie in the window whole: their instants need not be looked at.
            is_inside = _is_inside(parquet.metadata, selection.window)
            needed = columns | (selection.columns - ({"ts"} if is_inside else set()))
            for batch in parquet.iter_batches(
                _ROWS_AT_ONCE, row_groups=groups, columns=sorted(needed), use_threads=False
            ):
                yield _selected(batch, selection, is_inside=is_inside)
    except FileNotFoundError:
        raise  # a compaction replaced it: told apart by its name
    except (pa.ArrowException, OSError) as error:
        raise UnreadableLake(f"the file {file} is damaged and cannot be read; mend or remove it") from error


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


_DAMAGED: Final = re.compile(r"UnreadableLake: (the file .+ is damaged .+)")
_CHANGED: Final = "FileNotFoundError"


@contextmanager
def trouble_in_a_sentence(lake: Lake) -> Iterator[None]:
    """Errors of Spark over this lake become UnreadableLake."""
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415 - comes with PySpark, which is optional
    from pyspark.errors import PySparkException  # noqa: PLC0415 - same

    try:
        yield
    except (Py4JJavaError, PySparkException) as error:
        raise UnreadableLake(sentence(lake, str(error))) from error


def sentence(lake: Lake, said: str) -> str:
    """What to tell about an error of Spark."""
    if _CHANGED in said:
        return f"the lake {lake.root} changed while it was read (a compaction?); run the report again"
    found = _DAMAGED.search(said)
    if found:
        return found.group(1)
    first_line = (said.strip().splitlines() or ["no reason given"])[0]
    return f"Spark could not read the lake {lake.root}: {first_line}"
