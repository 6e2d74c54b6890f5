"""The archive: every event is in the lake once, whatever happens in between."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mqworker.errors import InvalidArgument
from mqworker.events import open_event_streams
from mqworker.settings import Settings, load_settings
from mqworker_services.pipeline.archive import (
    ArchivePlan,
    CheckpointTooOld,
    archive_once,
    archive_present,
    prepare,
)
from mqworker_services.pipeline.archive_batch import RowsNotArrived
from mqworker_services.pipeline.lake import EmptyLake, Lake, read_lake
from mqworker_services.pipeline.lake_files import BrokenFile, LakeInUse, exclusive
from mqworker_services.pipeline.offsets import EventsLost, ForeignHistory
from mqworker_services.pipeline.verify import verify
from tests.pipeline.event_factory import append_block_at, append_events
from tests.support.real_server import RealServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MIDNIGHT_MS = 1_790_035_200_000


def archive(spark: SparkSession, plan: ArchivePlan) -> int:
    events: list[int] = []
    archive_once(spark, plan, lambda _batch, count: events.append(count))
    return sum(events)


def archive_streams(spark: SparkSession, plan: ArchivePlan, driver: Settings) -> None:
    """Archive as the driver sees the streams; executors go by the settings of the plan."""
    with open_event_streams(driver) as streams:
        prepare(plan, streams)
        archive_present(spark, plan, streams, lambda _batch, _count: None)


def test_everything_is_archived_once_and_trimmed_behind(
    spark: SparkSession, settings: Settings, server: RealServer, lake: Lake
) -> None:
    plan = ArchivePlan(settings, lake, is_trimming=True, max_events_per_batch=2_000)
    with server.client() as client:
        made = append_events(client, "mail", 2_000, per_block=50)
        archived = archive(spark, plan)
        made += append_events(client, "mail", 500, per_block=50, first=2_000)
        made += append_events(client, "web", 100, per_block=1)
        archived += archive(spark, plan)

        assert client.xlen("mqw:{mail}:events") == client.xlen("mqw:{web}:events") == 0
    assert archived == made
    verdict = verify(spark, lake)
    assert verdict.problems() == []
    assert verdict.rows == verdict.distinct == made


def test_a_batch_across_midnight_is_split_by_day(
    spark: SparkSession, settings: Settings, server: RealServer, lake: Lake
) -> None:
    with server.client() as client:
        for number in range(20):
            append_block_at(client, "mail", MIDNIGHT_MS - 10 + number, [f"m{number}"])

    archive(spark, ArchivePlan(settings, lake))

    by_day = {
        str(row["date"]): row["count"] for row in read_lake(spark, lake).groupBy("date").count().collect()
    }
    assert by_day == {"2026-09-21": 10, "2026-09-22": 10}
    assert read_lake(spark, lake).where("date <> date(ts)").count() == 0


def test_a_restart_of_redis_in_between_changes_nothing(spark: SparkSession, lake: Lake) -> None:
    with RealServer(aof="always") as server:
        plan = ArchivePlan(load_settings({"redis_url": server.url}), lake, is_trimming=True)
        with server.client() as client:
            made = append_events(client, "mail", 500)
        archive(spark, plan)
        with server.client() as client:
            made += append_events(client, "mail", 300, first=500)
        server.kill()
        server.start()
        with server.client() as client:
            made += append_events(client, "mail", 200, first=800)
        archive(spark, plan)

    verdict = verify(spark, lake)
    assert (verdict.problems(), verdict.rows) == ([], made)


def test_an_old_checkpoint_is_refused(
    spark: SparkSession, settings: Settings, server: RealServer, lake: Lake, tmp_path: Path
) -> None:
    plan = ArchivePlan(settings, lake)
    with server.client() as client:
        append_events(client, "mail", 100)
        archive(spark, plan)
        shutil.copytree(lake.checkpoint, tmp_path / "old")
        append_events(client, "mail", 100, first=100)
        archive(spark, plan)
    shutil.rmtree(lake.checkpoint)
    shutil.copytree(tmp_path / "old", lake.checkpoint)

    with pytest.raises(CheckpointTooOld, match="holds batch 1, but its checkpoint knows only up to 0"):
        archive(spark, plan)

    shutil.rmtree(lake.checkpoint)
    with pytest.raises(CheckpointTooOld):
        archive(spark, plan)
    assert read_lake(spark, lake).count() == 400


def test_events_that_were_dropped_unread_and_other_servers_are_refused(
    spark: SparkSession, settings: Settings, server: RealServer, lake: Lake
) -> None:
    plan = ArchivePlan(settings, lake)
    with server.client() as client:
        append_events(client, "mail", 100, per_block=10)
        archive(spark, plan)
        append_events(client, "mail", 100, per_block=10, first=100)
        client.xtrim("mqw:{mail}:events", maxlen=5, approximate=False)

        with pytest.raises(EventsLost, match="queue mail: 15 blocks"):
            archive(spark, plan)

        (problem,) = verify(spark, lake).problems()
        assert problem.startswith("queue mail: 15 blocks of events were lost, after ")
        assert problem.endswith("; it stands still until `archive --accept-loss mail`")

        skipping = ArchivePlan(settings, lake, on_loss="skip")
        assert archive(spark, skipping) == 50
        verdict = verify(spark, lake)
        assert verdict.problems() == []
        assert [note.partition(",")[0] for note in verdict.notes()] == [
            "queue mail: 15 blocks of events were lost"
        ]

        client.flushall()
        append_events(client, "mail", 10)
        with pytest.raises(ForeignHistory, match="another server"):
            archive(spark, plan)


def test_a_deleted_queue_stands_still_and_the_others_go_on(
    spark: SparkSession, settings: Settings, server: RealServer, lake: Lake
) -> None:
    warnings: list[str] = []
    plan = ArchivePlan(settings, lake, is_trimming=True, warn=warnings.append)
    with server.client() as client:
        made = append_events(client, "mail", 100) + append_events(client, "web", 100)
        archive(spark, plan)
        client.delete("mqw:{mail}:events")
        client.srem("mqw:queues", "mail")
        made += append_events(client, "web", 50, first=100)

        for _ in range(2):  # told once, refused until it is accepted
            with pytest.raises(ForeignHistory, match=r"queue mail: .* --accept-loss mail"):
                archive(spark, plan)
        assert client.xlen("mqw:{web}:events") == 0
        assert verify(spark, lake).rows == made
        assert len(warnings) == 1

        archive(spark, replace(plan, accept_loss=("mail",)))
        assert verify(spark, lake).problems() == []
        made += append_events(client, "mail", 30, first=100) + append_events(client, "web", 10, first=150)
        archive(spark, plan)

    verdict = verify(spark, lake)
    assert (verdict.problems(), verdict.rows) == ([], made)
    (note,) = verdict.notes()
    assert note.startswith("queue mail: an unknown number of blocks of events were lost, after ")
    assert len(warnings) == 1
    with pytest.raises(InvalidArgument, match="--accept-loss is 'mial'; accepted are mail, web"):
        archive(spark, replace(plan, accept_loss=("mial",)))


def test_a_planned_batch_whose_events_are_gone_does_not_hold_up_the_others(
    spark: SparkSession, settings: Settings, server: RealServer, lake: Lake
) -> None:
    plan = ArchivePlan(settings, lake)
    with server.client() as client:
        append_events(client, "mail", 100)
        made = append_events(client, "web", 100)

        def fail(_batch: int, _events: int) -> None:
            raise InterruptedError

        with pytest.raises(InterruptedError):  # in place, and not committed
            archive_once(spark, plan, fail)
        client.xtrim("mqw:{mail}:events", maxlen=0, approximate=False)

        with pytest.raises(EventsLost, match="queue mail: 2 blocks"):
            archive(spark, plan)

    verdict = verify(spark, lake)
    assert (verdict.rows, verdict.missing_by_queue, verdict.gone) == (made, {}, ())


def test_what_was_dropped_before_the_archive_began_is_told(
    spark: SparkSession, settings: Settings, server: RealServer, lake: Lake
) -> None:
    warnings: list[str] = []
    with server.client() as client:
        append_events(client, "mail", 100, per_block=10)
        client.xtrim("mqw:{mail}:events", maxlen=5, approximate=False)

    archive(spark, ArchivePlan(settings, lake, warn=warnings.append))

    told = ["queue mail: 15 blocks of events were dropped before the archive began"]
    assert warnings == verify(spark, lake).notes() == told
    assert verify(spark, lake).problems() == []


def test_files_that_are_gone_are_told_by_batch(
    spark: SparkSession, settings: Settings, server: RealServer, lake: Lake
) -> None:
    with server.client() as client:
        for number in range(2):
            append_block_at(client, "mail", MIDNIGHT_MS + number, [f"m{number}"])
    archive(spark, ArchivePlan(settings, lake, max_events_per_batch=1))
    shutil.rmtree(lake.folder("2026-09-22", "0000000001"))

    gone = "batch 1 was committed with 1 events of 2026-09-22, and its files are gone"
    assert verify(spark, lake).problems() == [gone, "queue mail: 1 blocks of events are missing"]
    shutil.rmtree(lake.events)
    assert len(verify(spark, lake).problems()) == 3
    with pytest.raises(EmptyLake, match=r"batches were committed to the lake .* and their files are gone"):
        read_lake(spark, lake)


def test_the_default_filesystem_of_spark_does_not_matter(
    spark: SparkSession, settings: Settings, server: RealServer, lake: Lake
) -> None:
    spark.conf.set("fs.defaultFS", "hdfs://127.0.0.1:1")
    try:
        with server.client() as client:
            made = append_events(client, "mail", 100)
            archive(spark, ArchivePlan(settings, lake, is_trimming=True))
        verdict = verify(spark, lake)
    finally:
        spark.conf.unset("fs.defaultFS")
    assert (verdict.problems(), verdict.rows) == ([], made)


def test_executors_that_reach_another_server_archive_nothing(
    spark: SparkSession, settings: Settings, server: RealServer, lake: Lake
) -> None:
    with RealServer() as another, server.client() as client:
        append_events(client, "mail", 100)
        wrong = ArchivePlan(load_settings({"redis_url": another.url}), lake, is_trimming=True)
        with pytest.raises(RowsNotArrived, match="do executors reach the same server"), exclusive(lake.lock):
            archive_streams(spark, wrong, settings)
        assert client.xlen("mqw:{mail}:events") == 2
    assert next(lake.batches(), None) is None


def test_the_cap_of_a_stream_does_not_drop_what_an_archiver_waits_for(
    spark: SparkSession, server: RealServer, lake: Lake
) -> None:
    from mqworker import App  # noqa: PLC0415

    with server.client() as client:
        client.flushall()
    small = load_settings({"redis_url": server.url, "events_kept": 1})
    app = App("shop", settings=small)
    work = app.work_queue("mail")
    work.push("first")
    archive(spark, ArchivePlan(small, lake))

    for number in range(500):
        work.push(f"letter {number}")

    assert archive(spark, ArchivePlan(small, lake)) == 500
    app.close()


def test_two_archivers_do_not_share_a_lake(spark: SparkSession, settings: Settings, lake: Lake) -> None:
    with exclusive(lake.lock), pytest.raises(LakeInUse, match="another process writes to this lake"):
        archive(spark, ArchivePlan(settings, lake))


def test_an_empty_lake_and_a_broken_file_are_told_in_a_sentence(
    spark: SparkSession, settings: Settings, server: RealServer, lake: Lake
) -> None:
    with pytest.raises(EmptyLake, match="is empty; `mqworker pipeline archive --once` fills it"):
        verify(spark, lake)

    with server.client() as client:
        append_events(client, "mail", 10)
    archive(spark, ArchivePlan(settings, lake))
    file = next(lake.events.rglob("*.parquet"))
    file.write_bytes(file.read_bytes()[:100])

    with pytest.raises(BrokenFile, match=file.name):
        verify(spark, lake)
