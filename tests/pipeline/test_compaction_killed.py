"""SIGKILL of a compaction, a real process each time: nothing is lost or doubled, and the next one goes on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from mqworker.settings import Settings
from mqworker_services.pipeline.archive import ArchivePlan, archive_once
from mqworker_services.pipeline.compaction import compact
from mqworker_services.pipeline.lake import Lake, read_lake
from mqworker_services.pipeline.verify import verify
from tests.pipeline.compactor_process import WITH_SPARK, WITHOUT_SPARK
from tests.pipeline.event_factory import append_block_at
from tests.support.real_server import RealServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MIDNIGHT_MS = 1_790_035_200_000
DAY_MS = 86_400_000
TODAY = "2026-09-22"
ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 120


def test_a_compaction_killed_at_every_step_loses_and_doubles_nothing(
    spark: SparkSession, settings: Settings, server: RealServer, lake: Lake
) -> None:
    """One lake through all kills: each process finds what the one before left behind."""
    with server.client() as client:
        for number in range(24):  # two days that are over
            at_ms = MIDNIGHT_MS - (2 if number < 12 else 1) * DAY_MS + number
            append_block_at(client, "mail", at_ms, [f"m{number}", f"n{number}"])
    plan = ArchivePlan(settings, lake, max_events_per_batch=8)
    archive_once(spark, plan, lambda _batch, _events: None)
    before = keys(spark, lake)
    assert len(before) == 48

    for when in (*WITH_SPARK, *WITHOUT_SPARK):
        killed_compaction(lake, when)

        assert keys(spark, lake) == before, f"after a kill at {when}"
        assert verify(spark, lake).problems() == [], f"after a kill at {when}"

    compact(spark, lake, TODAY)
    assert keys(spark, lake) == before
    assert [date for date, _ in lake.batches()] == ["2026-09-20", "2026-09-21"]
    assert all(batch.startswith("c") for _, batch in lake.batches())
    assert verify(spark, lake).problems() == []
    assert [path.name for path in lake.compaction.iterdir()] == ["lock"]


def keys(spark: SparkSession, lake: Lake) -> list[tuple[object, ...]]:
    return sorted(map(tuple, read_lake(spark, lake).select("shard", "block", "seq").collect()))


def killed_compaction(lake: Lake, when: str) -> None:
    command = [sys.executable, "-m", "tests.pipeline.compactor_process", str(lake.root), TODAY, when]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == -9, f"{when}: {done.stderr}"
