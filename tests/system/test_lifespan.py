"""Lifespans and what is injected, in real workers: whatever ends a run or a worker, all is closed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqworker import App
from mqworker.errors import TaskCancelled, TaskFailed
from tests.support.deadline import wait_until
from tests.support.node_process import ROOT, NodeProcess
from tests.support.real_node import RealNode
from tests.support.real_server import RealServer

ROUNDS = 100 if os.environ.get("DRILL_SIZE") == "full" else 4
DEADLINE_S = 60.0


class Ledger:
    """What the workers wrote down."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()

    def counts(self, verb: str) -> Counter[str]:
        """What was opened or closed, by name and process."""
        return Counter(line.removeprefix(f"{verb} ") for line in self.lines() if line.startswith(f"{verb} "))

    def lines(self) -> list[str]:
        return self.path.read_text().splitlines()

    def check(self) -> Counter[str]:
        """Everything that was opened was closed, in the same process; what was opened, without processes."""
        opened, closed = self.counts("open"), self.counts("close")
        assert opened == closed, {"left open": opened - closed, "closed twice": closed - opened}
        total: Counter[str] = Counter()
        for name, count in opened.items():
            total[name.rpartition(" ")[0]] += count
        return total


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger")


@pytest.fixture
def server() -> Iterator[RealServer]:
    with RealServer() as running:
        yield running


def a_node(server: RealServer, ledger: Ledger, **settings: str) -> RealNode:
    return RealNode(
        server.url,
        "tests.system.lifespan_app:app",
        settings={
            "LEDGER": str(ledger.path),
            "MQWORKER_WORKERS": "2",
            "MQWORKER_DRAIN_S": "20",
            **settings,
        },
    )


def a_broken_node(server: RealServer, ledger: Ledger, trouble: str, tmp_path: Path) -> NodeProcess:
    """As typed, with the patience that nodes have."""
    node = NodeProcess(
        [sys.executable, "-m", "mqworker", "run", "tests.system.lifespan_app:app", "--workers", "1"],
        os.environ
        | {
            "MQWORKER_REDIS_URL": server.url,
            "LEDGER": str(ledger.path),
            "TROUBLE": trouble,
            "MQWORKER_LIFESPAN_TIMEOUT_S": "0.5",
            "PYTHONPATH": str(ROOT),
        },
        log_path=tmp_path / "log",
        data_dir=tmp_path / ".mqworker",
        directory=tmp_path,
    )
    node.start()
    return node


def status_of(server: RealServer, directory: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mqworker", "status"],
        cwd=directory,
        env=os.environ | {"MQWORKER_REDIS_URL": server.url},
        capture_output=True,
        text=True,
        check=False,
    )


def test_all_that_is_opened_is_closed_through_recycling_reload_time_outs_and_drain(
    server: RealServer, ledger: Ledger
) -> None:
    app = App("caller", redis_url=server.url)
    with a_node(server, ledger, MQWORKER_MAX_TASKS="20") as node:
        for _ in range(ROUNDS):
            jobs = [app.send("quick") for _ in range(15)] + [app.send("aquick") for _ in range(5)]
            late = [app.send("late", 0.045 + number / 2_000) for number in range(8)] + [app.send("alate")]
            results = [job.result(timeout=DEADLINE_S) for job in jobs]
            assert all(each is True or each.startswith("session engine") for each in results)
            for job in late:
                try:
                    job.result(timeout=DEADLINE_S)
                except TaskFailed as error:
                    assert error.error == "TaskTimeout", error  # noqa: PT017 - some end in time
        node.signal(signal.SIGHUP)
        wait_until(lambda: ledger.counts("open").total() > 0 and node.is_complete(), "reloaded", DEADLINE_S)
        assert app.send("quick").result(timeout=DEADLINE_S)
        assert node.stop() == 0
    opened = ledger.check()
    assert opened["engine"] == opened["client"] > ROUNDS
    assert opened["session"] >= 24 * ROUNDS
    app.close()


def test_a_cancelled_run_cleans_up_and_is_not_interrupted_by_it(server: RealServer, ledger: Ledger) -> None:
    app = App("caller", redis_url=server.url)
    with a_node(server, ledger) as node:
        for name in ("endless", "aendless"):
            job = app.send(name)
            wait_until(
                lambda: any(line.startswith(f"{name} runs") for line in ledger.lines()),  # noqa: B023
                "it runs",
                DEADLINE_S,
            )
            assert job.cancel()
            with pytest.raises(TaskCancelled):
                job.result(timeout=DEADLINE_S)
        assert node.stop() == 0
    assert ledger.check()["session"] == 1
    app.close()


@pytest.mark.parametrize(
    ("trouble", "why"),
    [
        ("fails", "engine failed at its start: OSError: no database"),
        ("hangs", "engine failed at its start: TaskTimeout: the lifespans of the app did not start"),
    ],
)
def test_a_lifespan_that_fails_or_hangs_parks_the_worker_and_the_node_says_why(
    server: RealServer, ledger: Ledger, tmp_path: Path, trouble: str, why: str
) -> None:
    node = a_broken_node(server, ledger, trouble, tmp_path)
    try:
        wait_until(lambda: node.child("worker:0").get("state") == "parked", "parked", DEADLINE_S)

        assert why in node.child("worker:0")["last_exit"]
        assert node.child("dispatcher")["state"] == "live"
        # A worker may fail before the node was written to Redis for the first time.
        wait_until(lambda: status_of(server, tmp_path).returncode == 1, "status sees the node", DEADLINE_S)
        said = status_of(server, tmp_path).stdout
        assert "degraded" in said
        assert "engine failed at its start" in said
    finally:
        assert node.stop(DEADLINE_S) == 0


@pytest.mark.parametrize(
    ("trouble", "event"),
    [("fails at the end", "resource_not_closed"), ("hangs at the end", "resource_not_closed")],
)
def test_a_lifespan_that_fails_or_hangs_at_its_end_is_logged_and_the_worker_is_replaced(
    server: RealServer, ledger: Ledger, tmp_path: Path, trouble: str, event: str
) -> None:
    app = App("caller", redis_url=server.url)
    node = a_broken_node(server, ledger, trouble, tmp_path)
    try:
        first = app.send("quick").result(timeout=DEADLINE_S)
        node.process.send_signal(signal.SIGHUP)
        wait_until(lambda: app.send("quick").result(timeout=DEADLINE_S) != first, "replaced", DEADLINE_S)

        log = node.log_path.read_text()
        assert event in log
        assert "lifespan_app.engine" in log
    finally:
        assert node.stop(DEADLINE_S) == 0
        app.close()
