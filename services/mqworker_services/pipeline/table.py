"""The table of a lake, by delta-rs: which files it has, and how it changes.

Executors write files; the driver adds them in one commit that also says which batch they are and which note
tells where it ends. Two archivers that both read the same version cannot both commit: delta-rs refuses a
transaction of the same name that another was quicker with. It does not look for the files that a commit
removes, so whatever removes files commits only to the very version that it read.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake import Schema as DeltaSchema
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import (
    AddAction,
    CommitProperties,
    RemoveAction,
    Transaction,
    create_table_with_add_actions,
)

from mqworker.errors import MqworkerError
from mqworker_services.pipeline.days import day_of, now_ms
from mqworker_services.pipeline.lake import TABLE, EmptyLake, Lake
from mqworker_services.pipeline.schema import ARROW_SCHEMA
from mqworker_services.pipeline.storage import LakeInUse, StorageUnavailable, make_durable

NONE_YET: Final = -1
"""The batch before the first."""

_BATCH: Final = "mqworker.archive"
_NOTE: Final = "mqworker.archive.note"
_REWRITE: Final = "mqworker.rewrite"
_EXPIRY: Final = "mqworker.expiry"
_PARTITION: Final = "date"
_SCHEMA: Final = ARROW_SCHEMA.append(pa.field(_PARTITION, pa.date32()))
_US_PER_MS: Final = 1_000


class PlainLake(MqworkerError):
    """Convert the lake once: it is of an older version, without a table."""


class LakeChanged(MqworkerError):
    """Try again: somebody else changed the table meanwhile."""


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file as it was left by whoever wrote it, not yet part of the table."""

    path: str
    """Below the table."""
    date: str
    rows: int
    bytes: int
    stats: str
    """What the log tells of its columns, JSON."""


@dataclass(frozen=True, slots=True)
class LakeFile:
    """A file of the table, with what the log tells of it; None: unknown."""

    path: str
    date: str
    rows: int
    bytes: int
    first_ms: int | None = None
    last_ms: int | None = None
    first_queue: str | None = None
    last_queue: str | None = None
    first_id: str | None = None
    last_id: str | None = None


def lake_files(
    lake: Lake,
    since_ms: int | None = None,
    until_ms: int | None = None,
    queues: Collection[str] = (),
) -> list[LakeFile]:
    """The files that may hold events of a window and of some queues; needs no Spark.

    `lake.storage.path(lake.file(each.path))` is where one lies, for `lake.storage.files` of pyarrow.
    """
    return LakeTable.open(lake).files(since_ms, until_ms, queues)


