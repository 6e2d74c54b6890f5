"""Tasks that take batches, on a node: what is gathered, killed, cancelled, given back."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from mqworker import App, Batch, Job, JobStatus
from mqworker.errors import StillRunning, TaskCancelled, TaskFailed
from tests.support.deadline import wait_until
from tests.support.node_process import ROOT
from tests.support.real_node import RealNode
from tests.support.real_server import RealServer

DEADLINE_S = 90.0
APP = "tests.system.batch_app:app"
PREFIX = "tests.system.batch_app."


@pytest.fixture
def server() -> Iterator[RealServer]:
    with RealServer() as running:
        yield running


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    return tmp_path / "ledger"


def node_on(server: RealServer, ledger: Path, workers: int = 2, **settings: str) -> RealNode:
    own = {"MQWORKER_WORKERS": str(workers), "PYTHONPATH": str(ROOT), "BATCH_LEDGER": str(ledger)}
    return RealNode(server.url, APP, settings=own | settings)


@pytest.fixture
def node(server: RealServer, ledger: Path) -> Iterator[RealNode]:
    with node_on(server, ledger) as running:
        yield running


class Producer:
    """Calls the tasks of the application without its code."""

    def __init__(self, server: RealServer) -> None:
        self.app = App("producer", redis_url=server.url)
        self.load = self._row_task("load", "rows", 50)
        self.aload = self._row_task("aload", "rows", 50)
        self.poisoned = self._row_task("poisoned", "poison", 500)
        self.partial = self._row_task("partial", "partial", 20)
        self.slow = self._row_task("slow", "slow", 3)
        self.patient = self._row_task("patient", "patient", 1_000)

        @self.app.task(name=PREFIX + "by_tenant", queue="keyed", batch=Batch(size=100, by="{tenant}"))
        def by_tenant(rows: list[dict[str, str]]) -> None:
            del rows

        @self.app.task(name=PREFIX + "plain", queue="patient")
        def plain(number: int) -> int:
            return number

        self.by_tenant, self.plain = by_tenant, plain

    # Any: rows of several types.
    def _row_task(self, name: str, queue: str, size: int) -> Any:  # noqa: ANN401 - see above
        def stand_in(rows: list[Any]) -> list[Any]:
            return rows

        return self.app.task(name=PREFIX + name, queue=queue, batch=Batch(size=size))(stand_in)


@pytest.fixture
def producer(server: RealServer) -> Iterator[Producer]:
    opened = Producer(server)
    yield opened
    opened.app.close()


def calls(ledger: Path, task: str) -> list[list[Any]]:
    """What was written down, oldest first: the rows of each call."""
    if not ledger.exists():
        return []
    lines = [json.loads(line) for line in ledger.read_text().splitlines()]
    return [rows for _, name, *rows in lines if name == task]


def counter(server: RealServer, queue: str, name: str) -> int:
    with server.client() as client:
        # Any: what redis-py answers.
        found: Any = client.hget(f"mqw:{{{queue}}}:meta", name)
    return int(found or 0)


def wait_all(jobs: list[Job[Any]]) -> list[Any]:
    return [job.result(timeout=DEADLINE_S) for job in jobs]


def test_rows_run_together_and_each_job_has_its_own_result(
    node: RealNode, ledger: Path, producer: Producer
) -> None:
    del node  # it runs
    assert wait_all(producer.load.map(range(500))) == [2 * row for row in range(500)]
    assert wait_all(producer.aload.map(range(500))) == [2 * row for row in range(500)]

    for task in ("load", "aload"):
        ran = calls(ledger, task)
        assert sorted(row for rows in ran for row in rows) == list(range(500))
        assert len(ran) <= 40
        assert max(map(len, ran)) == 50


def test_a_lone_row_waits_for_others_no_longer_than_it_says(
    node: RealNode, ledger: Path, producer: Producer
) -> None:
    del node  # it runs
    assert producer.load.enqueue(4).result(timeout=DEADLINE_S) == 8

    jobs = [producer.load.enqueue(row) for row in range(20)]

    assert wait_all(jobs) == [2 * row for row in range(20)]
    assert len(calls(ledger, "load")) < 15


def test_rows_of_different_keys_never_run_together(node: RealNode, ledger: Path, producer: Producer) -> None:
    del node  # it runs
    wait_all(producer.by_tenant.map({"tenant": f"tenant{at % 7}"} for at in range(700)))

    ran = calls(ledger, "by_tenant")

    assert all(len(set(tenants)) == 1 for tenants in ran)
    assert sum(map(len, ran)) == 700
    assert len(ran) < 100


def test_only_the_rows_that_failed_fail(node: RealNode, producer: Producer) -> None:
    del node  # it runs
    jobs = producer.partial.map(range(100))

    for row, job in enumerate(jobs):
        if row % 2:
            with pytest.raises(TaskFailed, match=f"row {row}"):
                job.result(timeout=DEADLINE_S)
        else:
            assert job.result(timeout=DEADLINE_S) == f"row {row}"


def test_one_poison_row_of_500_is_buried_and_499_succeed(
    node: RealNode, server: RealServer, ledger: Path, producer: Producer
) -> None:
    del node  # it runs
    jobs = producer.poisoned.map(range(500))

    for row, job in enumerate(jobs):
        if row == 13:
            with pytest.raises(TaskFailed, match="crashed"):
                job.result(timeout=DEADLINE_S)
        else:
            assert job.result(timeout=DEADLINE_S) == row
    ran = calls(ledger, "poisoned")
    deaths = [rows for rows in ran if 13 in rows]
    assert counter(server, "poison", "succeeded") == 499
    assert counter(server, "poison", "buried") == 1
    assert [len(rows) for rows in deaths[-3:]] == [1, 1, 1]
    assert len(deaths) <= 9 + 3
    assert sorted(map(len, deaths), reverse=True) == list(map(len, deaths))


@pytest.mark.parametrize("seed", [1, 2])
def test_kills_of_workers_and_dispatchers_lose_nothing_and_settle_each_row_once(
    server: RealServer, ledger: Path, producer: Producer, seed: int
) -> None:
    chance = random.Random(seed)  # noqa: S311 - a test repeats itself
    rows, kills = 4_000, 0
    with node_on(server, ledger) as node:
        jobs = producer.load.map(range(rows // 2)) + producer.aload.map(range(rows // 2))
        while counter(server, "rows", "succeeded") < rows and kills < 12:
            time.sleep(chance.random() * 0.15)
            victim = chance.choice(["worker:0", "worker:1", "dispatcher"])
            child = node.child(victim)
            with suppress(ProcessLookupError):  # it died before we looked
                if child["state"] == "live":
                    os.kill(child["pid"], signal.SIGKILL)
                    kills += 1
        assert wait_all(jobs) == [2 * row for row in range(rows // 2)] * 2
    assert counter(server, "rows", "succeeded") == rows
    assert counter(server, "rows", "buried") == 0
    for task in ("load", "aload"):
        runs = Counter(row for called in calls(ledger, task) for row in called)
        assert set(runs) == set(range(rows // 2))
        # A kill of a worker repeats what ran in it: one batch in the main thread, several on the loop.
        assert sum(runs.values()) - rows // 2 <= kills * 50 * 40


def test_what_is_gathered_holds_up_nobody_and_goes_back_at_once_when_the_node_drains(
    server: RealServer, ledger: Path, producer: Producer
) -> None:
    with node_on(server, ledger) as node:
        waiting = producer.patient.map(range(10))
        wait_until(lambda: node.facts("dispatcher")["gathering"] == 10, "ten are gathered", DEADLINE_S)

        assert producer.plain.enqueue(3).result(timeout=10) == 3

        assert {job.status() for job in waiting} == {JobStatus.RUNNING}
        began = time.monotonic()
        assert node.stop() == 0
        assert time.monotonic() - began < 20
    assert {job.status() for job in waiting} == {JobStatus.WAITING}
    assert calls(ledger, "patient") == []


def test_one_that_is_cancelled_while_it_is_gathered_does_not_run(
    node: RealNode, ledger: Path, producer: Producer
) -> None:
    jobs = producer.slow.map(["a", "b"])
    wait_until(lambda: node.facts("dispatcher")["gathering"] == 2, "two are gathered", DEADLINE_S)

    assert jobs[0].cancel(timeout=DEADLINE_S)
    wait_until(lambda: node.facts("dispatcher")["gathering"] == 1, "one is left", DEADLINE_S)
    Path(f"{ledger}.go").touch()
    jobs += producer.slow.map(["c", "d"])

    assert wait_all(jobs[1:]) == ["b 1 False", "c 1 False", "d 1 False"]
    with pytest.raises(TaskCancelled):
        jobs[0].result(timeout=DEADLINE_S)
    assert calls(ledger, "slow") == [["b", "c", "d"]]


def test_cancelling_one_that_runs_stops_the_batch_only_when_all_are_to_stop(
    node: RealNode, ledger: Path, producer: Producer
) -> None:
    del node  # it runs
    jobs = producer.slow.map(["a", "b", "c"])
    wait_until(lambda: calls(ledger, "slow"), "they run", DEADLINE_S)

    with pytest.raises(StillRunning):
        jobs[1].cancel(timeout=0.1)
    Path(f"{ledger}.go").touch()

    assert wait_all([jobs[0], jobs[2]]) == ["a 1 False", "c 1 False"]
    Path(f"{ledger}.go").unlink()
    others = producer.slow.map(["d", "e", "f"])
    wait_until(lambda: len(calls(ledger, "slow")) == 2, "they run", DEADLINE_S)
    for job in others[:2]:
        with pytest.raises(StillRunning):
            job.cancel(timeout=0.1)
    assert others[2].cancel(timeout=DEADLINE_S)
    for job in others:
        with pytest.raises(TaskCancelled):
            job.result(timeout=DEADLINE_S)


def test_the_next_dispatcher_adopts_a_batch_that_runs(
    node: RealNode, server: RealServer, ledger: Path, producer: Producer
) -> None:
    jobs = producer.slow.map(["a", "b", "c"])
    wait_until(lambda: calls(ledger, "slow"), "they run", DEADLINE_S)

    node.kill("dispatcher")
    node.kill("dispatcher")
    Path(f"{ledger}.go").touch()

    assert wait_all(jobs) == [f"{row} 1 False" for row in "abc"]
    assert calls(ledger, "slow") == [["a", "b", "c"]]
    assert counter(server, "slow", "succeeded") == 3
