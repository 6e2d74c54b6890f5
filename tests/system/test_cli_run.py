"""`mqworker run` and `mqworker health` as they are typed: with the real actors and an embedded server."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from mqworker.errors import MqworkerError
from mqworker.store.embedded.share import stop_server
from mqworker.supervisor.status_socket import read_snapshots
from tests.support.deadline import wait_until
from tests.support.real_server import free_port

ROOT = Path(__file__).parents[2]
EXIT_DEADLINE_S = 15.0
APP = """
import os
from pathlib import Path
from mqworker.tasks.app import App

with Path("imported-by").open("a") as file:
    file.write(f"{os.getpid()}\\n")
app = App("shop")
"""


class Project:
    """A directory with an application, and the commands typed in it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.log_path = directory / "log"
        self.running: subprocess.Popen[bytes] | None = None
        (directory / "shop.py").write_text(APP)

    def run(self, *arguments: str) -> None:
        with self.log_path.open("wb") as log:
            self.running = subprocess.Popen(
                [sys.executable, "-m", "mqworker", "run", *arguments],
                cwd=self.directory,
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def wait_exit(self) -> int:
        assert self.running is not None
        return self.running.wait(EXIT_DEADLINE_S)

    def stop(self) -> int:
        assert self.running is not None
        self.running.terminate()
        return self.wait_exit()

    def type(self, *arguments: str) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, "-m", "mqworker", *arguments],
            cwd=self.directory,
            env=_environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    def signal(self, number: signal.Signals) -> None:
        assert self.running is not None
        self.running.send_signal(number)

    def snapshot(self) -> dict[str, Any]:
        snapshots = read_snapshots(self.directory / ".mqworker", 5.0).values()
        return next((snapshot for snapshot in snapshots if snapshot), {})

    def child(self, name: str) -> dict[str, Any]:
        snapshots = read_snapshots(self.directory / ".mqworker", 5.0).values()
        children = [child for snapshot in snapshots if snapshot for child in snapshot["children"]]
        return next((child for child in children if child["name"] == name), {})

    def wait_ready(self) -> None:
        snapshots = lambda: read_snapshots(self.directory / ".mqworker", 5.0).values()  # noqa: E731
        wait_until(
            lambda: any(snapshot and snapshot["complete"] for snapshot in snapshots()),
            "the node is complete",
        )

    def log(self) -> str:
        return self.log_path.read_text()

    def close(self) -> None:
        if self.running is not None and self.running.poll() is None:
            self.running.kill()
            self.running.wait()
        with suppress(MqworkerError):
            stop_server(self.directory / ".mqworker")


@pytest.fixture
def project() -> Iterator[Project]:
    directory = Path(tempfile.mkdtemp(prefix="mqw-")).resolve()
    project = Project(directory)
    yield project
    project.close()
    shutil.rmtree(directory)


def test_a_node_runs_survives_the_death_of_its_server_and_stops(project: Project) -> None:
    project.run("shop:app", "--workers", "1")
    project.wait_ready()
    assert project.type("health", "--live") == (0, "live\n")
    assert project.type("health", "--ready") == (0, "ready\n")

    wait_until(lambda: project.child("server_keeper")["facts"], "the keeper was asked")
    server_pid = project.child("server_keeper")["facts"]["server_pid"]
    os.kill(server_pid, signal.SIGKILL)
    wait_until(
        lambda: project.child("server_keeper")["facts"]["server_pid"] not in (None, server_pid), "another one"
    )
    assert project.type("health", "--ready") == (0, "ready\n")
    assert project.child("server_keeper")["generation"] == 1

    assert project.stop() == 0
    assert project.type("health", "--live") == (1, "not live: no supervisor is running for .mqworker\n")
    assert '"child_ready", "actor": "supervisor", "child": "worker:0"' in project.log()


def test_user_code_and_redis_stay_out_of_the_supervisor(project: Project) -> None:
    project.run("shop:app", "--workers", "2")
    project.wait_ready()
    assert project.running is not None
    supervisor = project.running.pid

    importers = [int(line) for line in (project.directory / "imported-by").read_text().split()]
    sockets = [
        file
        for file in Path(f"/proc/{supervisor}/fd").iterdir()
        if str(file.readlink()).startswith("socket:")
    ]

    assert sorted(importers) == sorted(project.child(f"worker:{number}")["pid"] for number in (0, 1))
    assert len(list(Path(f"/proc/{supervisor}/task").iterdir())) == 1
    assert len(sockets) == 8 + 1  # a control pipe for each child, and the status socket
    assert project.stop() == 0


def test_without_redis_it_stays_up_and_says_so(project: Project) -> None:
    project.run("shop:app", "--workers", "1", "--redis-url", f"redis://127.0.0.1:{free_port()}")
    project.wait_ready()

    assert project.type("health", "--live")[0] == 0
    code, text = project.type("health", "--ready", "--redis-url", f"redis://127.0.0.1:{free_port()}")
    assert code == 1
    assert text.startswith("not ready: ")
    assert project.stop() == 0


