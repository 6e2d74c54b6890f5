"""The table of a lake: two writers, compaction beside an archiver, older and newer columns, retention."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from mqworker.events import open_event_streams
from mqworker.settings import Settings
from mqworker_services.pipeline.archive import ArchivePlan, Archiver, archive_and_follow, archive_once
from mqworker_services.pipeline.compaction import compact, expire, vacuum
from mqworker_services.pipeline.conversion import AlreadyConverted, CheckpointTooOld, convert
from mqworker_services.pipeline.engine import Engine, Work
from mqworker_services.pipeline.lake import EmptyLake, Lake
from mqworker_services.pipeline.lake_reading import BrokenFile
from mqworker_services.pipeline.schema import ARROW_SCHEMA
from mqworker_services.pipeline.storage import LakeInUse
from mqworker_services.pipeline.table import LakeChanged, LakeTable, PlainLake, lake_files
from mqworker_services.pipeline.verify import verify
from tests.pipeline.event_factory import append_block_at, append_events
from tests.pipeline.lake_content import keys_of, paths_of, rows_of
from tests.pipeline.synthetic_lake import write_rows
from tests.support.real_server import RealServer

MIDNIGHT_MS = 1_790_035_200_000
HOUR_MS = 3_600_000
TODAY = "2026-09-22"


def nothing(_batch: int, _events: int) -> None:
    """Nobody listens."""


def archive(engine: Engine, settings: Settings, lake: Lake, **options: int) -> None:
    archive_once(engine, ArchivePlan(settings, lake, **options), nothing)  # type: ignore[arg-type]


def append_hours(server: RealServer, *, days: int = 3) -> None:
    """A block every hour, until midnight."""
    with server.client() as client:
        for hour in range(-24 * days, 0):
            append_block_at(client, "mail", MIDNIGHT_MS + hour * HOUR_MS, [f"m{hour}", f"n{hour}"])


def test_a_stale_archiver_is_refused_and_what_it_wrote_is_no_part_of_the_lake(
    engine: Engine, settings: Settings, server: RealServer, lake: Lake
) -> None:
    """Both read the same version; one stops before its commit, the other archives, the first wakes up."""
    with server.client() as client, open_event_streams(settings) as streams:
        made = append_events(client, "mail", 100)
        plan = ArchivePlan(settings, lake)
        stale = Archiver(engine, plan, streams)

        def meanwhile(_batch: int, _events: int) -> None:
            Archiver(engine, plan, streams).archive_present(nothing)

        with pytest.raises(
            LakeInUse, match=r"another archiver writes to the lake .*: it committed batch 0 first"
        ):
            stale.archive_present(meanwhile)

    assert rows_of(lake).num_rows == made
    assert verify(engine, lake).problems() == []


def test_an_answer_that_was_lost_on_the_way_is_no_second_batch(
    engine: Engine,
    settings: Settings,
    server: RealServer,
    lake: Lake,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = DeltaTable.create_write_transaction

    def commit_and_fail(*arguments: object, **options: object) -> None:
        real(*arguments, **options)  # type: ignore[arg-type]
        raise OSError("the answer is lost")

    with server.client() as client:
        made = append_events(client, "mail", 100)
    LakeTable.made(lake)
    monkeypatch.setattr(DeltaTable, "create_write_transaction", commit_and_fail)

    archive(engine, settings, lake)

    assert rows_of(lake).num_rows == made
    assert verify(engine, lake).problems() == []


def test_two_compactions_of_the_same_files_do_not_double_them(
    engine: Engine, settings: Settings, server: RealServer, lake: Lake
) -> None:
    append_hours(server)
    archive(engine, settings, lake, max_events_per_batch=8)
    before = keys_of(lake)

    done = compact(engine, lake, TODAY, report=lambda _merge: None)
    stale = LakeTable.open(lake)
    files = stale.files()
    again = compact(Interfering(engine, lambda: compact(engine, lake, "2026-09-23")), lake, TODAY)

    assert (len(done), again) == (3, [])
    with pytest.raises(LakeChanged):
        stale.rewrite([*files, *[files[0].__class__("date=2026-09-21/gone.parquet", "2026-09-21", 1, 1)]], [])
    assert keys_of(lake) == before


class Interfering:
    """An engine during whose work something else happens."""

    def __init__(self, engine: Engine, meanwhile: object) -> None:
        self._engine, self._meanwhile = engine, meanwhile

    def each(self, work: Work[object], items: Sequence[object]) -> list[bytes]:
        said = self._engine.each(work, items)
        self._meanwhile()  # type: ignore[operator]
        return said


def test_an_archiver_beside_a_compaction_and_a_second_compaction_lose_nothing(
    engine: Engine, settings: Settings, server: RealServer, lake: Lake
) -> None:
    append_hours(server)
    archive(engine, settings, lake, max_events_per_batch=8)
    before = keys_of(lake)

    def meanwhile() -> None:
        with server.client() as client:
            append_block_at(client, "mail", MIDNIGHT_MS + 1, ["late"])
        archive(engine, settings, lake)
        compact(engine, lake, TODAY)

    merged = compact(Interfering(engine, meanwhile), lake, TODAY)

    assert merged == []  # the other one was quicker
    assert len(keys_of(lake)) == len(before) + 1
    assert verify(engine, lake).problems() == []


def test_files_of_the_current_day_are_merged_too_and_sorted(
    engine: Engine, settings: Settings, server: RealServer, lake: Lake
) -> None:
    with server.client() as client:
        for number in range(24):  # a block of each queue makes a batch
            append_block_at(client, f"q{number % 2}", MIDNIGHT_MS + number, [f"m{number}"])
    archive(engine, settings, lake, max_events_per_batch=1)
    assert len(LakeTable.open(lake).files()) >= 10

    compact(engine, lake, TODAY)

    (file,) = LakeTable.open(lake).files()
    assert (file.first_queue, file.last_queue, file.rows) == ("q0", "q1", 24)
    queues = rows_of(lake)["queue"].to_pylist()
    assert queues == sorted(queues)
    assert verify(engine, lake).problems() == []


def test_a_hundred_quiet_queues_are_one_file_a_batch(
    engine: Engine, settings: Settings, server: RealServer, lake: Lake
) -> None:
    with server.client() as client:
        for number in range(100):
            append_block_at(client, f"q{number:03d}", MIDNIGHT_MS + number, [f"m{number}"])

    archive(engine, settings, lake)

    (file,) = LakeTable.open(lake).files()
    assert file.rows == 100
    assert verify(engine, lake).problems() == []


def test_the_files_of_a_window_and_of_a_queue_are_told_without_spark(
    engine: Engine, settings: Settings, server: RealServer, lake: Lake
) -> None:
    append_hours(server, days=2)
    archive(engine, settings, lake, max_events_per_batch=8)

    everything = lake_files(lake)
    evening = lake_files(lake, MIDNIGHT_MS - 4 * HOUR_MS, MIDNIGHT_MS)

    assert sum(file.rows for file in everything) == 96
    assert {file.date for file in evening} == {"2026-09-21"}
    assert sum(file.rows for file in evening) == 8
    assert lake_files(lake, queues=["nosuch"]) == []
    assert lake_files(lake, queues=["mail"]) == everything


def test_days_that_are_too_old_leave_the_table_and_are_not_missed(
    engine: Engine, settings: Settings, server: RealServer, lake: Lake
) -> None:
    append_hours(server)
    archive(engine, settings, lake, max_events_per_batch=20)

    removed = expire(engine, lake, "2026-09-21")
    removed += expire(engine, lake, "2026-09-21")

    assert {file.date for file in removed} == {"2026-09-19", "2026-09-20"}
    assert {file.date for file in LakeTable.open(lake).files()} == {"2026-09-21"}
    assert verify(engine, lake).problems() == []
    expire(engine, lake, "2026-09-22")
    assert verify(engine, lake).problems() == []
    archive(engine, settings, lake)
    assert verify(engine, lake).rows == 0


def test_vacuum_leaves_alone_what_somebody_may_still_read(
    engine: Engine, settings: Settings, server: RealServer, lake: Lake
) -> None:
    append_hours(server, days=1)
    archive(engine, settings, lake, max_events_per_batch=8)
    old = paths_of(lake)
    compact(engine, lake, TODAY)

    assert vacuum(lake) == 0
    assert all(path.exists() for path in old)
    deleted = LakeTable.open(lake).vacuum(0)
    assert len(set(deleted)) >= len(old)
    assert not any(path.exists() for path in old)
    assert verify(engine, lake).problems() == []


def test_an_older_lake_without_a_column_is_read_and_gets_it(
    engine: Engine, settings: Settings, server: RealServer, lake: Lake, tmp_path: Path
) -> None:
    older = pa.schema([field for field in ARROW_SCHEMA if field.name not in {"node", "deadline_at"}])
    row = {"shard": 1, "block": "1-0", "seq": 0, "event": "enqueued", "ts": MIDNIGHT_MS * 1000 - 1}
    folder = tmp_path / "lake" / "events" / "date=2026-09-21" / "batch=made-0"
    folder.mkdir(parents=True)
    pq.write_table(
        pa.Table.from_pylist([{**row, "queue": "mail", "task_id": "a"}], older), folder / "a.parquet"
    )
    convert(lake)
    with server.client() as client:
        append_events(client, "mail", 10)

    archive(engine, settings, lake)

    assert rows_of(lake).num_rows == 21
    assert "node" in LakeTable.open(lake).columns.names


def test_columns_of_a_newer_version_survive_an_archive_and_a_compaction(
    engine: Engine, settings: Settings, server: RealServer, lake: Lake, tmp_path: Path
) -> None:
    newer = ARROW_SCHEMA.append(pa.field("tenant", pa.string()))
    for number in range(2):
        row = {
            "shard": 1,
            "block": f"{number}-0",
            "seq": 0,
            "event": "enqueued",
            "ts": MIDNIGHT_MS * 1000 - 1,
        }
        folder = tmp_path / "lake" / "events" / "date=2026-09-21" / f"batch=made-{number}"
        folder.mkdir(parents=True)
        table = pa.Table.from_pylist([{**row, "queue": "mail", "tenant": f"t{number}"}], newer)
        pq.write_table(table, folder / "a.parquet")
    convert(lake)
    with server.client() as client:
        append_events(client, "mail", 10)
    archive(engine, settings, lake)

    compact(engine, lake, TODAY)

    found = rows_of(lake, pa.schema([("block", pa.string()), ("tenant", pa.string())]))
    tenants = sorted(filter(None, found["tenant"].to_pylist()))
    assert tenants == ["t0", "t1"]


def test_a_plain_lake_is_refused_until_it_is_converted(
    engine: Engine, settings: Settings, server: RealServer, lake: Lake
) -> None:
    """As the version before wrote it: folders of batches, and a checkpoint of files."""
    append_hours(server)
    archive(engine, settings, lake, max_events_per_batch=20)
    before = keys_of(lake)
    made_plain(lake)

    for act in (lambda: archive(engine, settings, lake), lambda: verify(engine, lake)):
        with pytest.raises(PlainLake, match="`mqworker pipeline convert` makes one of its files"):
            act()
    files = convert(lake)

    assert sum(file.rows for file in files) == len(before)
    assert keys_of(lake) == before
    assert verify(engine, lake).problems() == []
    with pytest.raises(AlreadyConverted):
        convert(lake)
    with server.client() as client:
        append_block_at(client, "mail", MIDNIGHT_MS + 5, ["next"])
    archive(engine, settings, lake)
    assert len(keys_of(lake)) == len(before) + 1
    assert verify(engine, lake).problems() == []


def made_plain(lake: Lake) -> None:
    """Turn a lake back into one without a table, as decision 11's version left it."""
    from mqworker_services.pipeline.checkpoint import read_checkpoint  # noqa: PLC0415
    from mqworker_services.pipeline.offsets import as_document  # noqa: PLC0415

    table = LakeTable.open(lake)
    checkpoint, root = read_checkpoint(table), Path(lake.root)
    for number, (file, path) in enumerate(zip(table.files(), paths_of(lake), strict=True)):
        folder = root / "events" / f"date={file.date}" / f"batch={min(number, checkpoint.batch):010d}"
        folder.mkdir(exist_ok=True)
        path.rename(folder / path.name)
    uncommitted = root / "events" / "date=2026-09-21" / f"batch={checkpoint.batch + 1:010d}"
    shutil.copytree(folder, uncommitted)
    shutil.rmtree(root / "events" / "_delta_log")
    shutil.rmtree(root / "_mqworker" / "batches")
    for kind, name, content in (
        ("offsets", "start", as_document(checkpoint.start)),
        ("offsets", str(checkpoint.batch), as_document(checkpoint.end)),
        ("offsets", str(checkpoint.batch + 1), as_document(checkpoint.end)),
        ("commits", str(checkpoint.batch), {"rows": {}}),
    ):
        note = root / "_mqworker" / "checkpoint" / kind / f"{name}.json"
        note.parent.mkdir(parents=True, exist_ok=True)
        note.write_text(json.dumps(content))


