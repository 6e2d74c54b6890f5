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
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

import psutil
import pytest

from mqworker.settings import Settings
from mqworker_services.pipeline.archive import ArchivePlan, archive_once
from mqworker_services.pipeline.engine import Engine
from mqworker_services.pipeline.lake import Lake
from mqworker_services.pipeline.launcher import has_java
from mqworker_services.pipeline.verify import verify
from tests.pipeline.event_factory import append_events
from tests.pipeline.quick_java import QUICK_CONF
from tests.support.real_server import RealServer

DEADLINE_S = 120.0
KILLS = 10 if os.environ.get("DRILL_SIZE") == "full" else 2
ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("engine_name", ["local", "spark"])
def test_an_archiver_killed_again_and_again_archives_everything_once(
    engine: Engine, settings: Settings, server: RealServer, lake: Lake, engine_name: str
) -> None:
    if engine_name == "spark" and not has_java():
        pytest.skip("no Java: install Java 17, or pip install 'mqworker[java]'")
    chance = random.Random(7)  # noqa: S311 - moments of kills, nothing secret
    kills = KILLS if engine_name == "spark" else 2 * KILLS  # no JVM to be started each time
    batches_seen = 0

    with _load(server) as produced:
        batches_seen += _killed_in_a_batch(server, lake, engine_name)
        for kill in range(kills):
            batches_seen += _killed_at_random(server, lake, engine_name, chance, after_batches=kill % 3)
    _archive_the_rest(engine, settings, lake)

    assert_nothing_is_lost_or_doubled(engine, lake, produced)
    assert batches_seen >= kills - 1 >= 1  # it did archive in between, or the kills would prove nothing
    with server.client() as client:
        assert client.xlen("mqw:{mail}:events") == client.xlen("mqw:{web}:events") == 0


@pytest.mark.skipif(not has_java(), reason="no Java: install Java 17, or pip install 'mqworker[java]'")
def test_killed_python_workers_are_replaced_and_a_killed_jvm_is_told_in_a_sentence(
    engine: Engine, settings: Settings, server: RealServer, lake: Lake
) -> None:
    command = [sys.executable, "-m", "mqworker", "pipeline", "archive", "--trim", "--interval", "0.1"]
    command += [
        "--max-events",
        "3000",
        "--master",
        "local[2]",
        "--redis-url",
        server.url,
        "--lake",
        lake.root,
    ]
    command += [part for pair in QUICK_CONF.items() for part in ("--conf", "=".join(pair))]
    with (
        _load(server) as produced,
        subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process,
    ):
        try:
            assert process.stderr is not None
            _wait_for_batches(process.stderr, 2)
            killed = _kill(process.pid, "python")
            _wait_for_batches(process.stderr, 2)
            killed_jvm = _kill(process.pid, "java")
            told = process.stderr.read()
            exit_code = process.wait(DEADLINE_S)
        finally:
            process.kill()
    _archive_the_rest(engine, settings, lake)

    assert (killed > 0, killed_jvm) == (True, 1)
    assert (exit_code, "Traceback" in told) == (1, False), told
    assert "mqworker: Spark's Java process is gone" in told
    assert_nothing_is_lost_or_doubled(engine, lake, produced)


def assert_nothing_is_lost_or_doubled(engine: Engine, lake: Lake, produced: list[int]) -> None:
    verdict = verify(engine, lake)
    assert verdict.problems() == []
    assert verdict.rows == verdict.distinct == sum(produced)


def _archive_the_rest(engine: Engine, settings: Settings, lake: Lake) -> None:
    archive_once(engine, ArchivePlan(settings, lake, is_trimming=True), lambda _batch, _events: None)


def _wait_for_batches(lines: TextIO, number: int) -> None:
    for line in lines:
        number -= line.startswith("batch")
        if not number:
            return
    raise AssertionError("the archiver ended by itself")


def _kill(process_id: int, name: str) -> int:
    """Kill all processes of a name that a process started; how many."""
    found = [
        each for each in psutil.Process(process_id).children(recursive=True) if each.name().startswith(name)
    ]
    for each in found:
        with suppress(psutil.NoSuchProcess):
            each.kill()
    return len(found)


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


def _killed_in_a_batch(server: RealServer, lake: Lake, engine_name: str) -> int:
    """Die between the write of the second batch and its commit."""
    with _archiver(server, lake, engine_name, "1") as process:
        assert process.stdout is not None
        lines = process.stdout.read().splitlines()
        assert process.wait() == -9
    return sum(line.startswith("batch") for line in lines)


def _killed_at_random(
    server: RealServer, lake: Lake, engine_name: str, chance: random.Random, *, after_batches: int
) -> int:
    """Die some time after so many batches, or after the start."""
    with _archiver(server, lake, engine_name) as process:
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
        lake.root,
        *arguments,
    ]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()
            process.wait()
