"""deploy/mqworker.service: read by systemd's own checker where there is one, and driven as systemd would.

There is no systemd to be process 1 of a test. What it does with this unit is done here by hand: the line of
ExecStart with the variables of Environment, readiness and watchdog over the socket of sd_notify, the line of
ExecReload, and KillMode=mixed: TERM to the main process alone, KILL to the whole group when TimeoutStopSec is
over. The directives that confine it (ProtectSystem and so on) are not tried.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from configparser import ConfigParser, SectionProxy
from contextlib import suppress
from pathlib import Path

import pytest

from mqworker.model.names import QueueName
from mqworker.queues.work.queue import WorkQueue
from tests.support.deadline import wait_until
from tests.support.messages import open_store
from tests.support.real_server import RealServer

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "deploy" / "mqworker.service"
DEADLINE_S = 60.0
ORDERS = 300
APP = """
import time
from pathlib import Path
from mqworker import App

app = App("shop")
Path("imported").open("a").write("x")


@app.task
def note(number: int) -> None:
    time.sleep(0.005)
    with Path("ledger").open("a") as ledger:
        ledger.write(f"{number}\\n")
"""


def service() -> SectionProxy:
    unit = ConfigParser(interpolation=None, strict=False)
    unit.optionxform = str  # type: ignore[method-assign,assignment] # names of systemd have capitals
    unit.read(UNIT)
    return unit["Service"]


class Unit:
    """The unit on a site of the test's: its paths and its user are replaced, all else is as it stands."""

    def __init__(self, directory: Path, redis_url: str) -> None:
        self.directory = directory
        self.told: list[str] = []
        (directory / "shop").mkdir()
        (directory / "shop" / "__init__.py").touch()
        (directory / "shop" / "tasks.py").write_text(APP)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(directory / "notify"))
        self._socket.settimeout(0)
        pairs = [pair.split("=", 1) for pair in shlex.split(service()["Environment"])]
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("MQWORKER_")},
            **{name: value for name, value in pairs if name != "MQWORKER_DATA_DIR"},
            "MQWORKER_DATA_DIR": str(directory / "state"),
            "MQWORKER_REDIS_URL": redis_url,
            "NOTIFY_SOCKET": str(directory / "notify"),
            "WATCHDOG_USEC": str(int(service()["WatchdogSec"]) * 1_000_000),
            "PYTHONPATH": str(ROOT),
        }
        self._main: subprocess.Popen[bytes] | None = None

    @property
    def main(self) -> subprocess.Popen[bytes]:
        assert self._main is not None
        return self._main

    def start(self) -> None:
        """Launch it, and wait as Type=notify does."""
        self.launch()
        wait_until(lambda: self.is_told("READY=1"), f"ready: {self.directory / 'log'}", DEADLINE_S)

    def launch(self) -> None:
        """ExecStart."""
        _, *words = shlex.split(service()["ExecStart"])
        with (self.directory / "log").open("ab") as log:
            self._main = subprocess.Popen(
                [str(Path(sys.executable).parent / "mqworker"), *words],
                cwd=self.directory,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def reload(self) -> None:
        """ExecReload."""
        command = service()["ExecReload"].replace("$MAINPID", str(self.main.pid))
        subprocess.run(shlex.split(command), check=True)

    def stop(self) -> int:
        """KillMode=mixed: the signal goes to the main process alone; what it exits with."""
        self._listen()  # there is room for ten words, and one a second that it is alive
        self.main.send_signal(signal.Signals[service()["KillSignal"]])
        return self.main.wait(float(service()["TimeoutStopSec"]))

    def is_told(self, word: str) -> bool:
        """Whether the node said so."""
        self._listen()
        return word in self.told

    def _listen(self) -> None:
        with suppress(BlockingIOError):
            while True:
                self.told += self._socket.recv(4096).decode().splitlines()

    def survivors(self) -> list[str]:
        """Processes of the group besides the main one: systemd would kill them now."""
        found = subprocess.run(
            ["ps", "-o", "pid=,args=", "-g", str(self.main.pid)], capture_output=True, text=True, check=False
        )
        return found.stdout.split("\n")[:-1]

    def end(self) -> None:
        if self._main is not None and self._main.poll() is None:
            os.killpg(self._main.pid, signal.SIGKILL)
            self._main.wait()
        self._socket.close()


@pytest.fixture
def server() -> Iterator[RealServer]:
    with RealServer() as running:
        yield running


@pytest.fixture
def unit(server: RealServer) -> Iterator[Unit]:
    with tempfile.TemporaryDirectory(prefix="mqw-unit-") as folder:
        running = Unit(Path(folder), server.url)
        yield running
        running.end()


def test_the_unit_fits_the_supervisor() -> None:
    directives = service()
    environment = dict(pair.split("=", 1) for pair in shlex.split(directives["Environment"]))

    assert (directives["Type"], directives["KillMode"]) == ("notify", "mixed")
    assert directives["RestartPreventExitStatus"] == "78"
    assert float(directives["TimeoutStopSec"]) > float(environment["MQWORKER_DRAIN_S"])


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze")
def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path) -> None:
    """With the paths of a site that exists; who it runs as is that site's, too."""
    program = str(Path(sys.executable).parent / "mqworker")
    text = UNIT.read_text().replace(service()["ExecStart"].split()[0], program)
    (tmp_path / UNIT.name).write_text(text.replace("User=mqworker", "User=root"))

    checked = subprocess.run(
        ["systemd-analyze", "verify", str(tmp_path / UNIT.name)], capture_output=True, text=True, check=False
    )

    assert (checked.returncode, checked.stderr) == (0, "")


def test_it_starts_reloads_and_stops_as_the_unit_says(unit: Unit, server: RealServer) -> None:
    store = open_store(server.url)
    queue = WorkQueue(QueueName("default"), store)
    ledger = unit.directory / "ledger"
    enqueue = f"from shop.tasks import note; note.enqueue_many([(n,) for n in range({ORDERS})])"

    unit.start()
    wait_until(lambda: unit.is_told("WATCHDOG=1"), "it feeds the watchdog", DEADLINE_S)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MQWORKER_REDIS_URL": server.url}
    subprocess.run([sys.executable, "-c", enqueue], cwd=unit.directory, env=environment, check=True)
    wait_until(ledger.exists, "work has begun", DEADLINE_S)
    imported = len((unit.directory / "imported").read_text())
    unit.reload()
    wait_until(
        lambda: len((unit.directory / "imported").read_text()) > imported, "new workers came", DEADLINE_S
    )
    code = unit.stop()

    assert code == 0
    assert unit.survivors() == []
    assert unit.is_told("STOPPING=1")
    counts = queue.counts()
    done = [int(line) for line in ledger.read_text().split()]
    assert counts.leased == 0  # a stop gives back what it holds
    assert len(done) + counts.ready == ORDERS
    assert len(set(done)) == len(done)
    store.close()


def test_a_configuration_that_does_not_fit_exits_as_the_unit_expects(unit: Unit) -> None:
    (unit.directory / "shop" / "tasks.py").write_text("app = 7\n")

    unit.launch()

    assert unit.main.wait(DEADLINE_S) == int(service()["RestartPreventExitStatus"])