class LakeTable:
    """The table as of one version; its own commits and `refresh` take it further."""

    def __init__(self, lake: Lake, delta: DeltaTable) -> None:
        self.lake = lake
        self._delta = delta

    @classmethod
    def open(cls, lake: Lake) -> LakeTable:
        """The table that is there; raises EmptyLake or PlainLake."""
        try:
            with _told(lake):
                url, options = lake.storage.url(TABLE), lake.storage.table_options
                return cls(lake, DeltaTable(url, storage_options=options))
        except TableNotFoundError:
            if is_plain(lake):
                raise PlainLake(
                    f"the lake {lake.root} is of an older version, without a table: "
                    "`mqworker pipeline convert` makes one of its files"
                ) from None
            raise EmptyLake(
                f"the lake {lake.root} is empty; `mqworker pipeline archive --once` fills it"
            ) from None

    @classmethod
    def made(cls, lake: Lake) -> LakeTable:
        """The table, made if there is none, with all columns that are written here."""
        try:
            table = cls.open(lake)
        except EmptyLake:
            _create(lake)
            table = cls.open(lake)
        table.add_columns()
        return table

    @classmethod
    def create_with(
        cls,
        lake: Lake,
        columns: Any,  # noqa: ANN401 - pyarrow ships no types
        files: Sequence[WrittenFile],
        batch: int,
        note: int,
    ) -> None:
        """Make the table of files that are there, in one commit; columns that only they have stay."""
        further = [field for field in columns if field.name not in _SCHEMA.names]
        named = [Transaction(_BATCH, batch), Transaction(_NOTE, note)]
        with _told(lake):
            create_table_with_add_actions(
                lake.storage.url(TABLE),
                DeltaSchema.from_arrow(pa.schema([*ARROW_SCHEMA, *further, _SCHEMA.field(_PARTITION)])),
                [_add(file, is_new=True) for file in files],
                partition_by=[_PARTITION],
                storage_options=lake.storage.table_options,
                commit_properties=CommitProperties(app_transactions=named),
            )
        cls.open(lake).make_durable(NONE_YET)

    @property
    def version(self) -> int:
        """The number of commits so far, from 0."""
        return self._delta.version()

    @property
    def columns(self) -> Any:  # noqa: ANN401 - pyarrow ships no types
        """The schema of the table in Arrow, without the day."""
        schema = pa.schema(self._delta.schema().to_arrow())
        return pa.schema([field for field in schema if field.name != _PARTITION])

    @property
    def batch(self) -> int:
        """The newest batch of the archive."""
        return self._noted(_BATCH, NONE_YET)

    @property
    def batch_note(self) -> int:
        """The number of the note that tells where that batch ends."""
        return self._noted(_NOTE, 0)

    @property
    def expiry_note(self) -> int:
        """The number of the note that tells what was removed because of its age; 0: nothing was."""
        return self._noted(_EXPIRY, 0)

    def files(
        self,
        since_ms: int | None = None,
        until_ms: int | None = None,
        queues: Collection[str] = (),
    ) -> list[LakeFile]:
        """The files that may hold such events, by day and time; all without arguments."""
        with _told(self.lake):
            actions = pa.table(self._delta.get_add_actions(flatten=True))
        found = (_file(row) for row in _within_days(actions, since_ms, until_ms).to_pylist())
        chosen = [each for each in found if _may_hold(each, since_ms, until_ms, queues)]
        return sorted(chosen, key=lambda each: (each.date, each.first_ms or 0, each.path))

    def refresh(self) -> None:
        """Go on to the newest version."""
        with _told(self.lake):
            self._delta.update_incremental()

    def commit_batch(self, batch: int, note: int, files: Sequence[WrittenFile]) -> None:
        """Add the files of a batch; raises LakeInUse when another archiver was quicker."""
        try:
            self._commit(
                [_add(file, is_new=True) for file in files],
                CommitProperties(app_transactions=[Transaction(_BATCH, batch), Transaction(_NOTE, note)]),
            )
        except (LakeChanged, StorageUnavailable, OSError):
            self.refresh()  # the answer may have been lost, and the commit not
            if self.batch_note == note:
                return
            if self.batch >= batch:
                raise LakeInUse(
                    f"another archiver writes to the lake {self.lake.root}: it committed batch {batch} first"
                ) from None
            raise

    def rewrite(self, removed: Sequence[LakeFile], added: Sequence[WrittenFile]) -> None:
        """Put files in the place of others that hold the same rows; raises LakeChanged."""
        taken = (_remove(file, is_data=False) for file in removed)
        self._commit_here([*taken, *(_add(file, is_new=False) for file in added)], removed, [])

    def expire(self, removed: Sequence[LakeFile], note: int) -> None:
        """Remove files for good; the note tells what they held. Raises LakeChanged."""
        actions: list[AddAction | RemoveAction] = [_remove(file, is_data=True) for file in removed]
        self._commit_here(actions, removed, [Transaction(_EXPIRY, note)])

    def vacuum(self, hours: int | None = None) -> list[str]:
        """Delete files that were removed from the table, or never got into it, and are old enough."""
        with _told(self.lake):
            return self._delta.vacuum(
                hours, dry_run=False, enforce_retention_duration=hours is None, full=True
            )

    def _commit_here(
        self, actions: list[AddAction | RemoveAction], removed: Sequence[LakeFile], notes: list[Transaction]
    ) -> None:
        """Commit to this version, or not at all."""
        there = {file.path for file in self.files()}
        if not all(file.path in there for file in removed):
            raise LakeChanged(f"files of the lake {self.lake.root} that were read are no longer in its table")
        once = Transaction(_REWRITE, new_number())
        self._commit(actions, CommitProperties(max_commit_retries=0, app_transactions=[once, *notes]))

    def _commit(self, actions: list[AddAction | RemoveAction], properties: CommitProperties) -> None:
        before = self.version
        try:
            with _told(self.lake):
                self._delta.create_write_transaction(
                    actions, "append", self._delta.schema(), [_PARTITION], commit_properties=properties
                )
        except CommitFailedError as error:
            raise LakeChanged(f"the lake {self.lake.root} was changed meanwhile: {error}") from error
        self.refresh()
        self.make_durable(before)

    def make_durable(self, before: int) -> None:
        """Ask the disk to keep the commits after a version."""
        if self.lake.storage.is_local:
            log = Path(self.lake.storage.path(f"{TABLE}/_delta_log"))
            entries = (log / f"{version:020d}.json" for version in range(before + 1, self.version + 1))
            make_durable(*(entry for entry in entries if entry.exists()), log)

    def add_columns(self) -> None:
        """A table of an older version gets the columns that it lacks; in its files they are null."""
        known = self.columns.names
        lacking = [field for field in ARROW_SCHEMA if field.name not in known]
        if lacking:
            with _told(self.lake):
                self._delta.alter.add_columns(DeltaSchema.from_arrow(pa.schema(lacking)).fields)
            self.refresh()

    def _noted(self, name: str, otherwise: int) -> int:
        found = self._delta.transaction_version(name)
        return otherwise if found is None else found


