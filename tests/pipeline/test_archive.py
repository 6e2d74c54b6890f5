"""The archive: every event is in the lake once, whatever happens in between."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from mqworker.errors import InvalidArgument
from mqworker.events import open_event_streams
from mqworker.settings import Settings, load_settings
from mqworker_services.pipeline.archive import ArchivePlan, Archiver, archive_once
from mqworker_services.pipeline.checkpoint import UnreadableCheckpoint
from mqworker_services.pipeline.engine import Engine, SparkEngine
from mqworker_services.pipeline.lake import EmptyLake, Lake
from mqworker_services.pipeline.lake_reading import BrokenFile
from mqworker_services.pipeline.offsets import EventsLost, ForeignHistory
from mqworker_services.pipeline.parquet_files import RowsNotArrived
from mqworker_services.pipeline.storage import LakeInUse
from mqworker_services.pipeline.table import LakeTable
from mqworker_services.pipeline.verify import verify
from tests.pipeline.event_factory import append_block_at, append_events
from tests.pipeline.lake_content import paths_of, rows_of
from tests.support.real_server import RealServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MIDNIGHT_MS = 1_790_035_200_000


def archive(engine: Engine, plan: ArchivePlan) -> int:
    events: list[int] = []
    archive_once(engine, plan, lambda _batch, count: events.append(count))
    return sum(events)


def archive_streams(engine: Engine, plan: ArchivePlan, driver: Settings) -> None:
    """Archive as the driver sees the streams; executors go by the settings of the plan."""
    with open_event_streams(driver) as streams:
        Archiver(engine, plan, streams).archive_present(lambda _batch, _count: None)


def test_everything_is_archived_once_and_trimmed_behind(
    engine: Engine, settings: Settings, server: RealServer, lake: Lake
) -> None:
    plan = ArchivePlan(settings, lake, is_trimming=True, max_events_per_batch=2_000)
    with server.client() as client:
        made = append_events(client, "mail", 2_000, per_block=50)
        archived = archive(engine, plan)
        made += append_events(client, "mail", 500, per_block=50, first=2_000)
        made += append_events(client, "web", 100, per_block=1)
        archived += archive(engine, plan)

        assert client.xlen("mqw:{mail}:events") == client.xlen("mqw:{web}:events") == 0
    assert archived == made
    verdict = verify(engine, lake)
    assert verdict.problems() == []
    assert verdict.rows == verdict.distinct == made


def test_a_batch_across_midnight_is_split_by_day(
    engine: Engine, settings: Settings, server: RealServer, lake: Lake
) -> None:
    with server.client() as client:
        for number in range(20):
            append_block_at(client, "mail", MIDNIGHT_MS - 10 + number, [f"m{number}"])

    archive(engine, ArchivePlan(settings, lake))

    by_day = {file.date: file.rows for file in LakeTable.open(lake).files()}
    assert by_day == {"2026-09-21": 10, "2026-09-22": 10}
    assert {file.date for file in LakeTable.open(lake).files(MIDNIGHT_MS, MIDNIGHT_MS + 1)} == {"2026-09-22"}


def test_a_restart_of_redis_in_between_changes_nothing(engine: Engine, lake: Lake) -> None:
    with RealServer(aof="always") as server:
        plan = ArchivePlan(load_settings({"redis_url": server.url}), lake, is_trimming=True)
        with server.client() as client:
            made = append_events(client, "mail", 500)
        archive(engine, plan)
        with server.client() as client:
            made += append_events(client, "mail", 300, first=500)
        server.kill()
        server.start()
        with server.client() as client:
            made += append_events(client, "mail", 200, first=800)
        archive(engine, plan)

    verdict = verify(engine, lake)
    assert (verdict.problems(), verdict.rows) == ([], made)


def test_notes_that_are_gone_are_told(
    engine: Engine, settings: Settings, server: RealServer, lake: Lake
) -> None:
    plan = ArchivePlan(settings, lake)
    with server.client() as client:
        append_events(client, "mail", 100)
        archive(engine, plan)
    shutil.rmtree(lake.storage.path(lake.note("batches")))

    with pytest.raises(UnreadableCheckpoint, match=r"the checkpoint .*0000000000-.* cannot be read"):
        archive(engine, plan)
    assert rows_of(lake).num_rows == 200


def test_events_that_were_dropped_unread_and_other_servers_are_refused(
    engine: Engine, settings: Settings, server: RealServer, lake: Lake
) -> None:
    plan = ArchivePlan(settings, lake)
    with server.client() as client:
        append_events(client, "mail", 100, per_block=10)
        archive(engine, plan)
        append_events(client, "mail", 100, per_block=10, first=100)
        client.xtrim("mqw:{mail}:events", maxlen=5, approximate=False)

        with pytest.raises(EventsLost, match="queue mail: 15 blocks"):
            archive(engine, plan)

        (problem,) = verify(engine, lake).problems()
        assert problem.startswith("queue mail: 15 blocks of events were lost, after ")
        assert problem.endswith("; it stands still until `archive --accept-loss mail`")

        skipping = ArchivePlan(settings, lake, on_loss="skip")
        assert archive(engine, skipping) == 50
        verdict = verify(engine, lake)
        assert verdict.problems() == []
        assert [note.partition(",")[0] for note in verdict.notes()] == [
            "queue mail: 15 blocks of events were lost"
        ]

        client.flushall()
        append_events(client, "mail", 10)
        with pytest.raises(ForeignHistory, match="another server"):
            archive(engine, plan)


def test_a_deleted_queue_stands_still_and_the_others_go_on(
    engine: Engine, settings: Settings, server: RealServer, lake: Lake
) -> None:
    warnings: list[str] = []
    plan = ArchivePlan(settings, lake, is_trimming=True, warn=warnings.append)
    with server.client() as client:
        made = append_events(client, "mail", 100) + append_events(client, "web", 100)
        archive(engine, plan)
        client.delete("mqw:{mail}:events")
        client.srem("mqw:queues", "mail")
        made += append_events(client, "web", 50, first=100)

        for _ in range(2):  # told once, refused until it is accepted
            with pytest.raises(ForeignHistory, match=r"queue mail: .* --accept-loss mail"):
                archive(engine, plan)
        assert client.xlen("mqw:{web}:events") == 0
        assert verify(engine, lake).rows == made
        assert len(warnings) == 1

        archive(engine, replace(plan, accept_loss=("mail",)))
        assert verify(engine, lake).problems() == []
        made += append_events(client, "mail", 30, first=100) + append_events(client, "web", 10, first=150)
        archive(engine, plan)

    verdict = verify(engine, lake)
    assert (verdict.problems(), verdict.rows) == ([], made)
    (note,) = verdict.notes()
    assert note.startswith("queue mail: an unknown number of blocks of events were lost, after ")
    assert len(warnings) == 1
    with pytest.raises(InvalidArgument, match="--accept-loss is 'mial'; accepted are mail, web"):
        archive(engine, replace(plan, accept_loss=("mial",)))


def test_a_planned_batch_whose_events_are_gone_does_not_hold_up_the_others(
    engine: Engine, settings: Settings, server: RealServer, lake: Lake
) -> None:
    plan = ArchivePlan(settings, lake)
    with server.client() as client:
        append_events(client, "mail", 100)
        made = append_events(client, "web", 100)

        def fail(_batch: int, _events: int) -> None:
            raise InterruptedError

        with pytest.raises(InterruptedError):  # in place, and not committed
            archive_once(engine, plan, fail)
        client.xtrim("mqw:{mail}:events", maxlen=0, approximate=False)

        with pytest.raises(EventsLost, match="queue mail: 2 blocks"):
            archive(engine, plan)

    verdict = verify(engine, lake)
    assert (verdict.rows, verdict.missing_by_queue, verdict.gone) == (made, {}, ())


def test_what_was_dropped_before_the_archive_began_is_told(
    engine: Engine, settings: Settings, server: RealServer, lake: Lake
) -> None:
    warnings: list[str] = []
    with server.client() as client:
        append_events(client, "mail", 100, per_block=10)
        client.xtrim("mqw:{mail}:events", maxlen=5, approximate=False)

    archive(engine, ArchivePlan(settings, lake, warn=warnings.append))

    told = ["queue mail: 15 blocks of events were dropped before the archive began"]
    assert warnings == verify(engine, lake).notes() == told
    assert verify(engine, lake).problems() == []


def test_files_that_are_gone_are_told_by_name(
    engine: Engine, settings: Settings, server: RealServer, lake: Lake
) -> None:
    with server.client() as client:
        for number in range(2):
            append_block_at(client, "mail", MIDNIGHT_MS + number, [f"m{number}"])
    archive(engine, ArchivePlan(settings, lake, max_events_per_batch=1))
    gone = LakeTable.open(lake).files()[1]
    paths_of(lake)[1].unlink()

    assert verify(engine, lake).problems() == [
        f"the file {gone.path}, with 1 events, is gone",
        "queue mail: 1 blocks of events are missing",
    ]


def test_the_default_filesystem_of_spark_does_not_matter(
    spark: SparkSession, settings: Settings, server: RealServer, lake: Lake
) -> None:
    spark.conf.set("fs.defaultFS", "hdfs://127.0.0.1:1")
    try:
        with server.client() as client:
            made = append_events(client, "mail", 100)
            archive(SparkEngine(spark), ArchivePlan(settings, lake, is_trimming=True))
        verdict = verify(SparkEngine(spark), lake)
    finally:
        spark.conf.unset("fs.defaultFS")
    assert (verdict.problems(), verdict.rows) == ([], made)


def test_executors_that_reach_another_server_archive_nothing(
    engine: Engine, settings: Settings, server: RealServer, lake: Lake
) -> None:
    with RealServer() as another, server.client() as client:
        append_events(client, "mail", 100)
        wrong = ArchivePlan(load_settings({"redis_url": another.url}), lake, is_trimming=True)
        with pytest.raises(RowsNotArrived, match="do executors reach the same server"):
            archive_streams(engine, wrong, settings)
        assert client.xlen("mqw:{mail}:events") == 2
    assert LakeTable.open(lake).files() == []


def test_the_cap_of_a_stream_does_not_drop_what_an_archiver_waits_for(
    engine: Engine, server: RealServer, lake: Lake
) -> None:
    from mqworker import App  # noqa: PLC0415

    with server.client() as client:
        client.flushall()
    small = load_settings({"redis_url": server.url, "events_kept": 1})
    app = App("shop", settings=small)
    work = app.work_queue("mail")
    work.push("first")
    archive(engine, ArchivePlan(small, lake))

    for number in range(500):
        work.push(f"letter {number}")

    assert archive(engine, ArchivePlan(small, lake)) == 500
    app.close()


def test_two_archivers_do_not_share_a_lake(engine: Engine, settings: Settings, lake: Lake) -> None:
    with (
        lake.storage.exclusive(lake.lock),
        pytest.raises(LakeInUse, match="another process writes to this lake"),
    ):
        archive(engine, ArchivePlan(settings, lake))


def test_an_empty_lake_and_a_broken_file_are_told_in_a_sentence(
    engine: Engine, settings: Settings, server: RealServer, lake: Lake
) -> None:
    with pytest.raises(EmptyLake, match="is empty; `mqworker pipeline archive --once` fills it"):
        verify(engine, lake)

    with server.client() as client:
        append_events(client, "mail", 10)
    archive(engine, ArchivePlan(settings, lake))
    (file,) = paths_of(lake)
    file.write_bytes(file.read_bytes()[:100])

    with pytest.raises(BrokenFile, match=file.name):
        verify(engine, lake)


def test_spark_reads_the_lake_by_the_list_of_its_files(
    spark: SparkSession, engine: Engine, settings: Settings, server: RealServer, lake: Lake
) -> None:
    with server.client() as client:
        made = append_events(client, "mail", 100)
        append_events(client, "web", 10)
    archive(engine, ArchivePlan(settings, lake))
    (file,) = paths_of(lake)
    shutil.copy(file, file.with_name("left-behind.parquet"))  # as by an archiver that was killed

    rows = spark.read.format("mqworker").option("table", "archive").option("lake", lake.root)

    assert rows.load().count() == made + 20
    assert rows.option("queues", "mail").load().where("event = 'enqueued'").count() == made // 2


def test_a_batch_holds_no_more_events_than_allowed_whatever_the_number_of_queues(
    engine: Engine, settings: Settings, server: RealServer, lake: Lake
) -> None:
    with server.client() as client:
        made = sum(append_events(client, f"q{number:02d}", 100, per_block=20) for number in range(30))
    batches: list[int] = []

    archive_once(
        engine,
        ArchivePlan(settings, lake, max_events_per_batch=100),
        lambda _batch, count: batches.append(count),
    )

    assert sum(batches) == made
    assert max(batches) <= 100
    assert len(batches) < made / 20  # batches are not of one block alone
    assert verify(engine, lake).problems() == []
