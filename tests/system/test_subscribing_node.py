"""A real node whose tasks subscribe: events reach all of them while publishers and brokers are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from mqworker import App
from mqworker.settings import Settings
from mqworker.supervisor.status_socket import read_snapshots
from tests.support.deadline import wait_until
from tests.support.real_server import RealServer

ROOT = Path(__file__).parents[2]
DEADLINE_S = 60.0
TOPIC = "numbers"
APP = """
import os
from mqworker import App

app = App("listeners", redis_url="{url}")

def note(name: str, number: int) -> None:
    file = os.open(name, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, f"{{number}}\\n".encode())
    os.close(file)

@app.subscribe("numbers")
def one(number: int) -> None:
    note("one", number)

@app.subscribe("numbers")
@app.task(queue="other")
def other(number: int) -> None:
    note("other", number)
"""


@pytest.fixture
def server() -> Iterator[RealServer]:
    with RealServer() as running:
        yield running


@pytest.fixture
def node(server: RealServer, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    (tmp_path / "listeners.py").write_text(APP.format(url=server.url))
    with (tmp_path / "node.log").open("wb") as log:
        running = subprocess.Popen(
            [sys.executable, "-m", "mqworker", "run", "listeners:app", "--workers", "2", "--node", "n"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT), "MQWORKER_REDIS_URL": server.url},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    yield running
    running.terminate()
    try:
        running.wait(15)
    except subprocess.TimeoutExpired:
        running.kill()
        running.wait()


def kill_broker(directory: Path) -> None:
    for snapshot in read_snapshots(directory / ".mqworker", 5.0).values():
        for child in snapshot["children"] if snapshot else []:
            if child["name"] == "broker" and child["pid"]:
                with suppress(ProcessLookupError):
                    os.kill(child["pid"], signal.SIGKILL)


@pytest.mark.usefixtures("node")
def test_every_event_runs_once_in_every_subscriber(server: RealServer, tmp_path: Path) -> None:
    app = App("publisher", settings=Settings(redis_url=server.url))
    early = [app.publish(TOPIC, -number) for number in range(1, 21)]  # before, while or after it registers

    def ran() -> list[Counter[str]]:
        names = ("one", "other")
        return [
            Counter((tmp_path / name).read_text().split()) for name in names if (tmp_path / name).exists()
        ]

    wait_until(lambda: [len(each) for each in ran()] == [20, 20], "the first events ran", DEADLINE_S)
    printed = 0
    for _ in range(3):
        command = [sys.executable, "-m", "tests.support.publishing_process", server.url, TOPIC]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as publisher:
            assert publisher.stdout is not None
            printed += sum(bool(publisher.stdout.readline()) for _ in range(40))
            kill_broker(tmp_path)
            publisher.kill()
            printed += len(publisher.stdout.read().splitlines())

    def is_quiet() -> bool:
        with server.client() as client:
            return not client.exists(f"mqw:{{topic:{TOPIC}}}:outbox") and all(
                app.work_queue(queue).counts().ready == 0 for queue in ("default", "other")
            )

    wait_until(is_quiet, "everything was handed out", DEADLINE_S)
    wait_until(lambda: ran()[0] == ran()[1] and ran()[0].total() >= 20 + printed, "it ran", DEADLINE_S)

    one, other = ran()
    assert len(early) == 20
    assert one == other
    assert 20 + printed <= one.total() <= 20 + printed + 3
    # Each process counts from zero: a number comes at most once from each of the three.
    assert max(one.values()) <= 3
    assert all(one[str(-number)] == 1 for number in range(1, 21))
    app.close()
