"""Real processes on one queue: nothing processed twice, nothing lost when one is killed."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqworker.queues.gq.client import GqClient
from mqworker.queues.gq.rules import GqStatus
from tests.gq.databases import Database, RedisDatabase
from tests.support.deadline import wait_until
from tests.support.gq_process import PATIENT

PROJECT = Path(__file__).parents[2]
DEADLINE_S = 90.0


class Processes:
    """Consuming processes with a ledger each."""

    def __init__(self, database: Database, folder: Path) -> None:
        self._database = database
        self._folder = folder
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self, *, held: str = "") -> subprocess.Popen[bytes]:
        """One more process."""
        kind = "redis" if isinstance(self._database, RedisDatabase) else "sql"
        where = [kind, self._database.url, self._database.queue, str(self._folder)]
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.gq_process", *where, str(len(self._running)), held],
            cwd=PROJECT,
        )
        self._running.append(process)
        return process

    def stop(self) -> None:
        """Ask all to end, and wait for them."""
        (self._folder / "stop").touch()
        for process in self._running:
            process.wait(DEADLINE_S)

    def end(self) -> None:
        """Leave nobody behind, even when the test failed."""
        for process in self._running:
            process.kill()
            process.wait()

    def processed(self) -> list[list[int]]:
        """The payloads that each process saw."""
        ledgers = sorted(self._folder.glob("*.ledger"))
        return [[int(line) for line in ledger.read_text().splitlines()] for ledger in ledgers]


@pytest.fixture
def processes(database: Database, tmp_path: Path) -> Iterator[Processes]:
    started = Processes(database, tmp_path)
    yield started
    started.end()


def push(client: GqClient, count: int) -> None:
    with client.producer(push_batch=1_000, linger_ms=None) as producer:
        for number in range(1, count + 1):
            producer.push(b"%d" % number)


def test_eight_processes_process_each_message_exactly_once(client: GqClient, processes: Processes) -> None:
    """Q08."""
    count = 10_000
    for _ in range(8):
        processes.start()
    wait_until(lambda: len(client.consumers()) == 8, "all registered", DEADLINE_S)

    push(client, count)
    wait_until(lambda: client.counts()[GqStatus.PROCESSED] == count, "all were processed", DEADLINE_S)
    processes.stop()

    seen = processes.processed()
    assert Counter(number for each in seen for number in each) == Counter(range(1, count + 1))
    assert sum(1 for each in seen if each) > 1, "one process did all the work: nothing was shared"
    assert client.consumers() == []


def test_what_a_killed_consumer_held_is_processed_by_another(
    database: Database, client: GqClient, processes: Processes
) -> None:
    """Kill -9 in the middle of a batch: done ones come again (at least once), none is missing."""
    victim = processes.start(held="20")
    push(client, 40)
    wait_until(lambda: any(20 in seen for seen in processes.processed()), "the victim is at work", DEADLINE_S)
    dead = client.consumers()[0].uuid
    victim.kill()
    victim.wait()
    seen: list[int] = []
    survivor = client.consumer(
        lambda payload: seen.append(int(payload)), pop_batch=50, liveness=PATIENT, reclaim_dead=True
    )
    before = survivor.run_once()

    database.silence(dead, PATIENT.dead_after_ms)
    survivor.heartbeat()
    survivor.run_once()

    assert before.lost == ()
    assert sorted(seen) == list(range(1, 41))
    assert client.counts()[GqStatus.PROCESSED] == 40
