"""The archive: every event is in the lake once, whatever happens in between."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mqworker.settings import Settings, load_settings
from mqworker_services.pipeline.archive import ArchivePlan, CheckpointTooOld, archive_once
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

        skipping = ArchivePlan(settings, lake, on_loss="skip")
        assert archive(spark, skipping) == 50
        assert verify(spark, lake).problems() == ["queue mail: 15 blocks of events are missing"]

        client.flushall()
        append_events(client, "mail", 10)
        with pytest.raises(ForeignHistory, match="another server"):
            archive(spark, plan)


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