def new_number() -> int:
    """A number that nobody else draws, as a commit can hold it."""
    return secrets.randbits(62) + 1


def is_plain(lake: Lake) -> bool:
    """Whether this is a lake from before there were tables."""
    if not lake.storage.is_local:
        return False
    events = Path(lake.storage.path(TABLE))
    return not (events / "_delta_log").exists() and any(events.glob("date=*/batch=*"))


def _create(lake: Lake) -> None:
    with _told(lake):
        try:
            DeltaTable.create(
                lake.storage.url(TABLE),
                _SCHEMA,
                mode="ignore",  # somebody may have been quicker
                partition_by=[_PARTITION],
                storage_options=lake.storage.table_options,
            )
        except CommitFailedError:
            return


def _add(file: WrittenFile, *, is_new: bool) -> AddAction:
    return AddAction(file.path, file.bytes, {_PARTITION: file.date}, now_ms(), is_new, file.stats)


def _remove(file: LakeFile, *, is_data: bool) -> RemoveAction:
    return RemoveAction(file.path, is_data, now_ms(), file.bytes, {_PARTITION: file.date})


# Any: pyarrow ships no types, and the rows hold what the log tells.
def _within_days(actions: Any, since_ms: int | None, until_ms: int | None) -> Any:  # noqa: ANN401
    days = actions["partition.date"].cast(pa.string())
    if since_ms is not None:
        actions = actions.filter(pc.greater_equal(days, day_of(since_ms)))
        days = actions["partition.date"].cast(pa.string())
    return actions if until_ms is None else actions.filter(pc.less_equal(days, day_of(until_ms - 1)))


def _file(row: dict[str, Any]) -> LakeFile:
    return LakeFile(
        path=row["path"],
        date=row["partition.date"].isoformat(),
        rows=row["num_records"] or 0,
        bytes=row["size_bytes"],
        first_ms=_ms(row.get("min.ts")),
        last_ms=_ms(row.get("max.ts")),
        first_queue=row.get("min.queue"),
        last_queue=row.get("max.queue"),
        first_id=row.get("min.task_id"),
        last_id=row.get("max.task_id"),
    )


def _ms(instant: Any) -> int | None:  # noqa: ANN401 - as above
    return None if instant is None else int(instant.timestamp() * 1_000_000) // _US_PER_MS


def _may_hold(file: LakeFile, since_ms: int | None, until_ms: int | None, queues: Collection[str]) -> bool:
    if since_ms is not None and file.last_ms is not None and file.last_ms < since_ms:
        return False
    if until_ms is not None and file.first_ms is not None and file.first_ms >= until_ms:
        return False
    first, last = file.first_queue, file.last_queue
    return not queues or first is None or last is None or any(first <= queue <= last for queue in queues)


@contextmanager
def _told(lake: Lake) -> Iterator[None]:
    """Errors of delta-rs that are not about the commit become a sentence."""
    try:
        with lake.storage.told():
            yield
    except (CommitFailedError, TableNotFoundError):
        raise
    except DeltaError as error:
        raise StorageUnavailable(f"the table of the lake {lake.root} cannot be read: {error}") from error
