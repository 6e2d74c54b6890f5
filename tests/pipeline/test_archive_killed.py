"""SIGKILL of the archiver under load, with trimming on: rows = distinct ids = events that were produced.

One kill between the write of a batch and its commit, and some at random moments: ten with DRILL_SIZE=full
(`make drills`), for a JVM starts each time, and that takes long.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from mqworker.settings import Settings
from mqworker_services.pipeline.archive import ArchivePlan, archive_once
from mqworker_services.pipeline.lake import Lake
from mqworker_services.pipeline.verify import verify
from tests.pipeline.event_factory import append_events
from tests.support.real_server import RealServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KILLS = 10 if os.environ.get("DRILL_SIZE") == "full" else 2
ROOT = Path(__file__).resolve().parents[2]


def test_an_archiver_killed_again_and_again_archives_everything_once(
    spark: SparkSession, settings: Settings, server: RealServer, lake: Lake
) -> None:
    chance = random.Random(7)  # noqa: S311 - moments of kills, nothing secret
    batches_seen = 0

    with _load(server) as produced:
        batches_seen += _killed_in_a_batch(server, lake)
        for kill in range(KILLS):
            batches_seen += _killed_at_random(server, lake, chance, after_batches=kill % 3)
    plan = ArchivePlan(settings, lake, is_trimming=True)
    archive_once(spark, plan, lambda _batch, _events: None)

    verdict = verify(spark, lake)
    assert verdict.problems() == []
    assert verdict.rows == verdict.distinct == sum(produced)
    assert batches_seen >= KILLS - 1 >= 1  # it did archive in between, or the kills would prove nothing
    with server.client() as client:
        assert client.xlen("mqw:{mail}:events") == client.xlen("mqw:{web}:events") == 0


@contextmanager
def _load(server: RealServer) -> Iterator[list[int]]:
    """Events come in all the time, in two queues."""
    produced: list[int] = []
    is_over = threading.Event()

    def produce() -> None:
        with server.client() as client:
            first = 0
            while not is_over.wait(0.05):
                produced.append(append_events(client, "mail", 100, per_block=50, first=first))
                produced.append(append_events(client, "web", 10, per_block=1, first=first))
                first += 100

    producer = threading.Thread(target=produce)
    producer.start()
    try:
        yield produced
    finally:
        is_over.set()
        producer.join()


def _killed_in_a_batch(server: RealServer, lake: Lake) -> int:
    """Die between the write of the second batch and its commit."""
    with _archiver(server, lake, "1") as process:
        assert process.stdout is not None
        lines = process.stdout.read().splitlines()
        assert process.wait() == -9
    assert lake.batches()
    return sum(line.startswith("batch") for line in lines)


def _killed_at_random(server: RealServer, lake: Lake, chance: random.Random, *, after_batches: int) -> int:
    """Die some time after so many batches, or after the start."""
    with _archiver(server, lake) as process:
        assert process.stdout is not None
        batches = 0
        for line in process.stdout:
            batches += line.startswith("batch")
            if batches == after_batches:
                break
        # Not a wait for something: the moment of the kill is what is drawn by lot.
        time.sleep(chance.uniform(0, 1.0))
        assert process.poll() is None, "the archiver ended by itself"
        process.kill()
    return batches


@contextmanager
def _archiver(server: RealServer, lake: Lake, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [
        sys.executable,
        "-m",
        "tests.pipeline.archiver_process",
        server.url,
        str(lake.root),
        *arguments,
    ]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()
            process.wait()