def test_a_conversion_that_cannot_be_exact_is_refused(
    engine: Engine, settings: Settings, server: RealServer, lake: Lake
) -> None:
    with pytest.raises(EmptyLake, match="there is nothing to convert"):
        convert(lake)
    append_hours(server, days=1)
    archive(engine, settings, lake, max_events_per_batch=20)
    made_plain(lake)
    checkpoint = Path(lake.root) / "_mqworker" / "checkpoint"
    shutil.move(checkpoint, checkpoint.with_name("elsewhere"))
    with pytest.raises(CheckpointTooOld, match=r"but its checkpoint knows only up to -1"):
        convert(lake)
    shutil.move(checkpoint.with_name("elsewhere"), checkpoint)
    broken = next(Path(lake.root).glob("events/*/batch=0000000000/*.parquet"))
    content = broken.read_bytes()
    broken.write_bytes(content[:50])

    with pytest.raises(BrokenFile, match="nothing was converted"):
        convert(lake)

    broken.write_bytes(content)
    assert convert(lake)


def test_the_table_is_what_any_reader_of_delta_sees(lake: Lake) -> None:
    write_rows(lake, [{"event": "enqueued", "queue": "mail", "ts": MIDNIGHT_MS * 1000, "task_id": "a"}])

    found = DeltaTable(lake.storage.url("events")).to_pyarrow_table()

    assert found["task_id"].to_pylist() == ["a"]
    assert str(found["date"].to_pylist()[0]) == "2026-03-02"


def test_an_archiver_that_follows_keeps_the_number_of_files_small(
    engine: Engine, settings: Settings, server: RealServer, lake: Lake
) -> None:
    """A batch is a block here; without merging there would be one file for each."""
    plan = ArchivePlan(settings, lake, max_events_per_batch=1, interval_s=0.01, tidy_every=20)
    rounds = 0

    def report(_batch: int, _events: int) -> None:
        nonlocal rounds
        rounds += 1
        if rounds > 100:
            raise KeyboardInterrupt
        with server.client() as client:
            append_block_at(client, "mail", MIDNIGHT_MS + rounds, [f"m{rounds}"])

    with server.client() as client:
        append_block_at(client, "mail", MIDNIGHT_MS, ["m0"])
    archive_and_follow(engine, plan, report)

    assert len(keys_of(lake)) == 100
    assert len(LakeTable.open(lake).files()) < 40
    assert verify(engine, lake).problems() == []
