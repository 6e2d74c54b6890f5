"""SIGKILL of a compaction, a real process each time: nothing is lost or doubled, and the next one goes on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from mqworker.settings import Settings
from mqworker_services.pipeline.archive import ArchivePlan, archive_once
from mqworker_services.pipeline.compaction import compact
from mqworker_services.pipeline.engine import Engine
from mqworker_services.pipeline.lake import Lake
from mqworker_services.pipeline.table import LakeTable
from mqworker_services.pipeline.verify import verify
from tests.pipeline.compactor_process import MOMENTS
from tests.pipeline.event_factory import append_block_at
from tests.pipeline.lake_content import keys_of
from tests.support.real_server import RealServer

MIDNIGHT_MS = 1_790_035_200_000
DAY_MS = 86_400_000
TODAY = "2026-09-22"
ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 120


def test_a_compaction_killed_at_every_step_loses_and_doubles_nothing(
    engine: Engine, settings: Settings, server: RealServer, lake: Lake
) -> None:
    """One lake through all kills: each process finds what the one before left behind."""
    with server.client() as client:
        for number in range(24):  # two days that are over
            at_ms = MIDNIGHT_MS - (2 if number < 12 else 1) * DAY_MS + number
            append_block_at(client, "mail", at_ms, [f"m{number}", f"n{number}"])
    archive_once(engine, ArchivePlan(settings, lake, max_events_per_batch=8), lambda _batch, _events: None)
    before = keys_of(lake)
    assert len(before) == 48

    for when in MOMENTS:
        killed_compaction(lake, when)

        assert keys_of(lake) == before, f"after a kill at {when}"
        assert verify(engine, lake).problems() == [], f"after a kill at {when}"

    compact(engine, lake, TODAY)
    assert keys_of(lake) == before
    assert [file.date for file in LakeTable.open(lake).files()] == ["2026-09-20", "2026-09-21"]
    assert verify(engine, lake).problems() == []
    assert compact(engine, lake, TODAY) == []


def killed_compaction(lake: Lake, when: str) -> None:
    command = [sys.executable, "-m", "tests.pipeline.compactor_process", lake.root, TODAY, when]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == -9, f"{when}: {done.stderr}"