@pytest.mark.parametrize(
    ("app", "sentence"),
    [
        ("nowhere:app", "mqworker: app 'nowhere:app' cannot be imported from"),
        ("shop:none", "mqworker: app 'shop:none' is not there"),
        ("broken:app", "mqworker: app 'broken:app' fails to import: ZeroDivisionError: division by zero"),
    ],
)
def test_an_app_that_cannot_be_is_one_sentence_and_78(project: Project, app: str, sentence: str) -> None:
    (project.directory / "broken.py").write_text("1 / 0\n")

    project.run(app, "--workers", "2")

    assert project.wait_exit() == 78
    assert sentence in project.log().splitlines()[-1]
    assert "Traceback" not in project.log()


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["shop/tasks.py"], 2, "mqworker: app is 'shop/tasks.py'; accepted is module:attribute"),
        (["shop:app", "--workers", "many"], 78, "--workers: got 'many'; accepted: a whole number"),
        (["shop:app", "--data-dir", "shop.py"], 78, "mqworker: data_dir: "),
    ],
)
def test_what_cannot_be_is_refused_at_once(
    project: Project, arguments: list[str], code: int, sentence: str
) -> None:
    project.run(*arguments)

    assert project.wait_exit() == code
    assert sentence in project.log()
    assert "Traceback" not in project.log()


def test_reload_restarts_the_workers_and_waits_for_broken_code_to_be_mended(project: Project) -> None:
    project.run("shop:app", "--workers", "1", "--reload")
    project.wait_ready()

    (project.directory / "shop.py").write_text(APP + "# changed\n")
    wait_until(lambda: project.child("worker:0")["generation"] == 2, "the worker is restarted")
    project.wait_ready()
    (project.directory / "shop.py").write_text("1 / 0\n")
    wait_until(lambda: "workers_not_replaced" in project.log(), "the broken code is noticed")
    kept = project.child("worker:0")
    (project.directory / "shop.py").write_text(APP)
    wait_until(lambda: project.child("worker:0")["generation"] == 3, "the worker is restarted")
    project.wait_ready()

    assert (kept["generation"], kept["state"]) == (2, "live")
    assert project.stop() == 0


BROKEN = APP + "\n\ndef helper():\n    return 1 / 0\n\nhelper()\n"


def test_hup_with_code_that_does_not_import_keeps_the_workers_until_a_file_changes(project: Project) -> None:
    project.run("shop:app", "--workers", "2", "--log-format", "json")
    project.wait_ready()
    pids = {name: project.child(name)["pid"] for name in ("worker:0", "worker:1", "server_keeper")}
    (project.directory / "shop.py").write_text(BROKEN)

    project.signal(signal.SIGHUP)
    wait_until(lambda: project.snapshot().get("problem"), "the node says so")
    problem = project.snapshot()["problem"]
    wait_until(lambda: "keeps its workers" in project.type("status")[1], "status says so")
    code, shown = project.type("status")
    kept = {name: project.child(name)["pid"] for name in pids}
    project.signal(signal.SIGHUP)  # the same again changes nothing
    (project.directory / "shop.py").write_text(APP + "# mended\n")
    wait_until(lambda: project.child("worker:1").get("generation") == 2, "the workers are replaced")
    project.wait_ready()

    assert kept == pids
    assert f"ZeroDivisionError: division by zero ({project.directory / 'shop.py'}, line 12" in problem
    assert code == 1
    assert "keeps its workers" in shown
    assert project.snapshot()["problem"] is None
    assert project.child("server_keeper")["pid"] == pids["server_keeper"]
    assert project.stop() == 0


def test_a_lost_worker_whose_code_does_not_import_is_parked_and_the_others_stay(project: Project) -> None:
    project.run("shop:app", "--workers", "2", "--log-format", "json")
    project.wait_ready()
    other = project.child("worker:1")["pid"]
    (project.directory / "shop.py").write_text("def broken(:\n")

    os.kill(project.child("worker:0")["pid"], signal.SIGKILL)
    wait_until(lambda: project.child("worker:0").get("state") == "parked", "its successor is parked")
    last_exit = project.child("worker:0")["last_exit"]
    wait_until(lambda: "worker:0 of node" in project.type("status")[1], "status names it")
    code, shown = project.type("status")
    (project.directory / "shop.py").write_text(APP)
    wait_until(lambda: project.child("worker:0").get("state") == "live", "it is started when it is mended")

    assert "shop.py, line 1" in last_exit
    assert code == 1
    assert "worker:0" in shown
    assert project.child("worker:1")["pid"] == other
    assert project.stop() == 0


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MQWORKER_")}
    return {**kept, "PYTHONPATH": str(ROOT)}
