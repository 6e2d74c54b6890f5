"""A whole node is killed: whoever is started beside it goes on at once, without waiting for the heartbeat."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from mqworker import App
from mqworker.settings import Settings
from tests.support.deadline import wait_until
from tests.support.real_server import RealServer

ROOT = Path(__file__).parents[2]
APP = """
import os, time
from pathlib import Path
from mqworker import App

app = App("shop")

@app.task
def hold() -> None:
    begun = Path("begun")
    with begun.open("a") as file:
        file.write(f"{os.getpid()}\\n")
    while len(begun.read_text().split()) == 1:
        time.sleep(0.01)
"""


def start_node(directory: Path, url: str) -> subprocess.Popen[bytes]:
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "MQWORKER_REDIS_URL": url,
        "MQWORKER_HEARTBEAT_TIMEOUT_S": "600",
    }
    command = [sys.executable, "-m", "mqworker", "run", "shop:app", "--workers", "1"]
    with (directory / "log").open("ab") as log:
        return subprocess.Popen(
            command,
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )


def begun_by(directory: Path) -> list[str]:
    path = directory / "begun"
    return path.read_text().split() if path.exists() else []


def test_what_a_killed_node_held_is_run_by_the_next_one_in_its_directory_at_once(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(APP)
    with RealServer() as server:
        app = App("shop", settings=Settings(redis_url=server.url))
        job = app.task(name="shop.hold")(lambda: None).enqueue()
        first = start_node(tmp_path, server.url)
        wait_until(lambda: len(begun_by(tmp_path)) == 1, "the task runs", deadline_s=60)
        first.send_signal(signal.SIGKILL)
        first.wait()

        second = start_node(tmp_path, server.url)
        try:
            wait_until(
                lambda: len(begun_by(tmp_path)) == 2, "it runs again, long before 600 s", deadline_s=60
            )
            assert job.result(timeout=30) is None
        finally:
            second.terminate()
            second.wait()
    assert not list((tmp_path / ".mqworker").glob("slots-*")), "no file of a node is left behind"
